"""The search names the culprit kernels with few runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from verispec import exits
from verispec.kernel_swap.search import SwapAnswer, SwapResult, SwapTrial, search

OPS = ("a", "b", "c")


def run_of(good: Callable[[frozenset[str]], bool | None], called: tuple[str, ...] = OPS) -> Callable[..., SwapTrial]:
    """Runs whose outcome is `good` of the exchanged ops; `called` are the kernels that the program uses."""
    return lambda ops: SwapTrial(ops, good(frozenset(ops)), tuple(op for op in ops if op in called), 0)


def ask(good: Callable[[frozenset[str]], bool | None], called: tuple[str, ...] = OPS) -> SwapResult:
    return search(OPS, run_of(good, called))


def test_the_one_culprit_is_named() -> None:
    result = ask(lambda ops: "b" in ops)
    assert (result.answer, result.ops) == (SwapAnswer.CULPRIT, ("b",))
    assert result.exit_code == exits.GOOD


def test_several_that_cure_alone_are_all_named() -> None:
    assert ask(lambda ops: bool(ops & {"a", "c"})).ops == ("a", "c")


def test_culprits_together_are_named_without_the_innocent() -> None:
    result = ask(lambda ops: {"a", "c"} <= ops)
    assert (result.answer, result.ops) == (SwapAnswer.TOGETHER, ("a", "c"))
    assert result.exit_code == exits.GOOD


def test_a_fault_that_stays_clears_the_kernels() -> None:
    result = ask(lambda ops: False)
    assert (result.answer, result.exit_code) == (SwapAnswer.STAYS, exits.GOOD)
    assert len(result.trials) == 2


def test_no_fault_is_said_after_one_run() -> None:
    result = ask(lambda ops: True)
    assert (result.answer, result.exit_code) == (SwapAnswer.NO_FAULT, exits.CANNOT_TELL)
    assert len(result.trials) == 1


def test_kernels_that_are_not_called_are_not_tried() -> None:
    result = ask(lambda ops: "b" in ops, called=("b", "c"))
    assert result.ops == ("b",)
    assert [t.ops for t in result.trials] == [(), OPS, ("b",), ("c",)]


def test_a_single_called_kernel_needs_no_further_run() -> None:
    result = ask(lambda ops: "b" in ops, called=("b",))
    assert result.ops == ("b",)
    assert len(result.trials) == 2


@pytest.mark.parametrize(
    "good",
    [lambda ops: None, lambda ops: None if ops else False],
    ids=["as it stands", "with reference kernels"],
)
def test_a_run_that_cannot_be_judged_ends_the_search(good: Callable[[frozenset[str]], bool | None]) -> None:
    assert ask(good).answer is SwapAnswer.CANNOT_TELL


def test_a_transplant_that_did_not_take_is_no_acquittal() -> None:
    """The outcome with everything exchanged says nothing if none of it was called."""
    assert ask(lambda ops: False, called=()).answer is SwapAnswer.CANNOT_TELL


def test_the_answer_is_written_with_every_run() -> None:
    written = ask(lambda ops: "b" in ops).to_json()
    assert (written["answer"], written["ops"]) == ("culprit", ["b"])
    assert [t["good"] for t in written["trials"]] == [False, True, False, True, False]
