"""``verispec new``: what it writes runs, and nothing is ever overwritten."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from judging import SUITE, command

from verispec import exits
from verispec.cli.new import clause_prefix, identifier
from verispec.errors import VerispecError
from verispec.reference import contracts

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def verispec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Yield a function that runs the command in a folder, in this process; what it imports there is forgotten."""
    monkeypatch.setenv("VERISPEC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)

    def run(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
        monkeypatch.chdir(folder)
        return command(capfd, *words)

    yield run
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


def test_a_new_engine_passes_its_own_gate(tmp_path: Path, verispec: Run) -> None:
    made = verispec("new", "engine", "My engine-2", "--in", "gate", folder=tmp_path)
    assert made.returncode == 0, made.stderr
    gate = tmp_path / "gate"
    assert sorted(path.name for path in gate.iterdir()) == [
        "known_failures.toml",
        "my_engine_2.py",
        "test_my_engine_2.py",
    ]
    only = "sampler/expand_batch_to_tokens"
    done = verispec("run", "--engine", "my_engine_2:Engine", "--only", only, folder=gate)
    assert (done.returncode, "no unexpected failure" in done.stdout) == (0, True), done.stdout + done.stderr
    engine = gate / "my_engine_2.py"
    engine.write_text(engine.read_text().replace("values == replace_from", "(values != replace_from)"))
    assert verispec("run", "--engine", "my_engine_2:Engine", "--only", SUITE, folder=gate).returncode == 1


def test_a_new_op_is_tested(tmp_path: Path, verispec: Run) -> None:
    assert verispec("new", "op", "double_it", "--in", "mine", folder=tmp_path).returncode == 0
    assert verispec("new", "engine", "mine", folder=tmp_path).returncode == 0
    engine = tmp_path / "mine.py"
    right = "def double_it(output, input):\n    output.copy_(2 * input)\n\n\nOPS"
    engine.write_text(
        engine.read_text()
        .replace("OPS", right, 1)
        .replace("OPS: dict[str, OpFunction] = {", 'OPS: dict[str, OpFunction] = {"double_it": double_it, ')
    )
    done = verispec("run", "--engine", "mine:Engine", "--suite", "mine", folder=tmp_path)
    assert (done.returncode, "no unexpected failure in 3 cases" in done.stdout) == (0, True), done.stdout + done.stderr
    engine.write_text(engine.read_text().replace("2 * input", "(3 * input)"))
    words = ("--engine", "mine:Engine", "--suite", "mine", "--out", "run.jsonl")
    failed = verispec("run", *words, folder=tmp_path)
    assert (failed.returncode, "rule: output is twice input." in failed.stdout) == (1, True), failed.stdout
    assert '"test":"test_double_it.py::' in (tmp_path / "run.jsonl").read_text()
    case = "mine/double_it:DOU-1:requests=1"
    alone = verispec("repro", case, "--engine", "mine:Engine", "--suite", "mine", folder=tmp_path)
    assert (alone.returncode, "DOU-1  output is twice input." in alone.stdout) == (1, True), alone.stdout + alone.stderr
    page = verispec("report", "run.jsonl", "--format", "html", folder=tmp_path).stdout
    assert page.count("output is twice input.") == 2, "the cause and the table of clauses say the rule"


def test_every_printed_command_works(tmp_path: Path, verispec: Run) -> None:
    """An op beside an engine, both in the current folder, was followed by a command that failed."""
    made = [verispec("new", *words, folder=tmp_path) for words in (("engine", "mine"), ("op", "cap"))]
    assert [done.returncode for done in made] == [0, 0], made
    commands = [line.split() for done in made for line in done.stdout.splitlines() if line.startswith(" " * 5)]
    ours = [[word.replace("MODULE", "mine") for word in words] for words in commands if "new" not in words]
    assert [words[1:3] for words in ours if words[0] == "verispec"] == [
        ["run", "--engine"], ["ops"], *[["explain", op] for op in ("expand_batch_to_tokens", "whole_sampler")],
        ["engines", "mine:Engine"], ["run", "--engine"], ["run", "--engine"],
    ]  # fmt: skip
    codes = {
        tuple(words): verispec(*words[1:], folder=tmp_path).returncode
        for words in ours
        if words[0] == "verispec" and words != ["verispec", "run", "--engine", "mine:Engine"]
    }
    last = codes.pop(("verispec", "run", "--engine", "mine:Engine", "--suite", "my_suite"))
    assert set(codes.values()) == {0}, codes
    assert last == 125, "the engine does not have the op yet"


def test_a_suite_is_not_written_beside_other_tests(tmp_path: Path, verispec: Run) -> None:
    assert verispec("new", "engine", "mine", folder=tmp_path).returncode == 0
    done = verispec("new", "op", "cap", "--in", ".", folder=tmp_path)
    assert (done.returncode, "V-NEW-SUITE" in done.stderr, "test_mine.py" in done.stderr) == (2, True, True)
    assert not (tmp_path / "test_cap.py").exists()
    assert verispec("new", "op", "cap", folder=tmp_path).returncode == 0
    assert verispec("new", "op", "pack", folder=tmp_path).returncode == 0


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text("my own test")
    words = [sys.executable, "-m", "verispec", "new", "engine", "mine"]
    done = subprocess.run(words, check=False, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert "V-NEW-EXISTS test_mine.py" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "cache") == ["test_mine.py"]


@pytest.mark.parametrize(("name", "expected"), [("my engine", "my_engine"), ("Ünder-2", "nder_2"), ("a/b", "a_b")])
def test_names_become_identifiers(name: str, expected: str) -> None:
    assert identifier(name) == expected


@pytest.mark.parametrize("name", ["", "2fast", "---"])
def test_a_name_without_an_identifier_is_rejected(name: str) -> None:
    with pytest.raises(VerispecError, match="V-NEW-NAME"):
        identifier(name)


def test_an_op_of_verispecs_own_is_not_written_again(tmp_path: Path, verispec: Run) -> None:
    """Its suite could not be collected: there is one contract per name."""
    done = verispec("new", "op", "expand batch to tokens", folder=tmp_path)
    assert done.returncode == exits.USAGE
    assert "V-NEW-NAME NAME: verispec has an op 'expand_batch_to_tokens'" in " ".join(done.stderr.split())
    assert not (tmp_path / "my_suite").exists()


@pytest.mark.parametrize("name", [*contracts.names(), "x", "a_b_c_d"])
def test_clause_letters_are_new(name: str) -> None:
    prefix = clause_prefix(name)
    used = {clause.id.partition("-")[0] for op in contracts.names() for clause in contracts.load(op).clauses}
    assert len(prefix) == 3
    assert prefix.isupper()
    assert prefix not in used


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, verispec: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "there").mkdir()
    written = Path.write_text

    def full(path: Path, *words: Any, **named: Any) -> int:
        if path.name == "known_failures.toml":
            path.touch()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return written(path, *words, **named)

    monkeypatch.setattr(Path, "write_text", full)
    done = verispec("new", "engine", "mine", "--in", "there/new/gate", folder=tmp_path)
    assert done.returncode == exits.CANNOT_TELL
    assert "V-NEW-WRITE there/new/gate" in done.stderr
    assert list(tmp_path.glob("there/**/*")) == []
