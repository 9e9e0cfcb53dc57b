"""Tell a clear refusal, which is a gap, from a crash, which is a fault."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

import torch

from verispec.engines import OpFunction, UnsupportedCall
from verispec.reference.contracts import Contract

_DTYPE_CHECK = re.compile(r"expected scalar type \w+ but found \w+")


def guarded(contract: Contract, function: OpFunction) -> OpFunction:
    """Return `function` with clear refusals turned into UnsupportedCall, if it has written nothing.

    A refusal is an assertion or NotImplementedError with a message, or torch's own dtype check if the caller passed a
    dtype that production does not. Refusing production's dtypes is a crash.

    Args:
        contract: contract of the op; its outputs are compared before and after a refusal.
        function: the engine's op.

    Returns:
        A function of the op's parameters by keyword. It raises any other exception of `function` unchanged.
    """

    @functools.wraps(function)
    def call(**bound: Any) -> Any:
        written = [t.name for t in contract.outputs if isinstance(bound.get(t.name), torch.Tensor)]
        before = {name: bound[name].clone() for name in written}
        try:
            return function(**bound)
        except UnsupportedCall:
            raise
        except Exception as error:
            reason = _reason(error, contract, bound)
            if reason and all(_same(before[name], bound[name]) for name in written):
                raise UnsupportedCall(reason) from error
            raise

    return call


def _reason(error: Exception, contract: Contract, bound: Mapping[str, Any]) -> str:
    message = str(error).strip()
    if isinstance(error, AssertionError | NotImplementedError):
        return message
    if isinstance(error, RuntimeError) and _DTYPE_CHECK.search(message):
        unusual = [
            f"{t.name} {str(bound[t.name].dtype).removeprefix('torch.')}"
            for t in contract.tensors
            if isinstance(bound.get(t.name), torch.Tensor)
            and t.production
            and bound[t.name].dtype != getattr(torch, t.production)
        ]
        return f"{message.splitlines()[0]} (given {', '.join(unusual)})" if unusual else ""
    return ""


def _same(before: torch.Tensor, after: torch.Tensor) -> bool:
    """Compare two tensors bit by bit, NaN included."""
    # A tensor of one element counts as contiguous with any stride, but its bytes can be viewed with stride 1 alone.
    bits = [t.clone(memory_format=torch.contiguous_format).view(torch.uint8) for t in (before, after)]
    return bool(torch.equal(*bits))
