"""Leave folders and files of a tree out of a check: vendored sources, generated files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from verispec.errors import Diagnostic
from verispec.static.tree import SourceFile, Tree


@dataclass(frozen=True, slots=True)
class PartialTree:
    """A tree without the files and folders that match one of `patterns`, such as ``3rdparty`` or ``*/vendor/*``."""

    tree: Tree
    patterns: tuple[str, ...]

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Diagnostics of the included files, and one per pattern that matches no file."""
        problems = [problem for problem in self.tree.diagnostics if not self._excludes_all(problem.where)]
        paths = [file.path for file in self.tree.files()]
        unread = [path for problem in self.tree.diagnostics for path in problem.where.split(", ")]
        unused = [
            Diagnostic(
                "V-EXCLUDE-UNUSED",
                "--exclude matches no file",
                pattern,
                hint="patterns match paths relative to the tree: 3rdparty, src/*/vendor, *.generated.py",
            )
            for pattern in self.patterns
            if not any(matches(path, pattern) for path in [*paths, *unread])
        ]
        return (*problems, *unused)

    def describe(self) -> str:
        """Return the description of the whole tree."""
        return self.tree.describe()

    def files(self) -> Iterable[SourceFile]:
        """Return the files that no pattern excludes."""
        return [file for file in self.tree.files() if not self._excludes(file.path)]

    def _excludes(self, path: str) -> bool:
        return any(matches(path, pattern) for pattern in self.patterns)

    def _excludes_all(self, where: str) -> bool:
        return bool(where) and all(self._excludes(path) for path in where.split(", "))


def matches(path: str, pattern: str) -> bool:
    """Return True if `pattern` matches `path` or a folder that contains it."""
    pattern = pattern.strip("/").removeprefix("./")
    parts = path.split("/")
    return any(fnmatchcase("/".join(parts[:depth]), pattern) for depth in range(1, len(parts) + 1))


def without(tree: Tree, patterns: Sequence[str]) -> Tree:
    """Return `tree` without what `patterns` match."""
    return PartialTree(tree, tuple(patterns)) if patterns else tree
