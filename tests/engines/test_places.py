"""File and line of kernels and callers, which a report shows beside a cause."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from verispec import pytest_plugin
from verispec.engines import Unsupported
from verispec.engines.protocol.source_places import KERNEL, ORIGIN, place_of, place_of_line, places
from verispec.reference import contracts
from verispec.reference.contracts import Clause, Origin

SOURCE = """
def kernel(x):
    return x


def caller(x):
    return kernel(x)


class Runner:
    def step(self, x):
        y = [-1] * x
        return caller(y)

    def other(self, x):
        return [-1]
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    (tmp_path / "pkg_of_places").mkdir()
    (tmp_path / "pkg_of_places" / "kernels.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("pkg_of_places.kernels")
    for name in ("pkg_of_places.kernels", "pkg_of_places"):
        del sys.modules[name]


def wrapped(function: Any) -> Any:
    @functools.wraps(function)
    def outer(x: Any) -> Any:
        return function(x)

    return outer


@pytest.mark.parametrize("around", [lambda f: f, wrapped, functools.partial, lambda f: SimpleNamespace(fn=f)])
def test_a_place_is_that_of_the_function_inside(module: ModuleType, around: Any) -> None:
    assert place_of(around(module.caller)) == "pkg_of_places/kernels.py:6"


@pytest.mark.parametrize("function", [len, None, place_of, "text"])
def test_code_without_a_file_and_verispec_s_own_have_no_place(function: Any) -> None:
    assert place_of(function) == ""


def test_an_engine_says_it_or_its_function_does(module: ModuleType) -> None:
    plain = SimpleNamespace(op=lambda name: module.kernel)
    assert places(plain, "philox") == {KERNEL: "pkg_of_places/kernels.py:2"}  # type: ignore[arg-type]
    knowing = SimpleNamespace(places=lambda name: {KERNEL: f"{name}.py:1", "caller": ""})
    assert places(knowing, "philox") == {KERNEL: "philox.py:1"}  # type: ignore[arg-type]


def test_an_engine_without_the_op_or_that_raises_has_none() -> None:
    def raising(name: str) -> Any:
        raise KeyError(name)

    assert places(SimpleNamespace(op=lambda name: Unsupported("no")), "philox") == {}  # type: ignore[arg-type]
    assert places(SimpleNamespace(op=raising), "philox") == {}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("function", "line", "place"),
    [
        ("caller", "return kernel(", "pkg_of_places/kernels.py:7"),
        ("caller", "return x", ""),
        ("Runner.step", "[-1]", "pkg_of_places/kernels.py:12"),
        ("Runner.other", "[-1]", "pkg_of_places/kernels.py:16"),
        ("Runner.missing", "[-1]", ""),
        ("Missing.step", "[-1]", ""),
    ],
)
def test_a_line_is_found_in_its_own_function_alone(module: ModuleType, function: str, line: str, place: str) -> None:
    assert place_of_line(Origin(f"pkg_of_places.kernels.{function}", line)) == place


@pytest.mark.parametrize("function", ["pkg_not_loaded.kernels.caller", "pkg_of_places.others.caller", "pkg_of_places"])
def test_a_line_of_a_module_that_is_not_there_has_no_place(module: ModuleType, function: str) -> None:
    assert place_of_line(Origin(function, "return")) == ""


def test_the_line_of_a_trigger_stands_beside_the_places_of_its_op(module: ModuleType) -> None:
    knowing = SimpleNamespace(places=lambda name: {KERNEL: "k.py:1"})
    origin = Origin("pkg_of_places.kernels.caller", "return kernel(")
    expected = {KERNEL: "k.py:1", ORIGIN: "pkg_of_places/kernels.py:7"}
    assert places(knowing, "philox", origin) == expected  # type: ignore[arg-type]
    unknown = Origin("pkg_of_places.kernels.caller", "return nothing")
    assert places(knowing, "philox", unknown) == {KERNEL: "k.py:1"}  # type: ignore[arg-type]


def test_a_failing_case_records_the_line_of_its_clause(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    origin = Origin("pkg_of_places.kernels.caller", "return kernel(")
    clause = Clause("EXP-2", "A rule.", "a source", origin=origin)
    monkeypatch.setattr(contracts, "clause_of", {"EXP-2": clause}.get)
    monkeypatch.setattr(pytest_plugin, "contract_of", lambda item: "expand_batch_to_tokens")
    engine = SimpleNamespace(places=lambda name: {KERNEL: f"{name}.py:1"})
    expected = {KERNEL: "expand_batch_to_tokens.py:1"}
    for name, found in (("EXP-2", expected | {ORIGIN: "pkg_of_places/kernels.py:7"}), ("MINE-1", expected)):
        stash = {pytest_plugin.SPEC: SimpleNamespace(clause=name)}
        item: Any = SimpleNamespace(stash=stash, config=SimpleNamespace(stash={pytest_plugin.ENGINE: engine}))
        assert pytest_plugin._places(item) == found
