"""Ops whose calls skip the check in Python where a call of the same layout passed it before.

A layout is all that decides if a call fits its contract, but for addresses and the values of counts (`Layout`). The
extension compares the layout of a call with those that it was taught, and looks at addresses and counts in every call.
Any other call takes the check in Python. It reads torch's tensors, through DLPack's table of functions: other arrays,
and torch's before 2.11, take the check every time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from verispec.reference.contracts import REQUIRED, Contract, Tensor
from verispec.reference.contracts._check import signature
from verispec.reference.contracts._compiled import MISSING, Layout, plan_of
from verispec.reference.contracts._view import view_of
from verispec.reference.extension import extension

_LARGEST = 2**63 - 1


def checked_op(
    contract: Contract,
    checked: Callable[..., None],
    *,
    kernel: Any = None,
    unchecked: Callable[..., None] | None = None,
) -> Any:
    """Return an op for callers: a call of a known layout skips the check, any other goes to `checked`.

    Args:
        contract: contract of the op.
        checked: function of the contract's arguments, by position or by keyword; may `teach` the op their layout.
        kernel: the extension's kernel, for calls of known layouts.
        unchecked: function of the same arguments for ops without such a kernel, where no launch stands for the call.
    """
    plan = plan_of(contract)
    parameters = []
    for p in contract.params:
        default = plan.defaults[p.name]
        is_tensor = isinstance(p, Tensor)
        is_passed = not getattr(p, "tuning", False)
        parameters.append((p.name, default, default is REQUIRED, is_tensor, is_passed))
    op = extension().CheckedOp(checked, kernel, unchecked, MISSING, tuple(parameters))
    op.__name__ = op.__qualname__ = contract.name
    op.__doc__ = contract.summary
    op.__signature__ = signature(contract)
    return op


def teach(
    op: Any, contract: Contract, args: tuple[Any, ...], kwargs: Mapping[str, Any], layout: Layout, launch: Any = None
) -> None:
    """Let `op` skip the check for calls of a layout that passed it.

    Args:
        op: the op, of `checked_op`.
        contract: contract of the op.
        args: positional arguments of a call of the layout.
        kwargs: keyword arguments of the call.
        layout: result of the check.
        launch: function of the addresses of the tensors, a tuple by parameter, that does the op's work or returns
            False if it cannot; None for ops with a kernel, and without such a launch.
    """
    plan = plan_of(contract)
    torch = sys.modules.get("torch")
    # On a device reading values would wait for it, so the check looks at none.
    counted = plan.counted if layout.device == "cpu" else ()
    if torch is None or not _reads(torch) or any(tensor.within for tensor in counted):
        return
    counts = []
    for tensor in counted:
        rule, used = tensor.cumulative, plan.axes[tensor.name][0].value(layout.sizes)
        assert rule is not None
        step = layout.sizes[rule.step] if rule.step else _LARGEST
        counts.append((tensor.name, used, step, layout.sizes[rule.limit] if rule.limit else _LARGEST))
    extension().learn(op, args, dict(kwargs), layout.scalars, list(layout.reach), counts, launch)


@cache
def _reads(torch: Any) -> bool:
    """Return True if the extension reads torch's tensors, and reads in them what Python does."""
    if not extension().read_tensors_of(torch.Tensor):
        return False
    plain = torch.arange(24, dtype=torch.int32)
    probes = (plain[3:], plain.as_strided((1, 3), (77, 5)), plain.as_strided((2, 0, 1), (3, 9, 4)), plain[:1].expand(4))
    for probe in probes:
        view, seen = view_of(probe), extension().reading(probe)
        if view is None or seen is None or (seen[0], *seen[2:4]) != (view.pointer, tuple(view.shape), view.strides):
            return False
    return True
