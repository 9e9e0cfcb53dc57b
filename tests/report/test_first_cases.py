"""Choosing the case of a cause that a report shows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from failing_records import OP, failing, passing

from verispec.cases.batches import random_batch
from verispec.judge import Mismatch, OpUnderTest, explained
from verispec.reference import contracts, cpu
from verispec.report.causes import fold
from verispec.run.record import AS_IF, FAULT, Record
from verispec.suites.sampler._rejection import random_arguments


def test_a_special_mode_is_no_headline_where_other_cases_fail_too() -> None:
    """All raw log-probabilities are wrong: the shortest id would say that synthetic mode makes them so."""
    plain = [f"{OP}:RRS-1:mode=raw;batch=all greedy;draft={draft}" for draft in ("present", "absent")]
    special = f"{OP}:RRS-1:mode=raw;check=synthetic mode"
    right = passing(*(f"{OP}:RRS-{n}:mode=processed" for n in range(1, 9)))
    (cause,) = fold([failing(special), *map(failing, plain), *right])
    assert cause.case == plain[1]
    (alone,) = fold([failing(special), *right])
    assert alone.case == special


def test_one_case_that_production_reaches_makes_an_error() -> None:
    (cause,) = fold(
        [
            failing(f"{OP}:RRS-7:place=a"),
            failing(f"{OP}:RRS-7:place=longer", reach="the scheduler pads with -1"),
            *passing(f"{OP}:RRS-1", f"{OP}:RRS-2"),
        ]
    )
    assert (cause.level, cause.reach) == ("error", "the scheduler pads with -1")
    assert cause.case == f"{OP}:RRS-7:place=longer", "the case to reproduce is one that production reaches"


def test_the_smallest_case_is_the_one_to_reproduce() -> None:
    records = [failing(f"{OP}:RRS-1:b={b};k={k}") for b, k in ((257, 1), (2, 3), (3, 1))]
    (cause,) = fold(records)
    assert cause.case == f"{OP}:RRS-1:b=3;k=1"


MISREAD = "the values are wrong (as if x were read one row before)"
CHANCE = "the values are wrong (as if k were None, or p were None)"
RIGHT = passing(*(f"{OP}:RRS-{n}:k=1" for n in range(2, 9)))


def first(*records: Record) -> str:
    """Return the parameters of the case that the only cause leads with."""
    (cause,) = fold([*records, *RIGHT])
    return cause.case.split(":", 2)[-1]


def of_size(k: int, message: str = "wrong", kind: str = "value", **details: str) -> Record:
    return failing(f"{OP}:RRS-1:k={k}", kind, message, failure={"details": details})


def test_the_first_case_is_one_that_explains_itself_as_most_do() -> None:
    assert first(of_size(1), of_size(2, CHANCE), *(of_size(k, MISREAD) for k in (5, 3, 4))) == "k=3"
    assert first(of_size(1), of_size(2, MISREAD)) == "k=2", "half of them"
    assert first(*(of_size(k, "not written (as if x were 1)", "unwritten") for k in (3, 2))) == "k=2"


def test_an_explanation_of_few_cases_may_be_chance() -> None:
    assert first(*map(of_size, (1, 2, 3)), of_size(4, MISREAD)) == "k=1"
    assert first(of_size(1, CHANCE), *(of_size(k, f"wrong (as if k were {k})") for k in range(2, 9))) == "k=1"


def test_the_first_case_names_the_fault_that_most_name() -> None:
    named = [of_size(k, MISREAD, **{FAULT: fault}) for k, fault in ((2, "other"), (3, "ties"), (4, "ties"))]
    assert first(of_size(1, CHANCE), *named) == "k=3"
    assert first(*named[:2]) == "k=2", "each is one of two"


def test_a_slow_case_is_not_first_because_it_explains_itself() -> None:
    def first_of(*seconds: float) -> str:
        small, *others = (replace(of_size(k), seconds=s) for k, s in enumerate(seconds, 1))
        explained = [replace(r, failure=of_size(1, MISREAD).failure) for r in others]
        return first(small, *explained)

    assert first_of(0.01, 1.0) == "k=2", "nobody waits for a second"
    assert first_of(0.01, 1.1) == "k=1"
    assert first_of(0.01, 1.1, 0.9) == "k=3", "the quick one of those with the explanation"
    assert first_of(20.0, 40.0) == "k=2"
    assert first_of(20.0, 41.0) == "k=1"


@pytest.mark.parametrize("kind", ["raised", "crash", "timeout", "law", "binding", "imprecise", "outside"])
def test_the_first_case_of_other_kinds_is_the_smallest(kind: str) -> None:
    assert first(of_size(1, "x: bad", kind), *(of_size(k, "x: bad (as if y)", kind) for k in (2, 3))) == "k=1"


def test_the_words_of_the_judge_are_those_that_reports_look_for() -> None:
    def one_row_before(**arguments: Any) -> None:
        tokens = arguments["recovered_token_ids_ptr"]
        cpu.op("rejection_random_sample")(**arguments | {"recovered_token_ids_ptr": tokens.roll(1)})

    under_test = OpUnderTest(contracts.load("rejection_random_sample"), one_row_before)
    with pytest.raises(Mismatch) as caught:
        under_test.check_outputs(random_arguments(random_batch(np.random.default_rng(3), (0, 3, 5, 1, 4), 27)))
    message = explained(caught.value.failure, under_test.compared).message
    assert message.count(AS_IF) == 1
    assert first(of_size(1), of_size(2, message)) == "k=2"


def test_the_case_to_reproduce_is_one_that_no_other_fault_breaks() -> None:
    """Nearly all mixed batches fail by another op's fault: what a mixed batch shows may be that fault's."""
    parameters = "sampler/whole_sampler_parameters"
    own = [failing(f"{parameters}:WS-18:batch={b};n={n}") for b, n in (("mixed", 1), ("all greedy", 20))]
    broken = [failing(f"{parameters}:WS-17:batch=mixed;n={n}", explained_by="expand_batch_to_tokens") for n in range(9)]
    right = passing(
        f"{parameters}:WS-17:batch=mixed;n=99", *(f"{parameters}:WS-17:batch=all greedy;n={n}" for n in range(9))
    )
    fault = failing("sampler/expand_batch_to_tokens:EXP-2:b=1")
    shown = {c.clause: c.case for c in fold([fault, *own, *broken, *right])}
    assert shown["WS-18"] == own[1].id
    assert {c.clause: c.case for c in fold([fault, own[0], *broken, *right])}["WS-18"] == own[0].id, "it has no other"
    assert fold([*own, *right])[0].case == own[0].id, "the smallest"


def test_a_cause_shows_a_case_of_the_clause_that_it_is_under() -> None:
    """The first clause has no failure of the kind that most cases have."""
    wrong = [failing(f"sampler/verify_one_hot:VOH-3:counts={n}", "value", f"value {n}") for n in range(3)]
    relation = failing("sampler/verify_one_hot:VOH-1:counts=one", "relation broken", "two calls differ")
    (cause,) = fold([*wrong, relation])
    assert (cause.clause, cause.case, cause.message) == ("VOH-3", wrong[0].id, "value 0")
