"""Engine ``vllm-ascend:triton@SOURCE``: its Triton kernels out of any tree or release, in Triton's interpreter.

They are launched as its sampler launches them on an NPU. What Triton's language has there alone is in `npu_language`.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from verispec.engines import Description, Engine, OpFunction, Unsupported, UnsupportedCall
from verispec.engines.accelerator_stubs import bare_packages, import_under_test
from verispec.engines.adapters import vllm_ascend_slots as slots
from verispec.engines.adapters.partial import choose_interpreter, limits_of_triton, require_cpu
from verispec.engines.adapters.vllm.refusals import guarded
from verispec.engines.adapters.vllm_ascend import VllmAscend
from verispec.reference import contracts

_KERNELS, _LANGUAGE = "vllm_ascend.ops.triton.reject_sample", "vllm_ascend.ops.triton.triton_utils"
VECTOR_CORES = 40
"""Of an NPU of the series 910B: programs of a launch at most, so that a larger batch has several requests each."""
MOST_REQUESTS = 10_000
"""Requests of a call, past which the interpreter takes minutes: a kernel goes through them one by one."""
_SUB_BLOCK = 4096
"""Tokens that its sampler lets a program read at a time."""


class VllmAscendTriton(VllmAscend):
    """A tree of vllm-ascend with its kernels in Triton."""

    def __init__(self, source: str) -> None:
        importlib.import_module("verispec.engines.adapters.npu_language").extend()
        for name in ("rejection_sampler", "sampler"):  # vLLM's own, which take no Triton without a driver
            importlib.import_module(f"vllm.v1.sample.{name}")
        with _enabled(importlib.import_module("vllm.triton_utils")):
            super().__init__(source, (_KERNELS, _LANGUAGE))
        self._kernels = import_under_test(_KERNELS)
        import_under_test(_LANGUAGE)._NUM_VECTORCORE = VECTOR_CORES

    def describe(self) -> Description:
        """Return the version, the stubs of missing packages, and that kernels are interpreted."""
        plain, triton = super().describe(), importlib.import_module("triton").__version__
        return replace(plain, details={**plain.details, "triton": f"{triton} in its interpreter"})

    def op(self, name: str) -> OpFunction | Unsupported:
        """Return the op by its kernel, or why there is none."""
        call = _CALLS.get(name)
        if call is None:
            return Unsupported(f"vllm-ascend has no {name} in Triton")
        return guarded(contracts.load(name), partial(_interpreted, call, self._kernels))

    def sampler(self, family: str = "flat") -> Any | Unsupported:
        """Return the packed sampler, or for "request_state" that of its second generation of workers."""
        if family != "request_state":
            return super().sampler(family)
        bare_packages(self._root, "vllm_ascend", slots.PARTS)
        try:
            with _enabled(importlib.import_module("vllm.triton_utils")):
                sampler = import_under_test(slots.MODULE).rejection_sample
                has_limits = (self._root / f"{slots.LIMITS.replace('.', '/')}.py").is_file()
                limits = import_under_test(slots.LIMITS).apply_top_k_top_p_npu if has_limits else None
        except ImportError as error:
            return Unsupported(f"its second sampler cannot be imported beside this vLLM: {error}")
        return slots.SlotSampler(sampler, limits)


@contextmanager
def _enabled(utilities: Any) -> Iterator[None]:
    """Let modules that are imported inside take Triton without an active driver from vLLM's utilities."""
    modules = {"triton": "triton", "tl": "triton.language", "tldevice": "triton.language.extra.libdevice"}
    enabled = {name: importlib.import_module(module) for name, module in modules.items()} | {"HAS_TRITON": True}
    before = {name: getattr(utilities, name, None) for name in enabled}
    vars(utilities).update(enabled)
    try:
        yield
    finally:
        vars(utilities).update(before)


def _interpreted(call: Callable[[Any, Mapping[str, Any]], None], kernels: Any, **given: Any) -> None:
    if lost := [flag for flag in ("SYNTHETIC_MODE", "USE_FP64_GUMBEL") if given.get(flag)]:
        raise UnsupportedCall(f"this adapter drives no {', '.join(lost)}")
    ends = given.get("cu_num_draft_tokens_ptr", given.get("cu_num_tokens_ptr", ()))
    if len(ends) > MOST_REQUESTS:
        raise UnsupportedCall("its kernels go through requests one by one, which takes the interpreter minutes")
    with limits_of_triton():
        call(kernels, given)


