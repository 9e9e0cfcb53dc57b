"""Mutants of Python files in processes of their own."""

import importlib
import inspect
import multiprocessing
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from verispec.mutants import activation, layers, operators_python
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
    # A test before may have imported a package of the same name from another folder.
    for name in [name for name in sys.modules if name.partition(".")[0] == "mutated_package"]:
        monkeypatch.delitem(sys.modules, name)
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


def reach(active: activation.Activation, modules: list[str], answers: Any) -> None:
    """Report the statements that one call of each module reaches."""
    active.cover()
    for module in modules:
        importlib.import_module(f"{module}.op").limit(8)
        answers.put(active.reached())


def test_compiled_kernels_record_no_statements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU runs them, which cannot tell the host; host code of other files does."""
    package = tmp_path / "device_package"
    package.mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    kernels = "import triton\n\n\n@triton.jit\ndef kernel(x):\n    return x + 1\n"
    for name, text in (("__init__.py", ""), ("kernels.py", kernels), ("op.py", SOURCE)):
        (package / name).write_text(text)
    layer = Layer("device", "", package.name, ("sampler",))
    for on_device, files in ((True, {"op.py"}), (False, {"op.py", "kernels.py"})):
        folder = tmp_path / str(on_device)
        monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
        activation.make(layer, None, 0, folder, on_device=on_device).cover()
        assert {path.name for path in folder.rglob("*.py")} == files


def test_layers_of_one_engine_are_measured_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A baseline of one layer says which cases reach the mutants of the other."""
    made = {}
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("first", "second"):
        package = tmp_path / f"{name}_package"
        package.mkdir()
        (package / "__init__.py").touch()
        (package / "op.py").write_text(SOURCE)
        made[name] = Layer(name, "", package.name, ("e2e",))
    monkeypatch.setattr(layers, "LAYERS", {**made, "alone": Layer("alone", "", "first_package", ("sampler",))})
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    first, second = (activation.make(layer, None, 0, tmp_path / "sources") for layer in made.values())
    process = context.Process(target=reach, args=(first, ["first_package", "second_package"], answers))
    process.start()
    reached = [answers.get(timeout=120) for _ in made]
    process.join()
    mutants = [Mutant(name, "op.py", 2, 0, "", "", "", "", 0) for name in made]
    keys = [active.keys(mutant) for active, mutant in zip((first, second), mutants, strict=True)]
    assert keys[0] <= reached[0]
    assert keys[1] <= reached[1]
    assert not keys[0] & keys[1]
    assert layers.measured_together(layers.LAYERS["alone"]) == [layers.LAYERS["alone"]]


OFTEN = """def limit(x):
    found = [i + 1 for i in range(3 * x)]
    while x < 30:
        x += 1
    return found, x + 2
"""


def test_a_later_evaluation_needs_no_later_statement(layer: Layer, tmp_path: Path) -> None:
    """Faults from the 20th evaluation on act in one call, in a comprehension and in the test of a loop."""
    (layer.folder / "op.py").write_text(OFTEN)
    context = multiprocessing.get_context("fork")
    active, answers = activation.make(layer, None, 0, tmp_path / "sources"), context.Queue()
    process = context.Process(target=reach, args=(active, ["mutated_package"], answers))
    process.start()
    reached = answers.get(timeout=120)
    process.join()
    later = {
        fault.before: active.keys(Mutant("oracle", "op.py", 2, 0, "", "", "", "", number, (), "repeated")) <= reached
        for number, fault in enumerate(operators_python.faults(OFTEN))
        if fault.is_expression
    }
    assert later["i + 1"]
    assert later["x < 30"]
    assert not later["x + 2"]


KERNEL = """class Kernel:
    def __init__(self, fn):
        self.fn = fn


@Kernel
def limit(x):
    return x + 1
"""


def source_after(active: activation.Activation, mutant: Mutant, answers: Any) -> None:
    """Report what a kernel that is imported already computes, and its source, as Triton's interpreter reads it."""
    kernel = importlib.import_module("mutated_package.op").limit
    active.activate(mutant)
    answers.put((kernel.fn(8), inspect.getsource(kernel.fn)))


def test_a_kernel_that_is_imported_already_is_mutated(layer: Layer, tmp_path: Path) -> None:
    """It kept its own source, so that no mutant of a Triton kernel acted in the interpreter."""
    (layer.folder / "op.py").write_text(KERNEL)
    found = operators_python.faults(KERNEL)
    number = next(n for n, fault in enumerate(found) if (fault.before, fault.after) == ("x + 1", "x - 1"))
    mutant = Mutant("oracle", "op.py", found[number].line, 0, "", "", "", "", number)
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    process = context.Process(
        target=source_after, args=(activation.make(layer, None, 0, tmp_path / "sources"), mutant, answers)
    )
    process.start()
    value, source = answers.get(timeout=120)
    process.join()
    assert value == 7
    assert "x - 1" in source


CONSTANTS = """import triton.language as tl

STATE: tl.constexpr = tl.constexpr(1)
SPLITS = {"few": 4}
TILE = 2
"""
SAME_VALUES = """import triton.language as tl

STATE: tl.constexpr = tl.constexpr(1)
SPLITS = {"few": 4}
"""


def constants_after(active: activation.Activation, mutants: list[Mutant], answers: Any) -> None:
    """Report the constants of a module, of one that imports them, and of one with others of the same names."""
    names = [importlib.import_module(f"mutated_package.{name}") for name in ("op", "importer", "same")]
    for mutant in mutants:
        active.activate(mutant)
        answers.put([(module.STATE.value, module.SPLITS["few"]) for module in names] + [names[1].TILE])


def test_constants_of_imported_modules_are_mutated(layer: Layer, tmp_path: Path) -> None:
    """Constants of Triton kernels kept their value, so that none of their mutants acted."""
    pytest.importorskip("triton")
    (layer.folder / "op.py").write_text(CONSTANTS)
    (layer.folder / "importer.py").write_text("from mutated_package.op import SPLITS, STATE, TILE\n")
    (layer.folder / "same.py").write_text(SAME_VALUES)
    found = [(fault.before, fault.after) for fault in operators_python.faults(CONSTANTS)]
    plain = Mutant("oracle", "op.py", 3, 0, "", "", "", "", 0)
    mutants = [replace(plain, number=found.index(fault)) for fault in (("1", "2"), ("4", "5"), ("2", "3"))]
    context = multiprocessing.get_context("fork")
    active, answers = activation.make(layer, None, 0, tmp_path / "sources"), context.Queue()
    process = context.Process(target=constants_after, args=(active, mutants, answers))
    process.start()
    got = [answers.get(timeout=120) for _ in mutants]
    process.join()
    # Each mutant takes back the one before.
    assert got == [[(2, 4), (2, 4), (1, 4), 2], [(1, 5), (1, 5), (1, 4), 2], [(1, 4), (1, 4), (1, 4), 3]]
