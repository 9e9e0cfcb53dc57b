"""--types: what a change breaks in plain Python, and harmless changes that must stay silent."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from toy_git import ToyRepository

from verispec import exits
from verispec.cli import main

pytest.importorskip("pyrefly", reason="the extra verispec[types] is not installed")

BEFORE = {
    "pkg/__init__.py": "",
    "pkg/base.py": """
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

class Mode(Enum):
    STRICT = 1
    FAST = 2

@dataclass
class Config:
    num_tokens: int
    method: str = "ngram"

class Row(NamedTuple):
    first: int
    last: int

class Proposer:
    def propose(self, ids: list[int], spec: int) -> list[int]:
        return ids[:spec]

    def is_greedy(self) -> bool:
        return True

def step(ids: list[int], *, seed: int = 0) -> list[int]:
    return ids

old_error = step([1], sead=2)
""",
    "pkg/use.py": """
from pkg import base
from pkg.base import Config, Mode, Proposer, Row, step

class NGram(Proposer):
    def propose(self, ids: list[int], spec: int) -> list[int]:
        return ids

def run(config: Config) -> list[int]:
    row = Row(first=1, last=2)
    mode = Mode.FAST
    ids = NGram().propose([row.first], config.num_tokens)
    greedy = NGram().is_greedy()
    return base.step(ids, seed=3)

def make() -> Config:
    return Config(num_tokens=3, method="eagle")
""",
}


def changed(path: str, *pairs: tuple[str, str]) -> dict[str, str | None]:
    text = BEFORE[path]
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return {path: text}


FAULTS = {
    "a method gains a parameter": changed("pkg/base.py", ("spec: int) ->", "spec: int, seed: int) ->")),
    "an override loses one": changed("pkg/use.py", ("ids: list[int], spec: int)", "ids: list[int])")),
    "a dataclass field is renamed": changed("pkg/base.py", ("num_tokens", "num_draft_tokens")),
    "a NamedTuple field is renamed": changed("pkg/base.py", ("last: int", "end: int")),
    "an enum member vanishes": changed("pkg/base.py", ("    FAST = 2\n", "")),
    "a keyword is renamed": changed("pkg/base.py", ("seed: int = 0", "sampling_seed: int = 0")),
    "a function is renamed": changed("pkg/base.py", ("step(", "advance(")),
    "a required parameter": changed("pkg/base.py", ("*, seed: int = 0", "width: int, *, seed: int = 0")),
    "a method becomes a property": changed("pkg/base.py", ("    def is_greedy", "    @property\n    def is_greedy")),
    "a module is renamed": {"pkg/base.py": None, "pkg/core.py": BEFORE["pkg/base.py"]},
}
HARMLESS = {
    "lines move": changed("pkg/base.py", ("\nclass Mode", "\n# a comment\n\nclass Mode")),
    "a default": changed("pkg/base.py", ("spec: int) ->", "spec: int, seed: int = 0) ->"))
    | changed("pkg/use.py", ("spec: int) ->", "spec: int, seed: int = 0) ->")),
    "a renaming on both sides": changed("pkg/base.py", ("num_tokens", "width"))
    | changed("pkg/use.py", ("num_tokens", "width")),
    "a module moves": {
        "pkg/base.py": None,
        "pkg/core.py": BEFORE["pkg/base.py"],
        "pkg/use.py": BEFORE["pkg/use.py"]
        .replace("pkg.base", "pkg.core")
        .replace("import base", "import core as base"),
    },
    "a new package": {"pkg/new.py": "import torch\nfrom vllm import LLM\nx = torch.zeros(2).sum()\n"},
    "annotations": changed("pkg/use.py", ("row = Row", "row: Row = Row")),
    "fields by the decorator of a package": {
        "pkg/new.py": """
from pydantic_of_nobody.dataclasses import dataclass

@dataclass
class Params:
    json_object: bool = False

params = Params(json_object=True)
"""
    },
    "a class that a subclass names": {
        "pkg/new.py": """
from typing import Generic, TypeVar

class Metadata:
    pass

T = TypeVar("T", bound=Metadata)

class Builder(Generic[T]):
    made: type[T]

    def build(self) -> T:
        return self.made(num_tokens=3)
