"""Every small fault in a kernel or an oracle is caught by the clause that speaks of it.

Faults in different ops do not meet, so one build and one run test one mutant of every op: a round.
Only the cases of the clauses named by the round's mutants are run, and each clause must fail. The faults of oracles
are first looked for without generated calls, which are nine tenths of the time.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path

import pytest
from judging import command
from mutants_csrc import MUTANTS as CSRC_ENTRIES
from mutants_oracle import MUTANTS as ORACLE_ENTRIES
from placement import Mutant, mutated, renamed, tokens, variables_of

from verispec.reference import contracts
from verispec.run.plan import SEED

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
Round = dict[str, Mutant]
Survivors = Callable[..., list[str]]
NOT_GENERATED = "*[!d]$"
"""Cases that do not end with ``mode=generated``, and most others."""
CSRC = {op: [Mutant(*entry) for entry in entries] for op, entries in CSRC_ENTRIES.items()}
ORACLE = {op: [Mutant(*entry) for entry in entries] for op, entries in ORACLE_ENTRIES.items()}
FILES = [
    *((ROOT / f"reference/csrc/{op}.cpp", mutants) for op, mutants in CSRC.items()),
    *((ROOT / f"reference/oracle/{op}.py", mutants) for op, mutants in ORACLE.items()),
]


def rounds(mutants: Mapping[str, list[Mutant]]) -> list[Round]:
    """The i-th mutant of every op that has one, for each i."""
    return [
        {op: mutant for op, mutant in zip(mutants, row, strict=True) if mutant is not None}
        for row in zip_longest(*mutants.values())
    ]


def with_mutant(source: Path, mutant: Mutant, known: Sequence[Mutant]) -> str:
    """Return the text of a file with one of its mutants."""
    return mutated(source.read_text(), mutant, variables_of(source), known)


@pytest.fixture
def survivors(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Survivors:
    """Return a function that returns the clauses that tested a round by those of their `cases`, and passed."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")])))

    def run(replaced: Mapping[str, Path], mutants: Round, folder: Path, cases: str = "*") -> list[str]:
        monkeypatch.chdir(folder)
        monkeypatch.setenv("VERISPEC_MUTANT", ";".join(f"{name}={path}" for name, path in replaced.items()))
        only = [f"--only=sampler/{op}:{mutant[0]}:{cases}" for op, mutant in mutants.items()]
        out = folder / "run.jsonl"
        # The seed of a day would let the result of a test depend on the date.
        result = command(capsys, "run", f"--seed={SEED}", "--engine", "mutant_engine:engine", f"--out={out}", *only)
        assert result.returncode in (0, 1), result.stdout + result.stderr
        lines = [line for line in map(json.loads, out.read_text().splitlines()) if line["type"] == "case"]
        failed = {tuple(c["id"].split(":")[:2]) for c in lines if c["outcome"] in ("fail", "crash", "timeout")}
        return [mutant[0] for op, mutant in mutants.items() if (f"sampler/{op}", mutant[0]) not in failed]

    return run


@pytest.mark.parametrize("mutants", rounds(ORACLE), ids=lambda m: next(iter(m.values()))[0])
def test_a_fault_in_an_oracle_is_caught(mutants: Round, survivors: Survivors, tmp_path: Path) -> None:
    replaced = {}
    for op, mutant in mutants.items():
        path = tmp_path / f"{op}.py"
        path.write_text(with_mutant(ROOT / "reference/oracle" / path.name, mutant, ORACLE[op]))
        replaced[f"verispec.reference.oracle.{op}"] = path
    alive = survivors(replaced, mutants, tmp_path, NOT_GENERATED)
    left = {op: mutant for op, mutant in mutants.items() if mutant[0] in alive}
    (tmp_path / "all").mkdir()
    assert not left or not survivors(replaced, left, tmp_path / "all")


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the kernels, with a build folder that rounds share; unoptimised, since that compiles faster."""
    folder = tmp_path_factory.mktemp("kernels")
    shutil.copytree(ROOT / "reference/csrc", folder / "reference/csrc")
    shutil.copy(ROOT / "CMakeLists.txt", folder)
    cmake(folder, "-S", ".", "-B", "build", f"-DPython_EXECUTABLE={sys.executable}", "-DCMAKE_BUILD_TYPE=Debug")
    return folder


def cmake(folder: Path, *arguments: str) -> None:
    done = subprocess.run(["cmake", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("mutants", rounds(CSRC), ids=lambda m: next(iter(m.values()))[0])
def test_a_fault_in_a_kernel_is_caught(mutants: Round, survivors: Survivors, tree: Path, tmp_path: Path) -> None:
    for op, known in CSRC.items():
        source = ROOT / f"reference/csrc/{op}.cpp"
        text = with_mutant(source, mutants[op], known) if op in mutants else source.read_text()
        copy = tree / "reference/csrc" / source.name
        if copy.read_text() != text:
            copy.write_text(text)
    cmake(tree, "--build", "build")
    (extension,) = (tree / "reference").glob("_csrc*.so")
    assert not survivors({"verispec.reference._csrc": extension}, mutants, tmp_path)


@pytest.mark.parametrize("op", CSRC)
def test_every_clause_has_a_mutant(op: str) -> None:
    assert {mutant[0] for mutant in CSRC[op]} == {clause.id for clause in contracts.load(op).clauses}


@pytest.mark.parametrize(("path", "mutants"), FILES, ids=lambda value: getattr(value, "name", ""))
def test_every_mutant_has_a_place(path: Path, mutants: list[Mutant]) -> None:
    for mutant in mutants:
        assert tokens(with_mutant(path, mutant, mutants)) != tokens(path.read_text())
        if path.suffix == ".py":
            ast.parse(with_mutant(path, mutant, mutants))


@pytest.mark.parametrize(("path", "mutants"), FILES, ids=lambda value: getattr(value, "name", ""))
def test_names_of_variables_do_not_matter(path: Path, mutants: list[Mutant]) -> None:
    """Every variable of a file gets another name: each mutant stays at its place, under the new names."""
    text, listed = path.read_text(), variables_of(path)
    names = {name: f"{name}_anew" for name in listed(text)}
    other = renamed(text, listed(text), names)
    assert listed(other) == frozenset(names.values())
    for mutant in mutants:
        expected = renamed(with_mutant(path, mutant, mutants), listed(text), names)
        assert [t.text for t in tokens(mutated(other, mutant, listed, mutants))] == [t.text for t in tokens(expected)]


def test_a_place_must_be_certain() -> None:
    source = "void f() { int64_t a = 0; int64_t b = 0; }"
    listed = variables_of(ROOT / "reference/csrc/expand_batch_to_tokens.cpp")
    with pytest.raises(AssertionError, match="2 x"):
        mutated(source, Mutant("X-1", "int64_t a = 0;", "int64_t a = 1;"), listed)
    with pytest.raises(AssertionError, match="no place"):
        mutated(source, Mutant("X-1", "int64_t a = 2;", "int64_t a = 1;"), listed)
    assert "b = 1" in mutated(source, Mutant("X-1", "int64_t a = 0;", "int64_t a = 1;", 1), listed)
