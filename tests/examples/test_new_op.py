"""examples/new_op: an op of another package gets a contract, an oracle, a suite and a result."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from judging import command

from verispec.reference import contracts
from verispec.reference.contracts import Contract

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/new_op"


@pytest.mark.parametrize(
    ("right", "wrong", "failing"),
    [
        ("", "", []),
        (" - 1)", ")", ["left=1", "left=2"]),
        (".clamp(min=0)", "", ["left=0"]),
    ],
    ids=["as it is", "no room for the bonus token", "negative"],
)
def test_the_suite_tells_right_from_wrong(
    tmp_path: Path,
    right: str,
    wrong: str,
    failing: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "new_op"
    shutil.copytree(EXAMPLE, folder)
    engine = folder / "engine.py"
    assert right in engine.read_text()
    engine.write_text(engine.read_text().replace(right, wrong, 1))
    monkeypatch.chdir(folder)
    command(capfd, "run", "--engine", "engine:Engine", "--suite", ".", "--out", "run.jsonl")
    lines = [json.loads(line) for line in (folder / "run.jsonl").read_text().splitlines()]
    seen = {line["id"]: line["outcome"] for line in lines if "outcome" in line}
    assert len(seen) == 7
    assert [case.rpartition(":")[2] for case, outcome in seen.items() if outcome == "fail"] == failing


@pytest.fixture
def no_ops_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contracts, "_registered", {})


def contract_like(name: str, clauses: str) -> Contract:
    """Return a contract called `name` with the clauses of the op `clauses`."""
    other = contracts.load(clauses)
    return Contract(name, "shared", "summary", other.axes, other.params, other.clauses)


@pytest.mark.usefixtures("no_ops_registered")
@pytest.mark.parametrize(
    ("name", "clauses", "message"),
    [("flatten_sampled", "flatten_sampled", "already an op"), ("new", "flatten_sampled", "clause ids in use: FLS-1")],
)
def test_names_and_clauses_must_be_new(name: str, clauses: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        contracts.register(contract_like(name, clauses), dict)


@pytest.mark.usefixtures("no_ops_registered")
def test_an_unknown_op_names_the_known_ones() -> None:
    with pytest.raises(KeyError, match=r"no op 'cap'; the ops are .*flatten_sampled"):
        contracts.load("cap")
