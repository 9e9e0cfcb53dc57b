"""Shared parts of all sources: source file names, names of contents, and displayed paths."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from typing import Final

from verispec.errors import Diagnostic
from verispec.static.facts import CPP, PYTHON
from verispec.static.tree import is_test

SUFFIXES = (".py", ".c", ".cc", ".cpp", ".cxx", ".cu", ".cuh", ".h", ".hh", ".hpp", ".hxx", ".hip", ".inl", ".mm")
"""Files that the gate reads: Python, and the languages that a TORCH_LIBRARY block is written in."""

_BUILD: Final = (".cmake", "cmakelists.txt", ".gitignore")
"""Files that tell which modules a build makes."""

MAX_FILE = 16 * 2**20
"""Bytes. The largest source file of vLLM 0.33.0 is under 1 MB; larger files are generated or adversarial."""

MAX_FILES = 200_000

INCOMPLETE = frozenset({"V-SRC-BOMB", "V-SRC-BROKEN-ARCHIVE", "V-SRC-TOO-MANY", "V-SRC-UNREADABLE", "V-SRC-CRASH"})
"""Diagnostics after which a tree without findings is not known to be good."""

UNCHECKED = frozenset({"V-SRC-UNPARSABLE", "V-SRC-DEEP", "V-SRC-HUGE", "V-SRC-TOO-LARGE", "V-SRC-OUTSIDE"})
"""Diagnostics of files that were not checked; readers report the first three only for files that take part."""

_MORE = re.compile(r" and \d+ more$")


def is_incomplete(diagnostic: Diagnostic) -> bool:
    """Return True if a finding may be missing because of `diagnostic`. Tests never decide the exit code."""
    if diagnostic.code not in UNCHECKED:
        return diagnostic.code in INCOMPLETE
    listed = _MORE.sub("", diagnostic.where)
    return listed != diagnostic.where or any(
        path.endswith((*PYTHON, *CPP)) and not is_test(path) for path in listed.split(", ")
    )


_ELSEWHERE = re.compile(r"(?:\A|/)(?:\.(?!\.?/)[^/]*|__pycache__|node_modules|site-packages)/")
"""A folder that holds other people's code, or none: hidden, cached and installed things."""


def is_elsewhere(folder: str) -> bool:
    """Return True if a folder of the name `folder` is omitted."""
    return _ELSEWHERE.match(f"{folder}/") is not None


def may_hold_source(path: str) -> bool:
    """Return True if `path` has the ending of a source file and lies in no folder of other files."""
    return path.lower().endswith((*SUFFIXES, *_BUILD)) and _ELSEWHERE.search(path) is None


def blob_id(data: bytes) -> str:
    """Return Git's name for the content `data`, under which folders, archives and revisions share summaries."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def shown(path: str | bytes) -> str:
    """Return `path` with every byte that is not UTF-8 escaped, so that it can be printed and written as JSON."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def is_shown_whole(path: str | bytes) -> bool:
    """Return True if `shown` escapes nothing in `path`."""
    try:
        os.fsencode(path).decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def several(code: str, message: str, paths: Iterable[str], *, cause: str = "", hint: str = "") -> list[Diagnostic]:
    """Return one diagnostic for all of `paths`, or none.

    Args:
        code: code of the diagnostic.
        message: text with a place for the number of paths.
        paths: paths in any order.
        cause: cause of the diagnostic.
        hint: hint of the diagnostic.
    """
    found = sorted(paths)
    if not found:
        return []
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    number = "1 file" if len(found) == 1 else f"{len(found)} files"
    return [Diagnostic(code, message.format(number), ", ".join(found[:3]) + more, cause, hint)]


def skipped(
    *,
    links: Iterable[str] = (),
    nested: Iterable[str] = (),
    too_large: Iterable[str] = (),
    unreadable: Iterable[str] = (),
    odd_names: Iterable[str] = (),
    outside: Iterable[str] = (),
) -> list[Diagnostic]:
    """Return a source's diagnostics about the entries that it skipped.

    Args:
        links: paths of symbolic links.
        nested: paths of nested repositories.
        too_large: paths of files over the limit.
        unreadable: paths of files that cannot be read.
        odd_names: paths with bytes that are not UTF-8.
        outside: paths that lead out of the tree.
    """
    return [
        *several(
            "V-SRC-LINK",
            "{}: a symbolic or hard link is not followed",
            links,
            cause="a link may lead out of the tree or round in a circle",
            hint="check the tree that it points to by itself",
        ),
        *several(
            "V-SRC-SUBMODULE",
            "{}: a submodule or nested repository is not part of this tree",
            nested,
            hint="check its own checkout, or give this tree to it with --core",
        ),
        *several(
            "V-SRC-TOO-LARGE",
            f"{{}} of more than {MAX_FILE // 2**20} MiB left out",
            too_large,
            cause="source is never that large; generated or hostile files are",
        ),
        *several(
            "V-SRC-UNREADABLE",
            "{} cannot be read",
            unreadable,
            cause="missing permission, an object that the repository lacks, or a file that vanished meanwhile",
            hint="make them readable; findings may be missing until then",
        ),
        *several(
            "V-SRC-NAME",
            "{}: the name is not UTF-8 and is shown with escapes",
            odd_names,
        ),
        *several(
            "V-SRC-OUTSIDE",
            "{}: the name leads out of the archive",
            outside,
            cause="absolute names and names with .. are a known way to overwrite files on unpacking",
            hint="nothing was unpacked; treat this archive as hostile",
        ),
    ]
