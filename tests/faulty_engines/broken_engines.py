"""Fault-injected engines: the baseline with one fault each, all of them in expand_batch_to_tokens.

Each docstring states the fault; `test_zoo.py` states the required failures.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from typing import Any, ClassVar

import torch
from oracle_engine import OracleEngine, from_oracle

from verispec.engines import OpFunction, Unsupported, UnsupportedCall

OP = "expand_batch_to_tokens"
_correct = from_oracle(OP)


class Broken(OracleEngine):
    """Calls `expand` for the op under fault."""

    def op(self, name: str) -> OpFunction | Unsupported:
        return self.expand if name == OP else super().op(name)

    def expand(self, **arguments: Any) -> None:
        _correct(**arguments)


def is_the_one(arguments: dict[str, Any]) -> bool:
    """One single case of the suite: the wide batch of booleans."""
    return arguments["input_ptr"].dtype == torch.bool and len(arguments["input_ptr"]) == 257


class LosesWrites(Broken):
    """Writes into a converted copy of the output, so that only int64 arrives."""

    def expand(self, *, output_ptr: torch.Tensor, input_ptr: torch.Tensor, **arguments: Any) -> None:
        _correct(output_ptr=output_ptr.to(torch.int64), input_ptr=input_ptr.to(torch.int64), **arguments)


class WritesBeyond(Broken):
    """Writes one element behind the output."""

    def expand(self, *, output_ptr: torch.Tensor, **arguments: Any) -> None:
        _correct(output_ptr=output_ptr, **arguments)
        end = output_ptr.storage_offset() + sum(
            (n - 1) * s for n, s in zip(output_ptr.shape, output_ptr.stride(), strict=True)
        )
        torch.as_strided(output_ptr, (1,), (1,), end + 1).fill_(1)


class ShowsMemory(Broken):
    """Raises an error with the memory behind the input, unless that is one value."""

    def expand(self, *, input_ptr: torch.Tensor, **arguments: Any) -> None:
        behind = input_ptr.untyped_storage().nbytes() // input_ptr.element_size() - 32
        memory = torch.as_strided(input_ptr, (32,), (1,), behind)
        if not (memory == memory[0]).all() and not memory.isnan().any():
            raise ValueError(f"memory {memory.to(torch.float64).dot(torch.arange(32.0, dtype=torch.float64))}")
        _correct(input_ptr=input_ptr, **arguments)


class ChangesInput(Broken):
    """Replaces the value in the input as well."""

    def expand(self, *, input_ptr: torch.Tensor, replace_from: float, replace_to: float, **arguments: Any) -> None:
        _correct(input_ptr=input_ptr, replace_from=replace_from, replace_to=replace_to, **arguments)
        input_ptr[input_ptr == replace_from] = replace_to


class Segfaults(Broken):
    """Reads address 0 in one case."""

    def expand(self, **arguments: Any) -> None:
        if is_the_one(arguments):
            ctypes.string_at(0)
        _correct(**arguments)


class Aborts(Broken):
    """A C++ kernel's failed assertion in one case."""

    def expand(self, **arguments: Any) -> None:
        if is_the_one(arguments):
            print("kernel.cpp:12: assertion failed: index < size", file=sys.stderr, flush=True)
            os.abort()
        _correct(**arguments)


class EndsTheProcess(Broken):
    """Ends the process, politely, in one case."""

    def expand(self, **arguments: Any) -> None:
        if is_the_one(arguments):
            os._exit(0)
        _correct(**arguments)


class LosesTheDevice(Broken):
    """A kernel of one case breaks the CUDA context: every later call in the process fails too."""

    lost = False

    def expand(self, **arguments: Any) -> None:
        type(self).lost |= is_the_one(arguments)
        if self.lost:
            raise RuntimeError("CUDA error: an illegal memory access was encountered\nCompile with TORCH_USE_CUDA_DSA")
        _correct(**arguments)


class LosesTheDeviceUnseen(Broken):
    """As LosesTheDevice, but the kernel's own call says nothing: what the harness asks for next fails."""

    lost = False

    def op(self, name: str) -> OpFunction | Unsupported:
        if self.lost:
            raise RuntimeError("CUDA error: an illegal memory access was encountered\nCompile with TORCH_USE_CUDA_DSA")
        return super().op(name)

    def expand(self, **arguments: Any) -> None:
        type(self).lost |= is_the_one(arguments)
        _correct(**arguments)


