"""A vLLM of a few lines for tests of engines: one kernel, its caller, its CPU fallback, and two ways to install it.

The module names and shapes are vLLM's, the code is not. ``registry`` has a dispatcher object and an override registry,
as 0.31 and later. ``runner`` launches the kernel by name and lets the CPU runner assign the fallback, as 0.20 to 0.29.
"""

from __future__ import annotations

from pathlib import Path

TRITON_UTILS = """\
HAS_TRITON = False


class _Triton:
    @staticmethod
    def jit(function):
        return function


triton = _Triton()
tl = None
"""

PLATFORM = """\
import torch


class Platform:
    device_type = "cpu"

    def __getattr__(self, name):
        return None

    def import_kernels(self):
        library = torch.library.Library("_C", "FRAGMENT")
        if not hasattr(torch.ops._C, "toy"):
            library.define("toy(Tensor x) -> ()")
        self.library = library
{register}

current_platform = Platform()
"""

REGISTER = """
    def register_triton_kernel_overrides(self):
        from vllm.triton_utils.dispatcher import register_kernels
        from vllm.utils import cpu_triton_utils

        register_kernels({"vllm.v1.sample.rejection_sampler.expand_kernel": cpu_triton_utils._expand_kernel_impl})
"""

DISPATCHER = """\
import importlib
import inspect
import sys


class Override:
    def __init__(self, kernel, function):
        self.func = function
        self.arg_names = list(getattr(kernel, "arg_names", None) or inspect.signature(kernel).parameters)

    def __getitem__(self, grid):
        return lambda **kwargs: self.func(*[kwargs[name] for name in self.arg_names])


class Dispatcher:
    def __init__(self, kernel, dispatch):
        self.kernel = kernel
        self.__wrapped__ = dispatch

    def __call__(self, *args, **kwargs):
        bound = inspect.signature(self.__wrapped__).bind(*args, **kwargs).arguments
        grid, launched = self.__wrapped__(**bound)
        self.kernel[grid](**{f"{k}_ptr" if k in ("output", "input", "cu_num_tokens") else k: v
                             for k, v in bound.items()}, **launched)


def register_kernels(overrides):
    for name, function in overrides.items():
        host, _, attribute = name.rpartition(".")
        module = importlib.import_module(host)
        original = getattr(module, attribute)
        wrapper = Override(original, function)
        for value in vars(module).values():
            if isinstance(value, Dispatcher) and value.kernel is original:
                value.kernel = wrapper
        setattr(module, attribute, wrapper)
"""

KERNEL = """\
from vllm.triton_utils import tl, triton
{imports}

@triton.jit
def expand_kernel(output_ptr, input_ptr, cu_num_tokens_ptr, replace_from, replace_to, MAX_NUM_TOKENS):
    pass

"""

WITH_DISPATCHER = """
def _dispatch(output, input, cu_num_tokens, replace_from, replace_to):
    return (input.shape[0],), {"MAX_NUM_TOKENS": 128}


_expand = Dispatcher(expand_kernel, _dispatch)


def expand_batch_to_tokens(x, cu, out):
    _expand(out, x, cu, 0, 1)
"""

WITH_LAUNCH = """
def expand_batch_to_tokens(x, cu, out):
    expand_kernel[(len(x),)](out, x, cu, 0, 1, MAX_NUM_TOKENS=128)
"""

RUNNER = """\
import vllm.utils.cpu_triton_utils as cpu_tl


class CPUModelRunner:
    def __init__(self):
        self._postprocess_triton()

    def _postprocess_triton(self):
        import vllm.v1.sample.rejection_sampler

        vllm.v1.sample.rejection_sampler.expand_kernel = cpu_tl.expand_kernel
"""

FALLBACK = """\
class _FuncWrapper:
    def __init__(self, func):
        self.func = func

    def __getitem__(self, grid):
        return self.func


def _expand_kernel_impl(output, input_val, cu_num_tokens, replace_from, replace_to, MAX_NUM_TOKENS=None):
    {before}start = 0
    target = {target}
    for value, end in zip(input_val.tolist(), cu_num_tokens.tolist()):
        target[start:end] = replace_to if value == replace_from else value
        start = end
    {after}


expand_kernel = _FuncWrapper(_expand_kernel_impl)
"""

RIGHT = {"before": "", "target": "output", "after": "pass"}
LOST_WRITE = {**RIGHT, "target": "output.double() if output.dtype.is_floating_point else output"}
"""Writes a float output into a converted copy."""
REFUSES = {**RIGHT, "before": 'assert False, "float tables are not supported"\n    '}
FAILS_LATE = {**RIGHT, "after": 'assert False, "too late"'}


def write(folder: Path, generation: str, fallback: dict[str, str], *, misplaced: bool = False) -> Path:
    """The package below `folder`, of the generation "registry" or "runner"; returns `folder`.

    `misplaced` combines the dispatcher with the runner, which assigns where callers no longer look.
    """
    dispatches = generation == "registry" or misplaced
    imports = "from vllm.triton_utils.dispatcher import Dispatcher\n" if dispatches else ""
    caller = WITH_DISPATCHER if dispatches else WITH_LAUNCH
    registers = generation == "registry" and not misplaced
    files = {
        "vllm/__init__.py": '__version__ = "0.99.0"\n',
        "vllm/triton_utils/__init__.py": TRITON_UTILS,
        "vllm/triton_utils/dispatcher.py": DISPATCHER,
        "vllm/platforms/__init__.py": PLATFORM.replace("{register}", REGISTER if registers else ""),
        "vllm/platforms/interface.py": "class Platform:\n    pass\n",
        "vllm/utils/__init__.py": "",
        "vllm/utils/cpu_triton_utils.py": FALLBACK.format(**fallback),
        "vllm/v1/__init__.py": "",
        "vllm/v1/sample/__init__.py": "",
        "vllm/v1/sample/rejection_sampler.py": KERNEL.replace("{imports}", imports) + caller,
        "vllm/v1/worker/__init__.py": "",
    }
    if not registers:
        files["vllm/v1/worker/cpu_model_runner.py"] = RUNNER
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return folder


PROGRAM = """\
import sys

import torch
from vllm.platforms import current_platform

current_platform.import_kernels()
if current_platform.register_triton_kernel_overrides is None:
    from vllm.v1.worker.cpu_model_runner import CPUModelRunner

    CPUModelRunner()
else:
    current_platform.register_triton_kernel_overrides()
from vllm.v1.sample.rejection_sampler import expand_batch_to_tokens

out = torch.full((3,), -7.0)
expand_batch_to_tokens(torch.tensor([0.5, 0.0]), torch.tensor([1, 3], dtype=torch.int32), out)
sys.exit(0 if out.tolist() == [0.5, 1.0, 1.0] else 1)
"""
"""Uses the toy as vLLM's worker does; good when the caller's temperatures are right."""
