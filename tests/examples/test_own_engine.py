"""examples/own_engine: an adapter of less than 80 lines is tested, and nothing correct about it fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from judging import command

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/own_engine"
ONLY = (
    "sampler/expand_batch_to_tokens:EXP-2",
    "*whole_sampler:WS-1:*",
    "*whole_sampler:WS-7:*",
    "*whole_sampler:WS-9:*batch=*",
    "*whole_sampler:WS-9:draft=present;threads=2;*",
)
"""One of the ten distributions of WS-9, each a second: it has drafts, and the engine offers it."""


def test_it_is_short() -> None:
    assert len((EXAMPLE / "my_engine.py").read_text().splitlines()) < 80


def test_it_passes_and_what_it_lacks_is_unsupported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run.jsonl"
    chosen = [word for pattern in ONLY for word in ("--only", pattern)]
    monkeypatch.chdir(EXAMPLE)
    command(capfd, "run", "--engine", "my_engine:Engine", "--out", str(out), *chosen)
    records = [json.loads(line) for line in out.read_text().splitlines()]
    seen = {record["id"]: record["outcome"] for record in records if record["type"] == "case"}
    assert set(seen.values()) == {"pass", "unsupported"}
    assert seen["sampler/whole_sampler:WS-9:draft=present;limits=none;batch=mixed"] == "pass"
    assert seen["sampler/whole_sampler:WS-9:draft=present;limits=top_k;batch=mixed"] == "unsupported"
    assert sum(outcome == "pass" for outcome in seen.values()) >= 14
