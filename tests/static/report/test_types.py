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
    assert {finding["rule"] for finding in written["findings"]} <= {"SIG601", "SIG602", "SIG603", "SIG702"}
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
