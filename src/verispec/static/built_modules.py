"""Modules that a build makes: they are not in the tree, and its build files name the place where they will be."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Final

from verispec.static.tree import Tree

_CMAKE: Final = re.compile(r"(?:^|/)CMakeLists\.txt$|\.cmake$")
_SCRIPT: Final = re.compile(r"^(?:[^/]+/)?(?:setup|build|\w+_build|build_\w+)\.py$")
_IGNORED: Final = re.compile(r"(?:^|/)\.gitignore$")


class BuiltModules:
    """The modules that the build of `tree` makes: CMake or a build script names them, or git ignores them."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    def holds(self, module: str) -> bool:
        """Return True if the build makes the dotted `module`, or a package around it."""
        parts = module.split(".")
        known = 0
        while known < len(parts) and "/".join(parts[: known + 1]) in self._folders:
            known += 1
        # Only the first part that is missing counts: build files name many packages that are there.
        made = parts[: known + 1]
        if len(made) < 2:
            return False
        # So are compiled modules and those of protocol buffers named, and a build script may find them by itself.
        if re.match(r"_[^_]|\w+_pb2(?:_grpc)?$", made[-1]):
            return True
        path = "/".join(made)
        # A build may stand in any folder above the package.
        last = made[-2:]
        named = re.compile(rf"(?<!\w){last[0]}[./]{last[1]}(?!\w)")
        ends = "|".join(re.escape("/".join(made[first:-1])) for first in range(len(made) - 1))
        placed = re.compile(rf"DESTINATION\s+\"?(?:{ends})/?\"?\s")
        if any(named.search(text) or placed.search(text) for text in self._texts):
            return True
        return any(_covers(pattern, f"{path}.py") or _covers(pattern, path) for pattern in self._patterns)

    @cached_property
    def _folders(self) -> set[str]:
        """The folders of the packages, below `src` or `python` too."""
        found: set[str] = set()
        for file in self.tree.files():
            folder = file.path.rpartition("/")[0] if file.path.endswith(".py") else ""
            while folder:
                found.update((folder, re.sub(r"^(?:src|python)/", "", folder)))
                folder = folder.rpartition("/")[0]
        return found

    @cached_property
    def _texts(self) -> list[str]:
        return list(self._read(_CMAKE)) + list(self._read(_SCRIPT))

    @cached_property
    def _patterns(self) -> list[str]:
        lines = (line.strip() for text in self._read(_IGNORED) for line in text.splitlines())
        return [line for line in lines if line and line[0] not in "#!"]

    def _read(self, wanted: re.Pattern[str]) -> Iterator[str]:
        for file in self.tree.files():
            if wanted.search(file.path):
                yield file.read().decode("utf-8", "replace")


def _covers(pattern: str, path: str) -> bool:
    """Return True if a line of .gitignore covers `path`; names without a folder count for Python files alone."""
    pattern = re.sub(r"^(?:\*\*/|/)?(?:src/|python/)?", "", pattern)
    if "/" in pattern.rstrip("/"):
        return fnmatchcase(path, pattern.rstrip("/"))
    return pattern.endswith(".py") and fnmatchcase(path.rpartition("/")[2], pattern)
