"""Engines that answer with garbage fail their cases: none ends in an error, which would accuse the suites."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from judging import verdict_on

from verispec.judge import Outcome

OPS = ("sampler/verify_tree*:V??-1:relation=*", "sampler/verify_tree*:*mode=law*", "sampler/[cp]*:ANY-5$")
TEXTS = (
    "e2e/greedy:GEN-1:draft=n*",
    "e2e/limits:GEN-10:draft=ngram*",
    "e2e/lora:GEN-43:draft=none;*",
    "e2e/options:GEN-37:option=dtype",
    "e2e/sampled:GEN-12:draft=ngram*",
)
SAMPLERS = (
    "sampler/whole_sampler:WS-7:*",
    "sampler/whole_sampler_limits:WS-[46]:*",
    "sampler/whole_sampler_parameters:WS-2[23]:*",
)


@pytest.mark.parametrize("garbage", ["nothing", "largest"])
def test_ops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, garbage: str) -> None:
    """Relations between two calls hold for some garbage."""
    monkeypatch.setenv("VERISPEC_GARBAGE", garbage)
    ended = outcomes("garbage_engines:Ops", tmp_path, OPS)
    assert set(ended) <= {Outcome.FAIL, Outcome.PASS}
    assert ended[Outcome.FAIL] >= 10
    assert ended[Outcome.PASS] < 3


def test_relations_of_calls_that_write_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two calls that write nothing agree, so that the first one must have written something."""
    monkeypatch.setenv("VERISPEC_GARBAGE", "nothing")
    records = verdict_on("garbage_engines:Ops", tmp_path / "garbage.jsonl", only=("sampler/*relation=*",)).run.records
    assert len(records) > 20
    assert {(record.outcome, record.kind) for record in records} == {("fail", "unwritten")}


@pytest.mark.parametrize("garbage", ["nothing", "largest", "many"])
def test_samplers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, garbage: str) -> None:
    """Pairs of parameters are not decided where one alone is wrong."""
    monkeypatch.setenv("VERISPEC_GARBAGE", garbage)
    ended = outcomes("garbage_engines:Samplers", tmp_path, SAMPLERS)
    assert set(ended) <= {Outcome.FAIL, Outcome.INCONCLUSIVE}
    assert ended[Outcome.FAIL] > 100


@pytest.mark.parametrize("garbage", ["nothing", "too few", "empty"])
def test_generators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, garbage: str) -> None:
    """A loop over requests and their results ends with the shorter one, and one over tokens begins with none."""
    monkeypatch.setenv("VERISPEC_GARBAGE", garbage)
    ended = outcomes("garbage_engines:Generators", tmp_path, TEXTS)
    assert set(ended) == {Outcome.FAIL}
    assert ended[Outcome.FAIL] > 5


def outcomes(engine: str, folder: Path, only: tuple[str, ...]) -> Counter[Outcome]:
    """Return the number of cases by outcome."""
    verdict = verdict_on(engine, folder / "garbage.jsonl", only=only)
    return Counter(verdict.counts)
