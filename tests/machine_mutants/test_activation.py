"""Mutants of Python files in processes of their own."""

import importlib
import multiprocessing
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from verispec.mutants import activation, operators_python
from verispec.mutants.layers import Layer
from verispec.mutants.model import Mutant

SOURCE = "def limit(x):\n    return x + 1\n"


@pytest.fixture
def layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Layer]:
    package = tmp_path / "mutated_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "op.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    yield Layer("oracle", "", "mutated_package", ())


def answer(active: activation.Activation, mutants: list[Mutant], at: int, barrier: Any, answers: Any) -> None:
    """Activate in every process first, import then, as engines do."""
    active.activate(mutants[at])
    barrier.wait(60)
    answers.put((at, importlib.import_module("mutated_package.op").limit(8)))


def test_concurrent_mutants_of_a_file_do_not_meet(layer: Layer, tmp_path: Path) -> None:
    """They shared a file, so that each process tested the mutant that was written last."""
    found = operators_python.faults(SOURCE)
    plain = Mutant("oracle", "op.py", 2, 0, "", "", "", "", 0)
    mutants = [replace(plain, number=i) for i, fault in enumerate(found) if fault.is_expression]
    active = activation.make(layer, None, 0, tmp_path / "sources")
    context = multiprocessing.get_context("fork")
    barrier, answers = context.Barrier(len(mutants)), context.Queue()
    processes = [
        context.Process(target=answer, args=(active, mutants, i, barrier, answers)) for i in range(len(mutants))
    ]
    for process in processes:
        process.start()
    got = dict(answers.get(timeout=120) for _ in processes)
    for process in processes:
        process.join()
    expected = {}
    for i, mutant in enumerate(mutants):
        scope: dict[str, Any] = {}
        source = operators_python.mutated(SOURCE, found[mutant.number])
        exec(compile(source, "op.py", "exec"), scope)
        expected[i] = scope["limit"](8)
    assert got == expected
    assert len(set(got.values())) > 2
