"""Every engine that cheats is seen, by the clause that speaks of its trick where one does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from judging import GENERATED, SUITE, verdict_on

from verispec.report.verdict import RunSummary
from verispec.run.plan import SEED, seed_of_today

OP = "sampler/expand_batch_to_tokens"
SEEN = {
    "RightForTheOldDefaultSeed": ("EXP-1", "fail", "value"),
    "WrongOnceIn500Calls": ("", "fail", "value"),
    "GivesThePreviousAnswer": ("ANY-4", "fail", ""),
    "KnowsThePoison": ("EXP-1", "fail", ""),
    "PutsTheInputBack": ("ANY-9", "crash", ""),
    "LeaksMemory": ("ANY-10", "fail", "resources kept"),
    "LeaksAMegabyte": ("ANY-10", "fail", "resources kept"),
    "LeaksThreads": ("ANY-10", "fail", "resources kept"),
    "AsksTheOracle": ("EXP-1", "fail", "raised"),
    "DiffersBetweenProcesses": ("ANY-11", "fail", ""),
}
"""An adversary, the clause of a case that must fail (any where it is empty), its outcome and kind."""

QUICK = (f"{OP}:EXP-*", f"{OP}:ANY-4*", f"{OP}:ANY-9*", f"{OP}:ANY-10*", f"{OP}:ANY-11*", f"{OP}:ANY-5*")


PATIENCE = 120.0
"""Seconds per case: the control is the oracle, whose plain loops take seconds over the calls of ANY-10."""


def failing(verdict: RunSummary) -> set[tuple[str, str, str]]:
    """Clause, outcome and kind of every case that did not pass."""
    return {(r.id.split(":")[1], str(r.outcome), str(r.failure["kind"])) for r in verdict.run.records if r.failed}


@pytest.mark.slow
def test_the_control_passes_what_sees_them(tmp_path: Path) -> None:
    verdict = verdict_on(
        "oracle_engine:OracleEngine", tmp_path / "run.jsonl", only=QUICK, seed=seed_of_today(), timeout=PATIENCE
    )
    assert failing(verdict) == set()
    assert set(verdict.counts) == {"pass"}


@pytest.mark.slow
@pytest.mark.parametrize("name", SEEN)
def test_an_adversary_is_seen(name: str, tmp_path: Path) -> None:
    clause, outcome, kind = SEEN[name]
    seen = failing(
        verdict_on(f"adversaries:{name}", tmp_path / "run.jsonl", only=QUICK, seed=seed_of_today(), timeout=PATIENCE)
    )
    assert any(c.startswith(clause) and o == outcome and k.startswith(kind) for c, o, k in seen), seen


def test_a_single_sleep_costs_one_case(tmp_path: Path) -> None:
    verdict = verdict_on("adversaries:SleepsOnce", tmp_path / "run.jsonl", only=(SUITE, GENERATED), timeout=8.0)
    assert {(o, k) for _, o, k in failing(verdict)} == {("timeout", "timeout")}


@pytest.mark.parametrize("batch", ["greedy", "mixed"])
def test_a_sampler_that_rewrites_logits_is_seen(batch: str, tmp_path: Path) -> None:
    only = (f"sampler/whole_sampler:ANY-8:batch={batch};*",)
    verdict = verdict_on("adversaries:RewritesLogits", tmp_path / "run.jsonl", only=only)
    assert {(c, k) for c, _, k in failing(verdict)} == {("ANY-8", "input changed")}


@pytest.mark.parametrize("name", ["KeepsSteps", "StartsThreads"])
def test_a_sampler_that_leaks_is_seen(name: str, tmp_path: Path) -> None:
    verdict = verdict_on(f"adversaries:{name}", tmp_path / "run.jsonl", only=("sampler/whole_sampler:ANY-10",))
    assert {(c, k) for c, _, k in failing(verdict)} == {("ANY-10", "resources kept")}


def test_a_wrapper_that_takes_any_arguments_binds_nothing(tmp_path: Path) -> None:
    """It agrees with every caller, whatever the function behind it takes."""
    only = ("signatures/runtime_signature:SIG-*:op=expand_batch_to_tokens",)
    verdict = verdict_on("adversaries:HidesItsSignatures", tmp_path / "run.jsonl", only=only)
    assert dict(verdict.counts) == {"inconclusive": 5}
    assert "takes any arguments(*args: 'Any', **kwargs: 'Any')" in verdict.run.records[0].reason


def test_requests_without_random_samples_are_not_judged_unseen(tmp_path: Path) -> None:
    """Samples of some requests decide those alone; a pass would stand for the others too."""
    only = tuple(
        f"sampler/whole_sampler{name}"
        for name in (":WS-9:draft=present;limits=none;batch=all sampled", "_chains:WS-9:draft=absent;check=long")
    )
    verdict = verdict_on("own_samplers:TellsSome", tmp_path / "run.jsonl", only=only)
    assert dict(verdict.counts) == {"inconclusive": 2}
    first, _ = verdict.run.records
    assert re.match(r"trace\(\) has no Draws of \d+ seeded requests with drafts, whose tokens", first.reason)


def test_a_trace_of_another_path_is_seen(tmp_path: Path) -> None:
    """Its tokens follow from its samples, and are not those of the calls that users make."""
    only = ("sampler/whole_sampler:WS-9:draft=present;limits=none;batch=all sampled",)
    (record,) = verdict_on("own_samplers:TracesAnother", tmp_path / "run.jsonl", only=only).run.records
    assert (record.outcome, record.kind) == ("fail", "relation broken")
    assert re.match(r"trace\(\) emitted \[.*\] for request \d, the call itself \[", record.message)


def test_the_default_seed_is_not_last_year_s() -> None:
    assert seed_of_today() != SEED
    assert len(str(seed_of_today())) == 8