class LosesTheDeviceLater(Broken):
    """Is wrong in one case; when that call is made again, it breaks the CUDA context."""

    calls = 0

    def expand(self, *, output_ptr: torch.Tensor, **arguments: Any) -> None:
        type(self).calls += is_the_one(arguments)
        if self.calls > 1:
            raise RuntimeError("CUDA error: an illegal memory access was encountered\nCompile with TORCH_USE_CUDA_DSA")
        _correct(output_ptr=output_ptr, **arguments)
        if is_the_one(arguments):
            output_ptr[100] = ~output_ptr[100]


class Exits(Broken):
    """Calls sys.exit() in one case."""

    def expand(self, **arguments: Any) -> None:
        if is_the_one(arguments):
            sys.exit("no such kernel")
        _correct(**arguments)


class Hangs(Broken):
    """Never comes back in one case."""

    def expand(self, **arguments: Any) -> None:
        while is_the_one(arguments):
            time.sleep(1)
        _correct(**arguments)


class AnotherKeyword(Broken):
    """Calls one parameter by another name than its callers do."""

    def op(self, name: str) -> OpFunction | Unsupported:
        def expand(
            output_ptr: Any, input_ptr: Any, cu_tokens: Any, replace_from: Any, replace_to: Any, MAX_NUM_TOKENS: Any
        ) -> None:
            raise AssertionError("nobody can call this by keyword")

        return expand if name == OP else super().op(name)


class DescribesInADict(Broken):
    """Answers a dict where a Description is due."""

    def describe(self) -> Any:
        return {"name": "mine", "version": "1", "platform": "cpu"}


class HasNoOpAtAll(Broken):
    """Answers None instead of Unsupported for an op that it lacks."""

    def op(self, name: str) -> Any:
        return None if name == OP else super().op(name)


class LacksTheOp(Broken):
    """Says that it does not have the op."""

    def op(self, name: str) -> OpFunction | Unsupported:
        return Unsupported("there is no expand kernel on this platform") if name == OP else super().op(name)


class RefusesBooleans(Broken):
    """Says for booleans that it cannot."""

    def expand(self, **arguments: Any) -> None:
        if arguments["output_ptr"].dtype == torch.bool:
            raise UnsupportedCall("booleans are not expanded")
        _correct(**arguments)


class Nondeterministic(Broken):
    """Every second call is off by one in its last token."""

    calls: ClassVar[int] = 0

    def expand(self, **arguments: Any) -> None:
        _correct(**arguments)
        Nondeterministic.calls += 1
        output = arguments["output_ptr"]
        if self.calls % 2 == 0 and len(output):
            output[-1] = ~output[-1] if output.dtype == torch.bool else output[-1] + 1


class Narrows(Broken):
    """Computes in float32, which holds integers up to 2^24."""

    def expand(self, *, output_ptr: torch.Tensor, input_ptr: torch.Tensor, **arguments: Any) -> None:
        narrow = torch.empty(output_ptr.shape, dtype=torch.float32)
        narrow.copy_(output_ptr)
        _correct(output_ptr=narrow, input_ptr=input_ptr.float(), **arguments)
        output_ptr.copy_(narrow)


class OffByOne(Broken):
    """Gives the first token of each request to the request before it."""

    def expand(self, *, output_ptr: torch.Tensor, **arguments: Any) -> None:
        _correct(output_ptr=output_ptr, **arguments)
        total = int(arguments["cu_num_tokens_ptr"][-1]) if len(arguments["cu_num_tokens_ptr"]) else 0
        output_ptr[1:total] = output_ptr[: max(total - 1, 0)].clone()


class Noisy(Broken):
    """Prints on every channel there is, and is right."""

    def expand(self, **arguments: Any) -> None:
        print('{"type":"case","id":"not a case"}')
        os.write(1, b"from C\n")
        os.write(2, b"\xff from C\n")
        _correct(**arguments)


class NeedsAnImport(Broken):
    """Cannot be made: what it needs is not installed."""

    def __init__(self) -> None:
        import no_such_package_anywhere  # noqa: F401


class CrashesAtStart(Broken):
    """Ends its process while it starts."""

    def __init__(self) -> None:
        ctypes.string_at(0)


class CrashesAtClose(Broken):
    """Ends its process after the last case."""

    def close(self) -> None:
        ctypes.string_at(0)
