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

from verispec.engines import Unsupported
from verispec.engines.protocol.places import KERNEL, place_of, places

SOURCE = """
def kernel(x):
    return x


def caller(x):
    return kernel(x)
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
