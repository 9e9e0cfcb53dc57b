"""Kernels that explain a failing case: no more than it needs, and none if the failure stays."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from verispec.run import attribution, progress
from verispec.run.attribution import ROUNDS, explain
from verispec.run.events import CaseEnded
from verispec.run.plan import Plan
from verispec.run.progress import Bar, Lines
from verispec.run.record import Record

EXPAND, RANDOM, TOP = "expand_batch_to_tokens", "rejection_random_sample", "apply_top_k_top_p"
NEEDS = {
    "e2e/sampled:GEN-5:limits=none": {EXPAND},
    "sampler/whole_sampler:WS-7:limits=top_k": {TOP},
    "e2e/sampled:GEN-23:limits=top_k": {EXPAND, TOP},
    "sampler/whole_sampler:WS-4:drafts=negative": {EXPAND, RANDOM, TOP},
    "e2e/sampled:GEN-12:draft=draft_model k=3": {"no kernel"},
}
"""Cases, and the kernels that must be the reference's for each to pass."""


def failing(case: str) -> Record:
    return Record(case, "fail", reach="any request")


KERNELS = [
    *(failing(f"sampler/{EXPAND}:EXP-1:b={n}") for n in range(3)),
    *(failing(f"sampler/{RANDOM}:RRS-7:b={n}") for n in range(2)),
    failing(f"sampler/{TOP}:TKP-14:rule=k"),
]


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> list[tuple[set[str], int]]:
    """Every run that is made: what was exchanged, and how many cases were run again."""
    made: list[tuple[set[str], int]] = []

    def supervisor(plan: Plan, *, deadline: float | None) -> Iterator[CaseEnded]:
        made.append((set(plan.transplanted), len(plan.only)))
        for case in plan.only:
            yield CaseEnded(0, {"id": case, "outcome": "pass" if NEEDS[case] <= set(plan.transplanted) else "fail"})

    monkeypatch.setattr(attribution, "Supervisor", supervisor)
    return made


def test_a_case_is_explained_by_what_it_needs(trials: list[tuple[set[str], int]]) -> None:
    explained = explain(Plan("vllm"), [*map(failing, NEEDS), *KERNELS], Lines())
    found = {record.id: set(record.explained_by.split(", ")) for record in explained}
    assert found == {case: needed for case, needed in NEEDS.items() if "no kernel" not in needed}
    assert trials[:4] == [({EXPAND}, 5), ({RANDOM}, 4), ({TOP}, 4), ({EXPAND, RANDOM, TOP}, 3)]
    assert trials[4] == ({EXPAND, TOP}, 2), "the two that explained something alone come first"


