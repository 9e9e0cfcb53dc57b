"""``verispec ops --check``: the exit code, and the files that an incomplete op lacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from verispec import exits
from verispec.cli import main
from verispec.reference import contracts
from verispec.report import inventory

OP = "expand_batch_to_tokens"


def checked(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[str]]:
    code = exits.GOOD
    try:
        main(["ops", "--check", *words])
    except SystemExit as stop:
        code = int(stop.code or 0)
    return code, capsys.readouterr().out.splitlines()


def test_every_op_of_the_reference_is_complete(capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = checked(capsys)
    assert (code, lines[-1]) == (exits.GOOD, "nothing is missing")
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


def test_an_op_without_mutants_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    mutated = inventory.ops_with_mutants(Path(__file__).parents[1] / "mutants" / "mutants_csrc.py")
    assert OP in mutated
    monkeypatch.setattr(inventory, "mutated_ops", lambda: mutated - {OP})
    code, lines = checked(capsys)
    assert (code, lines[-1]) == (exits.BAD, f"{OP} lacks mutants of {OP} in tests/mutants/mutants_csrc.py")


def test_an_installation_without_tests_needs_no_mutants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory, "mutated_ops", lambda: None)
    assert not [row for row in inventory.rows() if row.missing]


def test_a_clause_without_a_case_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    tests = {clause: found for clause, found in inventory.tests_by_clause().items() if clause != "EXP-2"}
    monkeypatch.setattr(inventory, "tests_by_clause", lambda folders: tests)
    code, lines = checked(capsys)
    assert (code, lines[-1]) == (exits.BAD, f"{OP} lacks cases for EXP-2")


def test_a_clause_of_generation_without_a_case_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tests = {clause: found for clause, found in inventory.tests_by_clause().items() if clause != "GEN-18"}
    monkeypatch.setattr(inventory, "tests_by_clause", lambda folders: tests)
    code, lines = checked(capsys)
    assert (code, lines[-1]) == (exits.BAD, "generation lacks cases for GEN-18")


def test_tests_that_a_factory_makes_are_found(tmp_path: Path) -> None:
    """The clause may be any argument. A function that calls a factory is none itself: its tests are not found."""
    (tmp_path / "test_made.py").write_text(
        """
def made(parameters, clause):
    @case(clause, parameter=parameters)
    def check(parameter): ...
    return check

def used(clause):
    return made([], clause)

test_one = made(["a"], "OWN-1")
test_two = made(parameters=["b"], clause="OWN-2")
test_three = used("OWN-3")

@case("OWN-4")
def test_four(): ...
""",
        encoding="utf-8",
    )
    found = {clause: tests for clause, tests in inventory.tests_by_clause((tmp_path,)).items() if "OWN" in clause}
    folder = f"{tmp_path.name}/test_made.py"
    assert found == {f"OWN-{n}": (f"{folder}::test_{name}",) for n, name in ((1, "one"), (2, "two"), (4, "four"))}


def test_tests_of_an_imported_factory_are_found(tmp_path: Path) -> None:
    (tmp_path / "_makers.py").write_text(
        "def made(clause):\n    @case(clause)\n    def check(): ...\n    return check\n", encoding="utf-8"
    )
    (tmp_path / "test_own.py").write_text(
        "from own.suites._makers import made as cases\n\ntest_one = cases('OWN-1')\n", encoding="utf-8"
    )
    assert inventory.tests_by_clause((tmp_path,))["OWN-1"] == (f"{tmp_path.name}/test_own.py::test_one",)


def test_a_new_op_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The op of ``verispec new op`` has its oracle and its cases in one file of its own."""
    monkeypatch.setattr(contracts, "_registered", {})
    with pytest.raises(SystemExit, match="0"):
        main(["new", "op", "triple_it", "--in", str(tmp_path)])
    code, lines = checked(capsys, "--suite", str(tmp_path))
    assert (code, lines[-1]) == (exits.GOOD, "nothing is missing")
    assert any(line.startswith("triple_it") for line in lines)

    other = tmp_path / "other"
    other.mkdir()
    without = (tmp_path / "test_triple_it.py").read_text().replace('@case("TRI-1"', '@case("TRI-2"')
    (other / "test_triple_it.py").write_text(without)
    code, lines = checked(capsys, "--suite", str(other))
    assert (code, lines[-1].partition(";")[0]) == (exits.BAD, "triple_it lacks cases for TRI-1")


def test_a_suite_that_cannot_be_imported_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "test_broken.py").write_text("import no_such_package")
    with pytest.raises(SystemExit, match="2"):
        main(["ops", "--check", "--suite", str(tmp_path)])
    assert "V-OPS-SUITE" in capsys.readouterr().err