"""
    },
}


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.setenv("VERISPEC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.chdir(tmp_path)
    toy = ToyRepository(tmp_path / "repo")
    toy.commit(BEFORE)

    def calling(change: dict[str, str | None], *words: str) -> tuple[int, Any]:
        toy.commit(change)
        with pytest.raises(SystemExit) as stopped:
            main(["signatures", "repo", "--since", "HEAD~1", "--types", "--json", *words])
        return int(stopped.value.code or 0), json.loads(capsys.readouterr().out)

    return calling


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault(check: Any, name: str) -> None:
    code, written = check(FAULTS[name])
    assert code == exits.BAD
    assert {finding["rule"] for finding in written["findings"]} <= {"SIG601", "SIG602", "SIG603", "SIG702", "SIG707"}
    assert any(finding["rule"].startswith("SIG6") for finding in written["findings"])
    assert all(finding["scope"].startswith("pkg.") for finding in written["findings"])


@pytest.mark.parametrize("name", HARMLESS)
def test_a_harmless_change(check: Any, name: str) -> None:
    code, written = check(HARMLESS[name])
    assert (code, written["findings"]) == (exits.GOOD, [])


def test_a_comment_silences_a_type_fault(check: Any) -> None:
    renamed = changed("pkg/base.py", ("seed: int = 0", "sampling_seed: int = 0"))
    call = "    return base.step(ids, seed=3)"
    comment = "  # verispec: ignore[SIG601] the alias comes with the next release"
    assert check(renamed | changed("pkg/use.py", (call, call + comment)))[0] == exits.GOOD


def test_types_need_something_to_compare_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["signatures", str(tmp_path), "--types"])
    assert stopped.value.code == exits.USAGE
    assert "V-TYPES-SINCE" in capsys.readouterr().err


GONE = changed("pkg/base.py", ("class Row(NamedTuple)", "class Rows(NamedTuple)"))
FUTURE = "from __future__ import annotations\n"
ROW = "    row = Row(first=1, last=2)\n"
USE = BEFORE["pkg/use.py"].replace(", Row, step", ", step").replace(ROW, "").replace("[row.first]", "[1]")
LATER = "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    from pkg.base import Row\n"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (LATER + USE, exits.GOOD),
        (FUTURE + LATER + USE + "\ndef last(row: Row) -> int:\n    return row.last\n", exits.GOOD),
        (FUTURE + USE + "\ndef last(row: base.Row) -> int:\n    return row.last\n", exits.GOOD),
        (USE + "\ndef last() -> int:\n    row: base.Row = None\n    return 1\n", exits.GOOD),
        (USE + "\ndef last(row: base.Row) -> int:\n    return row.last\n", exits.BAD),
        (FUTURE + USE + "\ndef last(row: int = base.Row(1, 2).last) -> int:\n    return row\n", exits.BAD),
        (FUTURE + USE + "\n@base.step\ndef last(row: base.Row) -> int:\n    return row.last\n", exits.BAD),
        (FUTURE + USE + "\nclass Last:\n    row: base.Row\n", exits.BAD),
        (USE + "from pkg.base import Row\n", exits.BAD),
    ],
)
def test_what_only_a_type_checker_reads(check: Any, text: str, code: int) -> None:
    """A name below TYPE_CHECKING, or in an annotation that stays text, does not fail when the code runs."""
    ended, written = check({**GONE, "pkg/use.py": text})
    assert ended == code
    assert {f["level"] for f in written["findings"] if f["rule"] == "SIG603"} == {
        "note" if code == exits.GOOD else "error"
    }


MADE = "from pkg.flash.cute import launch\n"


@pytest.mark.parametrize(
    ("files", "code"),
    [
        ({}, exits.BAD),
        ({"setup.py": 'COPIED = "pkg/flash/cute"\n'}, exits.GOOD),
        ({"setup.py": 'NAME = "pkg.flash.cute"\n'}, exits.GOOD),
        ({"setup.py": 'COPIED = "pkg/flash/cuter"\nPACKAGES = ["pkg/flash"]\n'}, exits.BAD),
        ({"cmake/flash.cmake": "install(DIRECTORY x/\n  DESTINATION pkg/flash\n)\n"}, exits.GOOD),
        ({"cmake/flash.cmake": "install(DIRECTORY x/\n  DESTINATION pkg\n)\n"}, exits.BAD),
        ({".gitignore": "# built\n/pkg/flash/*\n"}, exits.GOOD),
        ({".gitignore": "cute.py\n"}, exits.GOOD),
        ({".gitignore": "!pkg/flash/cute\nflash\n"}, exits.BAD),
    ],
)
def test_a_module_that_the_build_makes(check: Any, files: dict[str, str | None], code: int) -> None:
    """The build of vLLM copies vllm.vllm_flash_attn.cute into the package."""
    assert check({"pkg/flash/__init__.py": "", "pkg/new.py": MADE, **files})[0] == code


def test_a_module_that_was_there_is_gone(check: Any) -> None:
    """A build file that names it does not make it."""
    cute = {"pkg/flash/__init__.py": "", "pkg/flash/cute.py": "launch = 1\n", "pkg/new.py": MADE}
    assert check({**cute, "setup.py": 'DATA = "pkg/flash/cute.py"\n'})[0] == exits.GOOD
    assert check({"pkg/flash/cute.py": None})[0] == exits.BAD


MAKERS = (
    "class Base:\n    def __init__(self, size: int):\n        self.size = size\n\n\n"
    "class Fast(Base):\n    def __init__(self, size: int, width: int):\n        self.width = width\n\n\n"
)
GUESSES = {
    "an attribute that another class of the mixin sets": (
        "class Mixin:\n    def run(self):\n        return self.width\n\nclass Whole(Mixin):\n"
        "    def __init__(self):\n        self.width = 3\n"
    ),
    "an attribute of a class of another package": "import logging\n\nlogging.getLogger().warning_once('x')\n",
    "a private name of another package": "import copy\n\ncopy._deepcopy_dispatch[int] = None\n",
    "a result of another type": (
        "class Base:\n    def find(self, ids):\n        return None\n\n"
        "class Derived(Base):\n    def find(self, ids):\n        return [1]\n"
    ),
    "a method with more optional parameters": (
        "class Base:\n    def find(self, ids: int):\n        return 1\n\n"
        "class Derived(Base):\n    def find(self, ids: str, seed=0, *, mode=1):\n        return 1\n"
    ),
    "a class variable": "class Base:\n    mode: None = None\n\nclass Derived(Base):\n    mode: int = 3\n",
    "an open number of arguments": (
        "def four(a: int, b: int, c: int, d: str):\n    return a\n\n\n"
        "def run(x):\n    return four(*(int(i) for i in 'abc'), x)\n"
    ),
    "a function behind a decorator": (
        "def wrapping(mode: int):\n    def _decorate(function):\n        return function\n    return _decorate\n\n\n"
        "@wrapping\ndef serve(port: int, *, host: str):\n    return port\n\n\nserve(1, host='x')\n"
    ),
    "an attribute of what implements a protocol": (
        "from typing import Protocol\n\n\nclass Model(Protocol):\n    size: int\n\n\n"
        "def find(model: Model):\n    return model.get_submodule('x')\n"
    ),
    "an attribute of what a mixin is mixed into": (
        "import torch\n\n\nclass Mixin:\n    def find(self):\n        return self.get_submodule('x')\n\n\n"
        "class Model(Mixin, torch.nn.Module):\n    pass\n"
    ),
    "a constant that is final": (
        "from typing import Final\n\n\nclass Base:\n    ALL: Final[int] = 1\n\n\n"
        "class Derived(Base):\n    ALL: Final[int] = 2\n"
    ),
    "a protocol that lacks a keyword": (
        "from typing import Protocol\n\n\nclass Builder(Protocol):\n    def __call__(self, size: int) -> int: ...\n\n\n"
        "def make(builder: Builder):\n    return builder(3, group=1)\n"
    ),
    "the class in a variable": MAKERS
    + "def make(fast: bool):\n    chosen: type[Base] = Fast\n    return chosen(1, width=2)\n",
    "the class in a table": MAKERS + "TABLE: dict[str, type[Base]] = {}\nTABLE['fast'](1, width=2)\n",
    "an annotation with another number of values": (
        "def route(ids: list) -> tuple[int, int, str]:\n    return 1, 2\n\n\nfirst, second = route([])\n"
    ),
    "an argument of an open number": (
        "def both(one: int, two: int, group: int, op: int):\n    return one\n\n\n"
        "def run(x: list[int]):\n    return both(*x, 1, op=2)\n"
    ),
    "a class for a package that is missing": (
        "try:\n    from deep import Buffer\nexcept ImportError:\n    class Missing:\n        pass\n\n"
        "    Buffer = Missing\n\n\ndef run(x: Buffer):\n    return x.dispatch()\n\n\nMissing().dispatch()\n"
    ),
    "a name behind a star": "from pkg.ops import attend\n",
    "a compiled module": "from pkg._native import attend\n",
    "a module of a protocol buffer": "from pkg.service_pb2_grpc import Stub\n",
    "a module of an example": "from pkg.examples.args import add\n",
    "a name in a string": (
        "from pkg import base\n\n\n@base.step\ndef run(x: 'Nowhere | None') -> 'Elsewhere':\n    return x\n"
    ),
}


@pytest.mark.parametrize("name", GUESSES)
def test_code_that_a_type_checker_only_dislikes(check: Any, name: str) -> None:
    """Seven pairs of commits of other engines brought 140 such errors, and no name in them was removed."""
    ops = "from compiled_ops import *\n"
    code, written = check({"pkg/new.py": GUESSES[name], "pkg/examples/args.py": "add = 1\n", "pkg/ops.py": ops})
    levels = {f["level"] for f in written["findings"]} - {"note"}
    warned = {"a protocol that lacks a keyword", "the class in a variable", "the class in a table"}
    assert (code, levels) == (exits.GOOD, {"warning"} if name in warned else set())


@pytest.mark.parametrize(
    "text",
    [
        MAKERS + "Base(1, width=2)\n",
        MAKERS + "class Slow(Base):\n    pass\n\nSlow(1, width=2)\n",
        MAKERS + "class Slow(Base):\n    def __init__(self):\n        super().__init__(1, width=2)\n",
        MAKERS.replace("size: int):", "size: int):\n        type(self)(1, width=2)"),
        MAKERS + "Maker = Base\nMaker(1, width=2)\n",
        "def route(ids: list) -> tuple[int, int, str]:\n    return 1, 2, 'x'\n\n\nfirst, second = route([])\n",
        "from pkg.own import attend\n",
        "from pkg.service_pb3 import Stub\n",
        "class Missing:\n    pass\n\n\nMissing().dispatch()\n",
    ],
)
def test_code_that_cannot_run(check: Any, text: str) -> None:
    assert check({"pkg/new.py": text, "pkg/own.py": "from pkg.base import *\n"})[0] == exits.BAD


BUFFERS = """
class Pool:
    def __init__(self):
        {made}

    def read(self):
        return self.k_buffer
