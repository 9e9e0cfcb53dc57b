"""The protocol of a tree, which folders, git revisions, archives and releases implement."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol

from verispec.errors import Diagnostic

_TESTS: Final = frozenset({"test", "tests", "testing", "benchmark", "benchmarks", "example", "examples", "docs"})


def is_test(path: str) -> bool:
    """Return True if `path` is a test, a benchmark or an example, where a wrong call may be intended."""
    parts = path.split("/")
    return not _TESTS.isdisjoint(parts[:-1]) or parts[-1].startswith("test_") or parts[-1] == "conftest.py"


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file: its posix path in the tree, a name for its content, and how to read it.

    Equal `blob` means equal content, in whatever tree; an empty `blob` says that nothing is known and the
    file is read every time. `size` is in bytes, -1 when unknown.
    """

    path: str
    blob: str
    read: Callable[[], bytes]
    size: int = -1


def content_of(file: SourceFile) -> bytes | None:
    """Return the content of a file; None if it cannot be read, which the check of its tree reports."""
    try:
        return file.read()
    except OSError:
        return None


class Tree(Protocol):
    """A source tree that is only ever read."""

    @property
    def diagnostics(self) -> Iterable[Diagnostic]:
        """Return the problems so far, from opening and listing the tree."""
        ...

    def describe(self) -> str:
        """Return the tree in a few words, e.g. ``vllm==0.20.0`` or ``checkout at 1a2b3c4``."""
        ...

    def files(self) -> Iterable[SourceFile]:
        """Return every regular file that may hold source, in any order."""
        ...


@dataclass(frozen=True, slots=True)
class ListedTree:
    """A tree whose files are known once it is open; `name` describes it."""

    name: str
    listed: tuple[SourceFile, ...]
    diagnostics: tuple[Diagnostic, ...]

    def describe(self) -> str:
        """Return the name that the tree was opened with."""
        return self.name

    def files(self) -> tuple[SourceFile, ...]:
        """Return the listed files."""
        return self.listed


@dataclass(frozen=True, slots=True)
class MemoryTree:
    """A tree that is a mapping of paths to text or bytes; for tests and for callers that hold source in memory."""

    sources: dict[str, str | bytes]
    diagnostics: tuple[Diagnostic, ...] = ()

    def describe(self) -> str:
        """Return "memory"."""
        return "memory"

    def files(self) -> Iterable[SourceFile]:
        """Yield the sources as files."""
        for path, source in self.sources.items():
            data = source.encode() if isinstance(source, str) else source
            yield SourceFile(path, "", partial(bytes, data), len(data))


def beside(host: Tree, tree: Tree) -> Tree:
    """Return `host` with the files that `tree` has at the same path under a path of their own: ``./path``."""
    own = {file.path for file in tree.files()}
    listed = (replace(file, path=f"./{file.path}") if file.path in own else file for file in host.files())
    return ListedTree(host.describe(), tuple(listed), ())
