"""``verispec ops --check``: the exit code, and the files that an incomplete op lacks."""

from __future__ import annotations

import pytest

from verispec import exits
from verispec.cli import main
from verispec.report import inventory

OP = "expand_batch_to_tokens"


def checked(capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    code = exits.GOOD
    try:
        main(["ops", "--check"])
    except SystemExit as stop:
        code = int(stop.code or 0)
    return code, capsys.readouterr().out.splitlines()


def test_every_op_of_the_reference_is_complete(capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = checked(capsys)
    assert (code, lines[-1]) == (exits.GOOD, "no cell is missing")
    assert any(line.startswith(OP) for line in lines)


@pytest.mark.parametrize(
    ("function", "file"),
    [
        ("has_oracle", f"reference/oracle/{OP}.py"),
        ("has_cpu_kernel", f"reference/csrc/{OP}.cpp"),
        ("has_triton_kernel", f"reference/triton/{OP}.py"),
    ],
)
def test_a_missing_file_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], function: str, file: str
) -> None:
    monkeypatch.setattr(inventory, function, lambda name: name != OP)
    assert checked(capsys)[0] == exits.BAD
    assert checked(capsys)[1][-1] == f"{OP} lacks {file}"


def test_a_missing_maker_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    makers = inventory.call_makers() - {OP}
    monkeypatch.setattr(inventory, "call_makers", lambda: makers)
    code, lines = checked(capsys)
    assert (code, lines[-1]) == (exits.BAD, f"{OP} lacks a maker named {OP} in suites/sampler/_calls.py")


def test_a_clause_without_a_case_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    tests = {clause: found for clause, found in inventory.tests_by_clause().items() if clause != "EXP-2"}
    monkeypatch.setattr(inventory, "tests_by_clause", lambda: tests)
    code, lines = checked(capsys)
    assert (code, lines[-1]) == (exits.BAD, f"{OP} lacks cases for EXP-2")
