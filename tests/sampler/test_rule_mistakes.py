"""Mistakes in the rule of an op: those that are made, and the failures that they explain."""

from __future__ import annotations

import ast
import inspect
import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from verispec.cases.batches import random_batch
from verispec.judge import Mismatch, OpUnderTest, _explained, explained
from verispec.judge._compare import oracle_outputs
from verispec.judge._compared import ComparedCall
from verispec.judge._explained import AS_IF, FRUITLESS, MOST_CALLS, SEARCHING, in_rule, mistakes_of
from verispec.judge._rule_mistakes import FOLDER, _module, _tree, of_rule
from verispec.reference import contracts, cpu
from verispec.suites.sampler._rejection import greedy_arguments
from verispec.suites.sampler._request_state import batch

OPS = sorted(name for name in contracts.names() if contracts.load(name).outputs)
BLOCK, GREEDY, STEP = "block_verification", "rejection_greedy_sample", "eagle_step_slot_mapping_metadata"
CAP = (
    "`min(log_r + step.p_draft - step.q_draft, 0.0)` were `log_r + step.p_draft - step.q_draft` in line 22 of the "
    "oracle's block_verification.py"
)


def with_mistake(op: str, words: str) -> Callable[..., None]:
    """Return an op that makes one of the mistakes in its rule."""
    mistake = next(mistake for mistake in of_rule(op) if mistake.words.startswith(words))

    def run(**arguments: Any) -> None:
        outputs = mistake.rule(
            op, {name: getattr(value, "numpy", lambda v=value: v)() for name, value in arguments.items()}
        )
        for name, values in (outputs or {}).items():
            arguments[name].numpy()[...] = values

    return run


def failing(op: str, engine: Callable[..., None], values: dict[str, Any], **options: Any) -> ComparedCall:
    under_test = OpUnderTest(contracts.load(op), engine)
    with pytest.raises(Mismatch):
        under_test.check_outputs(values, **options)
    assert under_test.compared is not None
    return under_test.compared


def without_cap(seed: int) -> ComparedCall:
    requests = batch(seed, "longest")
    shapes = {"sampled": (requests.requests, requests.columns)}
    values = requests.arguments(contracts.load(BLOCK))
    return failing(BLOCK, with_mistake(BLOCK, "`min(log_r"), values, shapes=shapes)


@pytest.mark.parametrize("op", OPS)
def test_each_can_be_tried_and_leaves_the_oracle_as_it_is(op: str) -> None:
    """Random numbers have mistakes of their own. Every ninth is tried."""
    before = ast.dump(ast.parse(inspect.getsource(_module(FOLDER + op))))
    assert all(callable(mistake.rule._function) for mistake in of_rule(op)[::9])  # type: ignore[attr-defined]
    assert ast.dump(_tree(FOLDER + op)) == before
    assert bool(of_rule(op)) == (op != "philox")


def test_a_lost_bound_is_named_with_the_line_of_the_oracle() -> None:
    compared = without_cap(1)
    assert [mistake.words for mistake in in_rule(compared)] == [CAP]


def test_an_engine_that_makes_one_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A listed mistake of block verification gives the same outputs, and would be named alone."""
    monkeypatch.setattr(_explained, "listed", lambda _: ())
    compared = without_cap(1)
    told = explained(compared.failure, compared)
    assert told.message.endswith(f" ({AS_IF} {CAP})")
    assert told.details["fault"] == CAP


def test_what_was_found_is_tried_first_and_not_searched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = without_cap(1), without_cap(5)
    assert in_rule(first)
    monkeypatch.setattr(_explained, "SEARCHING", -1.0)
    assert [mistake.words for mistake in mistakes_of(second)] == [CAP]


def test_the_search_for_an_op_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    compared, now, searched = without_cap(1), [0.0], []

    def slow(op: str) -> tuple[Any, ...]:
        searched.append(op)
        now[0] += SEARCHING / 2
        return ()

    monkeypatch.setattr(_explained, "time", SimpleNamespace(process_time=lambda: now[0], monotonic=lambda: 0.0))
    monkeypatch.setattr(_explained, "of_rule", slow)
    for _ in range(9):
        assert in_rule(compared) == []
    assert searched == [BLOCK] * 3


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[ComparedCall]:
    """Let no mistake explain anything, and return the calls for which mistakes were tried."""
    calls: list[ComparedCall] = []

    def listed(call: ComparedCall) -> tuple[Any, ...]:
        calls.append(call)
        return ()

    monkeypatch.setattr(_explained, "listed", listed)
    for name in ("of_inputs", "of_rule"):
        monkeypatch.setattr(_explained, name, lambda _: ())
    return calls


def test_an_op_that_nothing_explains_is_given_up(monkeypatch: pytest.MonkeyPatch, tried: list[ComparedCall]) -> None:
    """An engine that fails every case costs little more than one that passes; what was found before is still tried."""
    compared = without_cap(1)
    for _ in range(FRUITLESS + 5):
        assert mistakes_of(compared) == []
    assert len(tried) == FRUITLESS
    monkeypatch.undo()
    monkeypatch.setitem(_explained._found, BLOCK, [each for each in of_rule(BLOCK) if each.words == CAP])
    assert [mistake.words for mistake in mistakes_of(compared)] == [CAP]


def test_an_op_with_slow_failures_is_given_up_sooner(
    monkeypatch: pytest.MonkeyPatch, tried: list[ComparedCall]
) -> None:
    compared = without_cap(1)
    clock = itertools.count(step=1.0)
    monkeypatch.setattr(time, "process_time", lambda: next(clock))  # a second per look at the clock
    for _ in range(FRUITLESS):
        assert mistakes_of(compared) == []
    assert 0 < len(tried) < FRUITLESS


def test_a_mistake_that_only_right_calls_agree_with_explains_nothing() -> None:
    """Nearly every mistake agrees with a call in which nothing is rejected."""
    compared, calls = without_cap(1), []

    def right(offset: int) -> Any:
        calls.append(offset)
        return compared.inputs, oracle_outputs(BLOCK, compared.inputs)

    assert in_rule(replace(compared, otherwise=right)) == []
    assert len(calls) <= MOST_CALLS


def test_an_engine_that_writes_nothing_makes_none() -> None:
    values = greedy_arguments(random_batch(np.random.default_rng(2), (3, 2, 4), 9, greedy=1.0))
    compared = failing(GREEDY, lambda **_: None, values)
    assert compared.failure.wrong > 1
    assert in_rule(compared) == []


def test_without_further_calls_one_wrong_number_explains_nothing() -> None:
    compared = failing(GREEDY, _off_by_one, greedy_arguments(random_batch(np.random.default_rng(2), (3, 2, 4), 9)))
    assert compared.failure.wrong == 1
    assert in_rule(replace(compared, otherwise=None)) == []


def _off_by_one(**arguments: Any) -> None:
    cpu.op(GREEDY)(**arguments)
    arguments["output_token_ids_ptr"][0, 0] += 1