def _expand(kernels: Any, given: Mapping[str, Any]) -> None:
    values = (given["output_ptr"], given["input_ptr"], given["cu_num_tokens_ptr"])
    limits = (given["replace_from"], given["replace_to"], given["MAX_NUM_TOKENS"])
    if given["MAX_NUM_TOKENS"] & (given["MAX_NUM_TOKENS"] - 1):
        raise UnsupportedCall("its sampler gives MAX_NUM_TOKENS a power of two")
    if len(given["input_ptr"]):
        kernels.expand_triton(len(given["input_ptr"]), *values, *limits)


def _greedy(kernels: Any, given: Mapping[str, Any]) -> None:
    counts = _counts(given)
    if not counts:
        return
    grid, block_size = kernels.cal_grid_and_block_size(len(counts))
    kernels.rejection_greedy_sample_with_triton(
        output_token_ids=given["output_token_ids_ptr"],
        num_draft_tokens=counts,
        cu_num_draft_tokens=given["cu_num_draft_tokens_ptr"],
        draft_token_ids=given["draft_token_ids_ptr"],
        target_argmax=given["target_argmax_ptr"],
        bonus_token_ids=given["bonus_token_ids_ptr"],
        is_greedy=given["is_greedy_ptr"],
        max_spec_len=given["max_spec_len"],
        grid=grid,
        block_size=block_size,
    )


def _random(kernels: Any, given: Mapping[str, Any]) -> None:
    requests = len(given["cu_num_draft_tokens_ptr"])
    if not requests:
        return
    grid, block_size = kernels.cal_grid_and_block_size(requests)
    values = dict(given) | {
        "uniform_probs_ptr": given["uniform_probs_ptr"].to(torch.float32),
        "target_indices_ptr": None,
        "global_vocab_size": given["vocab_size"],
        "vec_len": requests,
        "ori_target_probs_ptr": None,
        "NO_ORI_TARGET_PROBS": True,
        "ENABLE_REDUCE_SAMPLING": False,
        "ENTROPY_VERIFY": False,
        "BLOCK_SIZE": block_size,
    }
    _launch(kernels.rejection_random_sample_kernel, (grid,), values)


def _recovered(kernels: Any, given: Mapping[str, Any]) -> None:
    counts = _counts(given)
    if not sum(counts):
        return
    values = dict(given) | {
        "q_ptr": 1 / given["inv_q_ptr"],
        "target_indices_ptr": None,
        "global_vocab_size": given["vocab_size"],
        "ENABLE_REDUCE_SAMPLING": False,
        "PADDED_VOCAB_SIZE": 1 << (given["vocab_size"] - 1).bit_length(),
        "SUB_BLOCK": _SUB_BLOCK,
    }
    _launch(kernels.sample_recovered_tokens_kernel, (len(counts), max(counts)), values)


_CALLS: Mapping[str, Callable[[Any, Mapping[str, Any]], None]] = {
    "expand_batch_to_tokens": _expand,
    "rejection_greedy_sample": _greedy,
    "rejection_random_sample": _random,
    "sample_recovered_tokens": _recovered,
}


def _counts(given: Mapping[str, Any]) -> list[int]:
    ends = given["cu_num_draft_tokens_ptr"]
    counts: list[int] = ends.diff(prepend=ends.new_zeros(1)).tolist()
    return counts


def _launch(kernel: Any, grid: tuple[int, ...], values: Mapping[str, Any]) -> None:
    """Launch a kernel with those of the values that it takes.

    Raises:
        UnsupportedCall: the kernel takes more.
    """
    parameters = inspect.signature(kernel.fn).parameters
    unknown = [name for name, p in parameters.items() if name not in values and p.default is p.empty]
    if unknown:
        raise UnsupportedCall(f"its kernel takes {', '.join(unknown)}, which no release up to 0.30.0 has")
    kernel[grid](**{name: values[name] for name in parameters if name in values})


def create(source: str, device: str | None = None) -> Engine:
    """Return the vllm-ascend of a source with its kernels in Triton.

    Args:
        source: a folder, ``folder#REV``, an archive or ``name==version``.
        device: None or "cpu".

    Raises:
        VerispecError: V-ENG-ASCEND, the source has no rejection sampler, cannot be imported beside the installed
            vLLM, or this process runs Triton otherwise. V-ENG-DEVICE, for another device. V-ENG-INTERPRETER, Triton's
            interpreter cannot run here.
    """
    require_cpu(device, "vllm-ascend:triton")
    choose_interpreter(f"vllm-ascend:triton@{source}", "V-ENG-ASCEND")
    return VllmAscendTriton(source)
