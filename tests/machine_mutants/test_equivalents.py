"""Entries of the reviewed list that no source has any more are found, so that none hides a mutant of other code."""

from __future__ import annotations

import ast
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest

from verispec.mutants import score
from verispec.mutants.layers import LAYERS
from verispec.mutants.score import Equivalent

CSRC = Path(__file__).parents[2] / "reference" / "csrc"
"""C++ sources are not installed."""


def sources(entry: Equivalent) -> list[Path]:
    """Return the files that an entry is about."""
    layer, _, name = entry.file.partition("/")
    if LAYERS[layer].is_cpp:
        return [path for path in CSRC.iterdir() if fnmatchcase(path.name, name)]
    folder = LAYERS[layer].folder
    return [path for path in LAYERS[layer].paths() if fnmatchcase(path.relative_to(folder).as_posix(), name)]


@cache
def read(path: Path) -> tuple[frozenset[str], str]:
    """Return the lines of a source without indents, and its code: as `ast` writes it for Python, whole for C++."""
    source = path.read_text(encoding="utf-8")
    code = " ".join(ast.unparse(ast.parse(source)).split()) if path.suffix == ".py" else source
    return frozenset(line.strip() for line in source.splitlines()), code


def is_there(entry: Equivalent, path: Path) -> bool:
    """Return True if a source has the entry's line, and for Python its function and its code before the fault."""
    lines, code = read(path)
    if entry.text and not any(matches(entry.text, line) for line in lines):
        return False
    before = entry.before.rstrip("*")
    return path.suffix != ".py" or (before in code and f"def {entry.function}" in code)


def matches(pattern: str, line: str) -> bool:
    return line.startswith(pattern[:-1]) if pattern.endswith("*") else line == pattern


@pytest.mark.parametrize("entry", score.reviewed(), ids=lambda entry: f"{entry.file}-{entry.text}{entry.before}"[:60])
def test_every_entry_is_about_code_that_exists(entry: Equivalent) -> None:
    assert any(is_there(entry, path) for path in sources(entry)), f"no source of {entry.file} has this code any more"