def test_many_suspects_cost_one_more_run_each(
    trials: list[tuple[set[str], int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a release whose fallbacks are all lost: which kernels a case needs is found without trying every set."""
    needed = {EXPAND, RANDOM, "sample_recovered_tokens", "rejection_greedy_sample"}
    others = ["sample_recovered_tokens", "rejection_greedy_sample", "eagle_step_slot_mapping_metadata"]
    case = "sampler/whole_sampler:WS-1:batch=mixed"
    monkeypatch.setitem(NEEDS, case, needed)
    records = [failing(case), *KERNELS, *(failing(f"sampler/{op}:EXP-1:b=0") for op in others)]
    (record,) = explain(Plan("vllm"), records, Lines())
    assert set(record.explained_by.split(", ")) == needed
    assert len(trials) == 6 + 1 + 6


def whole(count: int) -> list[Record]:
    return [replace(failing(f"sampler/whole_sampler:WS-9:part={n}"), seconds=n) for n in range(count)]


@pytest.fixture
def one_clause(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[str]]:
    """Forty cases of one clause, which need three kernels, but for the last three."""
    needs = {record.id: {EXPAND, RANDOM, TOP} for record in whole(40)}
    needs |= {record.id: {needed} for record, needed in zip(whole(40)[37:], (EXPAND, "no", "no"), strict=True)}
    monkeypatch.setattr(sys.modules[__name__], "NEEDS", needs)
    return needs


def test_cases_of_one_clause_cost_the_search_of_three(
    trials: list[tuple[set[str], int]], one_clause: dict[str, set[str]]
) -> None:
    """As in a release where every kernel is lost: a hundred cases that go through all of them."""
    explained = {r.id: set(r.explained_by.split(", ")) for r in explain(Plan("vllm"), [*whole(40), *KERNELS], Lines())}
    assert explained.keys() == {case for case, needed in one_clause.items() if "no" not in needed}
    assert all(one_clause[case] <= exchanged for case, exchanged in explained.items()), "each has passed as it says"
    assert sum(cases for _, cases in trials) <= 39 + ROUNDS * (2 * 3 + 1), "not forty cases for each set of kernels"
    assert [cases for _, cases in trials].count(39) == 1


def test_the_cheapest_case_of_a_clause_is_searched_for(
    trials: list[tuple[set[str], int]], one_clause: dict[str, set[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test of a million samples takes minutes in each of the runs."""
    asked: list[tuple[str, ...]] = []
    trial = attribution.Supervisor

    def seen(plan: Plan, *, deadline: float | None) -> Any:
        asked.append(plan.only)
        return trial(plan, deadline=deadline)

    monkeypatch.setattr(attribution, "Supervisor", seen)
    sample = replace(failing("sampler/whole_sampler:WS-9:mode=law"), seconds=0.0)
    one_clause[sample.id] = {EXPAND}
    list(explain(Plan("vllm"), [sample, *reversed(whole(5)), KERNELS[0]], Lines()))
    assert asked[0] == (whole(1)[0].id,)


def test_known_failures_are_not_explained_again(
    trials: list[tuple[set[str], int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A known failure of a kernel still explains a new failure."""
    known = [replace(failing(case), outcome="xfail", observed="fail", issue="#1") for case in NEEDS]
    new = failing("sampler/whole_sampler:WS-1:batch=mixed")
    monkeypatch.setitem(NEEDS, new.id, {EXPAND})
    kernels = [replace(record, outcome="xfail", observed="fail", issue="#2") for record in KERNELS]
    assert [r.id for r in explain(Plan("vllm"), [*known, new, *kernels], Lines())] == [new.id]
    assert {cases for _, cases in trials} == {1}


def test_kernels_are_never_consequences(trials: list[tuple[set[str], int]]) -> None:
    assert list(explain(Plan("vllm"), KERNELS, Lines())) == []
    assert trials == []


def test_cases_that_run_again_show_their_progress(
    trials: list[tuple[set[str], int]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A release with a broken kernel has a hundred of them, which take minutes."""
    monkeypatch.setattr(progress, "EVERY", 0.0)
    assert list(explain(Plan("vllm"), [failing("e2e/sampled:GEN-12:draft=draft_model k=3"), KERNELS[0]], Lines())) == []
    first, second = capsys.readouterr().err.splitlines()
    assert first == f"running 1 failing case again with the reference's {EXPAND}"
    assert second.startswith("1 of 1 cases run again, 1 failing, ")


def test_a_bar_counts_the_cases_that_run_again(
    trials: list[tuple[set[str], int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")  # a dumb terminal gets no bar
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, color_system=None, width=100)
    with Bar(console) as bar:
        list(explain(Plan("vllm"), [failing("e2e/sampled:GEN-12:draft=draft_model k=3"), KERNELS[0]], bar))
    assert "1/1 1 failing" in shown.getvalue()


def test_one_suspect_is_tried_once(trials: list[tuple[set[str], int]]) -> None:
    records = [failing("e2e/sampled:GEN-12:draft=draft_model k=3"), KERNELS[0]]
    assert list(explain(Plan("vllm"), records, Lines())) == []
    assert trials == [({EXPAND}, 1)]


@pytest.mark.parametrize("plan", [Plan("reference"), Plan("vllm", transplanted=(EXPAND,))])
def test_other_engines_and_transplants_are_left_alone(plan: Plan, trials: list[tuple[set[str], int]]) -> None:
    assert list(explain(plan, [*map(failing, NEEDS), *KERNELS], Lines())) == []
    assert trials == []
