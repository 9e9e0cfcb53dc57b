"""Stubs of the vLLM modules that extracted kernels import.

Imported only by such code, in the process that runs it.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice as tldevice

from verispec.engines.adapters.vllm.launch import stride_of

__all__ = [
    "HAS_TRITON",
    "LOG2E",
    "LOGE2",
    "current_platform",
    "gpu_sync_allowed",
    "init_logger",
    "num_compute_units",
    "tl",
    "tldevice",
    "triton",
    "triton_kernel_dispatcher_with_warmup",
]

HAS_TRITON = True
LOG2E = 1.4426950408889634
LOGE2 = 0.6931471805599453


class _Platform:
    """The answers that kernels' host code asks of a platform: CUDA where torch has it, else none of them."""

    device_type = "cuda" if torch.cuda.is_available() else "cpu"

    def is_cuda(self) -> bool:
        return self.device_type == "cuda"

    def is_cuda_alike(self) -> bool:
        return self.is_cuda()

    def is_rocm(self) -> bool:
        return False

    def is_xpu(self) -> bool:
        return False

    def is_cpu(self) -> bool:
        return False

    def is_device_capability_family(self, capability: int) -> bool:
        return self.is_cuda() and torch.cuda.get_device_capability()[0] == capability // 10


current_platform = _Platform()


def init_logger(name: str) -> logging.Logger:
    """Return the standard library's logger `name`."""
    return logging.getLogger(name)


def num_compute_units(device_id: int = 0) -> int:
    """Return the number of multiprocessors of device `device_id`; 4 without a GPU."""
    return torch.cuda.get_device_properties(device_id).multi_processor_count if torch.cuda.is_available() else 4


@contextlib.contextmanager
def gpu_sync_allowed(*args: Any, **kwargs: Any) -> Any:
    """Run the block; nothing forbids a synchronisation here."""
    yield


def triton_kernel_dispatcher_with_warmup(*, kernel: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that makes a dispatcher of `kernel` as in vLLM 0.30 and later, without warm-up.

    The decorated function returns grid and flags; the other arguments are passed by name.
    """

    def decorate(dispatch: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(dispatch)

        def launch(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            grid, launched, *outputs = dispatch(*args, **kwargs)
            for name, value in bound.arguments.items():
                for engine_name in (name, f"{name}_ptr", name.upper(), f"{name}_ptr".upper()):
                    if engine_name in kernel.arg_names:
                        launched.setdefault(engine_name, value)
                        break
            for engine_name in kernel.arg_names:
                if engine_name not in launched and (stride := stride_of(engine_name, bound.arguments)) is not None:
                    launched[engine_name] = stride
            kernel[grid](**launched)
            return outputs[0] if outputs else None

        return launch

    return decorate
