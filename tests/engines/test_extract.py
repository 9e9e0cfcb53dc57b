"""Functions taken out of a tree: all that they need comes along, and what cannot come is named."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from verispec.engines.adapters.vllm.source.extract import CannotExtract, Extractor
from verispec.engines.adapters.vllm.source.tree import import_package

TREE = {
    "vllm/a.py": """
from __future__ import annotations

import math

from vllm.b import HALF as half_of, ABSENT
from vllm.missing import nothing
from .c import helper

LIMIT: int = 10
math.settings = None
UNUSED = 1 / 0


class Holder:
    SCALE = 3

    @staticmethod
    def scaled(x):
        return x * Holder.SCALE + Holder.other(x)

    @staticmethod
    def other(x):
        return helper(x)

    def bound(self):
        return self


def top(x: SomeType) -> OtherType:
    def inner(y):
        return min(y, LIMIT)

    return inner(math.floor(x) * half_of)


def local(x):
    from vllm.b import HALF

    return x * HALF


def needs_nothing(x):
    return nothing(x)


def unknown(x):
    return not_defined_here(x)
""",
    "vllm/b.py": "HALF = 2\n",
    "vllm/c.py": "from vllm.b import HALF\n\n\ndef helper(x):\n    return x + HALF\n",
    "vllm/broken.py": "def f(:\n",
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERISPEC_CACHE_DIR", str(tmp_path))
    for name in [name for name in sys.modules if name.startswith("verispec_extracted_")]:
        monkeypatch.delitem(sys.modules, name)


def run(dotted: str, *args: object) -> object:
    """Take `dotted` out of the tree and call it."""
    extractor = Extractor(TREE)
    module, name = extractor.take(dotted)
    found: object = import_package(extractor.files(), module)
    for part in name.split("."):
        found = getattr(found, part)
    assert callable(found)
    return found(*args)


def test_constants_imports_and_inner_functions_come_along() -> None:
    assert run("vllm.a.top", 3.7) == 6
    assert run("vllm.a.top", 30) == 10


def test_an_import_inside_a_function_is_followed() -> None:
    assert run("vllm.a.local", 4) == 8


def test_a_static_method_brings_what_it_uses_of_its_class() -> None:
    assert run("vllm.a.Holder.scaled", 5) == 15 + 7


def test_nothing_else_is_taken() -> None:
    extractor = Extractor(TREE)
    extractor.take("vllm.a.top")
    files = extractor.files()
    assert set(files) == {"vllm__a", "vllm__b"}
    assert "UNUSED" not in files["vllm__a"]
    assert "missing" not in files["vllm__a"]


@pytest.mark.parametrize(
    ("dotted", "reason"),
    [
        ("vllm.a.needs_nothing", "needs nothing from vllm.missing, which the tree does not have"),
        ("vllm.a.unknown", "uses not_defined_here, which it does not define"),
        ("vllm.a.absent", "has no absent"),
        ("vllm.nowhere.deep.f", "no module"),
        ("vllm.a.Holder.bound", "bound to its class"),
        ("vllm.a.Holder.gone", "has no Holder.gone"),
        ("vllm.broken.f", "broken.py:1 does not parse"),
    ],
)
def test_what_cannot_be_taken_is_named(dotted: str, reason: str) -> None:
    with pytest.raises(CannotExtract, match=reason):
        Extractor(TREE).take(dotted)


def test_the_same_content_is_the_same_package_and_a_damaged_cache_is_mended(tmp_path: Path) -> None:
    extractor = Extractor(TREE)
    module, _ = extractor.take("vllm.a.top")
    first = import_package(extractor.files(), module)
    file = Path(str(first.__file__))
    assert file.is_relative_to(tmp_path)
    file.write_text("raise SystemExit\n")
    assert import_package(extractor.files(), module) is first
    assert "def top" in file.read_text()