"""


@pytest.mark.parametrize(
    ("made", "code"),
    [
        ("for name in self.names():\n            setattr(self, name, 1)", exits.GOOD),
        ("setattr(self, 'v_buffer', 1)", exits.BAD),
    ],
)
def test_an_attribute_that_is_set_by_a_variable_name(check: Any, made: str, code: int) -> None:
    """A base class of TokenSpeed makes the buffers that its subclasses name in a table."""
    assert check({"pkg/new.py": BUFFERS.format(made="self.k_buffer = 1")})[0] == exits.GOOD
    assert check({"pkg/new.py": BUFFERS.format(made=made)})[0] == code


@pytest.mark.parametrize(
    ("base", "override", "code"),
    [
        ("self, ids", "self, ids, seed", exits.BAD),
        ("self, ids", "self", exits.BAD),
        ("self, ids, *, seed", "self, ids", exits.BAD),
        ("self, ids, seed=0", "self, ids, seed", exits.BAD),
        ("self, ids", "self, ids, *, seed", exits.BAD),
        ("self, ids, *, seed", "self, ids, *, seed, mode=1", exits.GOOD),
        ("self, ids", "self, *ids", exits.GOOD),
        ("self, *ids, **more", "self, ids, *, seed", exits.GOOD),
    ],
)
def test_an_override_is_compared_by_its_parameters(check: Any, base: str, override: str, code: int) -> None:
    assert check({"pkg/new.py": OVERRIDDEN.format("self, ids", "self, ids")})[0] == exits.GOOD
    assert check({"pkg/new.py": OVERRIDDEN.format(base, override)})[0] == code


OVERRIDDEN = """
class Base:
    def find({}):
        pass

