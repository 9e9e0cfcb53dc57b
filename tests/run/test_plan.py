"""A plan imports the suites that can hold its cases, and no other."""

from __future__ import annotations

import pytest

from verispec.cases import CaseId, selects
from verispec.run import supervisor
from verispec.run.plan import WITHOUT_QUICK_CASES, Plan, environment
from verispec.run.supervisor import Supervisor

ENGINE = "oracle_engine:OracleEngine"


def chosen(*only: str, smoke: bool = False, suites: tuple[str, ...] = ()) -> list[str]:
    return list(Supervisor(Plan(ENGINE, only=only, smoke=smoke, suites=suites)).collect().selected)


def test_the_suite_that_smoke_leaves_out_has_no_quick_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "require_agreement", lambda plan: None)  # It refuses to collect them.
    assert chosen(smoke=True, suites=(WITHOUT_QUICK_CASES,)) == []
    assert not Plan(ENGINE, smoke=True).generates


@pytest.mark.parametrize(
    ("only", "generates"),
    [
        (("sampler/*:ANY-5",), False),
        (("sampler/*:ANY-5", "synthetic/"), False),
        (("sampler/expand_batch_to_tokens:EXP-1",), False),
        (("sampler/*", "e2e/greedy:GEN-1"), True),
        (("*:ANY-5",), True),
        (("sampler",), True),
    ],
)
def test_patterns_of_one_suite_import_no_other(only: tuple[str, ...], generates: bool) -> None:
    assert Plan(ENGINE, only=only).generates == generates


def test_patterns_choose_the_same_cases_whatever_is_imported() -> None:
    patterns = ("sampler/*:EXP-2", "sampler/expand_batch_to_tokens:EXP-1", "synthetic/")
    every = chosen("*")
    assert chosen(*patterns) == [case for case in every if any(selects(pattern, case) for pattern in patterns)]
    found = Supervisor(Plan(ENGINE, only=patterns[:1])).collect()
    assert sorted([*found.selected, *found.others]) == sorted(case for case in every if case.startswith("sampler/"))


def test_threads_of_a_run_do_not_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine they took seven times as long: each waits for another one's processor."""
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    assert environment(Plan("reference"))["OMP_WAIT_POLICY"] == "PASSIVE"
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    assert environment(Plan("reference"))["OMP_WAIT_POLICY"] == "ACTIVE"


@pytest.mark.parametrize("smoke", [False, True])
def test_the_clauses_of_each_op_come_before_the_rules_of_every_op(smoke: bool) -> None:
    """A run that is cut after a while has then shown which clause of the op is broken."""
    patterns = ("sampler/verify_tree_sampled", "sampler/apply_top_k_top_p", "synthetic/")
    cases = [CaseId.parse(case) for case in chosen(*patterns, smoke=smoke)]
    of_every_op = [case.clause.startswith("ANY-") for case in cases if case.suite == "sampler"]
    assert len(of_every_op) > len(patterns)
    assert set(of_every_op) == {False, True}
    assert of_every_op == sorted(of_every_op)
    assert [case.suite for case in cases] == sorted(case.suite for case in cases)
