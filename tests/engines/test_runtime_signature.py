"""The runtime signature cases on callables whose parameters are the same, renamed, swapped or missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from verispec.engines import CallShape
from verispec.engines.adapters.vllm.launch import (
    forwarded,
    kernels_part,
)
from verispec.engines.protocol.runtime_signature import RuntimeSignature
from verispec.judge import Mismatch
from verispec.suites.signatures import test_runtime_signature as suite

KERNEL = ("num_tokens", "positions_ptr", "block_size", "slot_mapping_ptr", "PAD_ID", "BLOCK_SIZE")
OP = "compute_slot_mapping"


def renamed(num_tokens: Any, positions: Any, block_size: Any, slot_mapping: Any, PAD_ID: Any, BLOCK_SIZE: Any) -> None:
    """A positions' and a tile's block size, told apart by their case alone."""


def swapped(
    num_tokens: Any, positions: Any, slot_mapping: Any, block_size: Any, PAD_ID: Any, BLOCK_SIZE: Any
) -> None: ...


def exchanged(
    num_tokens: Any, positions: Any, BLOCK_SIZE: Any, slot_mapping: Any, PAD_ID: Any, block_size: Any
) -> None: ...


def short(num_tokens: Any, positions: Any, slot_mapping: Any, BLOCK_SIZE: Any) -> None: ...


def unlike(count: Any, where: Any, size: Any, slots: Any, PAD_ID: Any, BLOCK_SIZE: Any) -> None: ...


def live(implementation: Callable[..., Any]) -> RuntimeSignature:
    """Behind a dispatcher that forwards by position, as it does where names differ."""
    return RuntimeSignature(OP, "holder", KERNEL, implementation, True, forwarded(KERNEL, implementation))


def launched(implementation: Callable[..., Any], positional: int) -> RuntimeSignature:
    """Launched by callers themselves, with so many arguments by position."""
    return RuntimeSignature(OP, "holder", KERNEL, implementation, True, CallShape(positional, KERNEL[positional:]))


def test_names_that_differ_by_case_alone_are_told_apart() -> None:
    suite.test_the_order_is_the_kernels(live(renamed), OP)
    suite.test_every_parameter_can_be_passed(live(renamed), OP)


@pytest.mark.parametrize("implementation", [swapped, exchanged])
def test_an_exchange_is_seen(implementation: Callable[..., Any]) -> None:
    with pytest.raises(Mismatch, match="is parameter 3 of the implementation and"):
        suite.test_the_order_is_the_kernels(live(implementation), OP)


@pytest.mark.parametrize(
    "case",
    [
        suite.test_what_callers_pass_binds,
        suite.test_the_order_is_the_kernels,
        suite.test_every_parameter_can_be_passed,
    ],
)
@pytest.mark.parametrize("holder", [live(short), launched(short, 5)])
def test_parameters_that_are_missing_are_named_by_every_case(
    case: Callable[..., None], holder: RuntimeSignature
) -> None:
    """One fault, one text: a shift of those behind them is no fault of its own."""
    with pytest.raises(Mismatch, match=r"holder: the implementation has no parameter for block_size, PAD_ID$"):
        case(holder, OP)


def test_what_is_passed_by_keyword_may_stand_anywhere() -> None:
    suite.test_the_order_is_the_kernels(launched(swapped, 2), OP)
    suite.test_every_parameter_can_be_passed(launched(swapped, 2), OP)


def test_what_is_passed_by_position_may_have_any_name() -> None:
    suite.test_every_parameter_can_be_passed(launched(unlike, 4), OP)
    suite.test_what_callers_pass_binds(launched(unlike, 4), OP)
    with pytest.raises(Mismatch, match="no parameter for slot_mapping_ptr"):
        suite.test_every_parameter_can_be_passed(launched(unlike, 3), OP)


def test_a_launchers_options_do_not_reach_the_kernel() -> None:
    shape = CallShape(4, ("PAD_ID", "BLOCK_SIZE", "num_warps", "num_stages"))
    suite.test_what_callers_pass_binds(RuntimeSignature(OP, "holder", KERNEL, renamed, True, kernels_part(shape)), OP)
    with pytest.raises(Mismatch, match="unexpected keyword argument 'num_warps'"):
        suite.test_what_callers_pass_binds(RuntimeSignature(OP, "holder", KERNEL, renamed, True, shape), OP)


@pytest.mark.parametrize("runs", [True, False])
def test_what_does_not_run_is_seen(runs: bool) -> None:
    holder = RuntimeSignature(OP, "holder", KERNEL, renamed, runs, forwarded(KERNEL, renamed))
    if runs:
        suite.test_an_implementation_is_where_callers_look(holder, OP)
        return
    with pytest.raises(Mismatch, match="still hold the bare kernel"):
        suite.test_an_implementation_is_where_callers_look(holder, OP)