class Other(Base):
    def find({}):
        pass
"""


@pytest.mark.parametrize("before", [OVERRIDDEN.format("self, ids", "self, ids"), ""])
def test_an_override_that_may_never_be_called_so(check: Any, before: str) -> None:
    """Nobody may pass what the base takes beside what it took, and a new class may have callers of its own."""
    check({"pkg/new.py": before})
    code, written = check({"pkg/new.py": OVERRIDDEN.format("self, ids, seed=0", "self, ids")})
    assert (code, [f["level"] for f in written["findings"]]) == (exits.GOOD, ["warning"])


LAYERS = """
class Full:
    def attend(self, x, cache{full}):
        return x

class Linear:
    def attend(self, x, cache, offset=0):
        return x

class Layer:
    def __init__(self, full: bool):
        self.attention = Full() if full else Linear()

    def run(self, x):
        return self.attention.attend(x, 1{call})
"""


def test_a_receiver_of_one_of_two_classes(check: Any) -> None:
    """The call is a warning while another class takes it, and an error if the change took the parameter away."""
    assert check({"pkg/new.py": LAYERS.format(full="", call="")})[0] == exits.GOOD
    code, written = check({"pkg/new.py": LAYERS.format(full="", call=", offset=1")})
    assert (code, [(f["rule"], f["level"]) for f in written["findings"]]) == (exits.GOOD, [("SIG601", "warning")])
    other = {"pkg/other.py": "class Full:\n    def attend(self, x, cache):\n        return x\n"}
    assert check({"pkg/new.py": LAYERS.format(full=", offset=0", call=", offset=1"), **other})[0] == exits.GOOD
    wide = {"pkg/other.py": other["pkg/other.py"].replace("cache", "cache, mask=None"), "pkg/new.py": None}
    assert check(wide)[0] == exits.GOOD
    assert check({"pkg/new.py": LAYERS.format(full="", call=", offset=1")})[0] == exits.GOOD
    assert check({"pkg/new.py": LAYERS.format(full=", offset=0", call=", offset=1")})[0] == exits.GOOD
    assert check({"pkg/new.py": LAYERS.format(full="", call=", offset=1")})[0] == exits.BAD
    assert check({"pkg/new.py": LAYERS.format(full="", call=", offset=1, mode=2")})[0] == exits.BAD


@pytest.mark.parametrize("below", ["", "src/", "python/"])
def test_a_package_below_another_folder(check: Any, below: str) -> None:
    """SGLang keeps its package in a folder that is none, and imports it by its name."""
    base = "from dataclasses import dataclass\n\n@dataclass\nclass Result:\n    ready: int = 0\n"
    use = "from eng.base import Result\n\n@dataclass\nclass More(Result):\n    actors: int = 0\n\nMore(ready=1)\n"
    files = {f"{below}eng/__init__.py": "", f"{below}eng/base.py": base}
    assert check({**files, f"{below}eng/use.py": "from dataclasses import dataclass\n" + use})[0] == exits.GOOD
    code, written = check({f"{below}eng/base.py": base.replace("ready", "is_ready")})
    assert (code, [f["rule"] for f in written["findings"]]) == (exits.BAD, ["SIG601"])


def test_a_placeholder_that_got_its_code(check: Any) -> None:
    """AReaL's engine had an empty method; the trainer calls that of the controller."""
    text = LAYERS.format(full=", *more, **other", call=", offset=1")
    empty = text.replace("        return x\n\nclass Linear", '        """Nothing yet."""\n\nclass Linear')
    assert empty != text
    assert check({"pkg/new.py": empty})[0] == exits.GOOD
    code, written = check({"pkg/new.py": LAYERS.format(full="", call=", offset=1")})
    assert (code, [f["level"] for f in written["findings"]]) == (exits.GOOD, ["warning"])
