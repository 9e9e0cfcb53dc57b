"""The folders of a tree from which its packages are imported: the top, `src`, and others such as `python`."""

from __future__ import annotations

import re
from typing import Final

from verispec.static.tree import SourceFile, Tree, is_test

_DEEPEST: Final = 3
"""Folders around a package that may be a root: ``packages/name/src``."""


def import_roots(tree: Tree) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return the folders below the top that hold packages, and the names that all roots provide.

    A folder counts if its files import its packages by their own names. Another one is a package without
    an ``__init__.py``, whose name stands before those of the packages in it.
    """
    files = [file for file in tree.files() if file.path.endswith(".py") and not is_test(file.path)]
    packages = {file.path.removesuffix("/__init__.py") for file in files if file.path.endswith("/__init__.py")}
    names = {file.path.partition("/")[0].removesuffix(".py") for file in files}
    roots = ["src"]
    for folder in sorted({package.rpartition("/")[0] for package in packages} - packages - {"", "src"}):
        inner = {package.rpartition("/")[2] for package in packages if package.rpartition("/")[0] == folder}
        if folder.count("/") < _DEEPEST and not _is_in_package(folder, packages) and _imports(files, folder, inner):
            roots.append(folder)
    for root in roots:
        below = (file.path[len(root) + 1 :] for file in files if file.path.startswith(f"{root}/"))
        names |= {path.partition("/")[0].removesuffix(".py") for path in below}
    return tuple(roots), frozenset(names)


def _imports(files: list[SourceFile], folder: str, names: set[str]) -> bool:
    """Return True if more files in `folder` import one of `names` as a package of its own than as one of a package."""
    text = "|".join(re.escape(name) for name in sorted(names))
    around = re.escape(folder.rpartition("/")[2])
    own, inner = (
        re.compile(rf"(?m)^[ \t]*(?:from|import)[ \t]+{before}(?:{text})\b".encode()) for before in ("", rf"{around}\.")
    )
    sources = [file.read() for file in files if file.path.startswith(f"{folder}/")]
    return sum(map(bool, map(own.search, sources))) > sum(map(bool, map(inner.search, sources)))


def _is_in_package(folder: str, packages: set[str]) -> bool:
    while folder:
        if folder in packages:
            return True
        folder = folder.rpartition("/")[0]
    return False
