"""From the bytes of one file to its facts. Imported only where there is a file to read: parsers are slow to load."""

from __future__ import annotations

from verispec.static.facts import CPP, CRASHED, LARGEST, FileFacts, Outline
from verispec.static.ignores import read_ignores
from verispec.static.readers import cpp as cpp_reader
from verispec.static.readers import outline as outline_reader
from verispec.static.readers import prefilter
from verispec.static.readers import python as python_reader
from verispec.static.tree import is_test


def facts(
    path: str, data: bytes, *, deep: bool = False, calls: bool = False, known: FileFacts | None = None
) -> FileFacts:
    """Return the summary of one file, a pure function of its bytes, the ending of its name and whether it is a test.

    Never raises, neither for bad source nor for a fault of a reader: the problem is kept as (code, message, cause,
    hint).

    Args:
        path: path of the file; only its ending matters, and whether it is a test.
        data: content of the file.
        deep: True reads the syntax tree of a file that would not need one by itself.
        calls: True keeps the calls of plain functions and methods too, if there is a syntax tree; tests that replace
            something are parsed too.
        known: summary of the same content that was read less deeply, whose parts are not read again.
    """
    found = _read(path, data, deep=deep, calls=calls, known=known or FileFacts())
    ignores = read_ignores(data)
    return found._replace(ignores=ignores) if ignores else found


def _read(path: str, data: bytes, *, deep: bool, calls: bool, known: FileFacts) -> FileFacts:
    outline = known.outline
    try:
        if path.endswith(CPP):
            words = known.words or outline_reader.words(data)
            if not deep and not cpp_reader.registers(data):
                return FileFacts(words=words)
            if len(data) > LARGEST:
                return _too_long(data, words=words)
            return FileFacts(cpp=cpp_reader.read(data), words=words)
        outline = outline or outline_reader.outline(data)
        if not deep and not prefilter.defines(data):
            if not prefilter.patches(data):
                return FileFacts(outline)
            if is_test(path) and not calls:
                names = prefilter.patched(data)
                return FileFacts(outline, patches=outline.words if names is None else names)
        return _too_long(data, outline) if len(data) > LARGEST else _with_tree(data, outline, calls)
    except Exception as error:  # A fault of ours in one file must not end the run.
        return FileFacts(
            outline,
            problem=(CRASHED, "its reader failed", f"{type(error).__name__}: {error}",
                     "a fault of verispec: report it with this file; the other files were checked")
        )  # fmt: skip


def _too_long(data: bytes, outline: Outline | None = None, words: bytes = b"") -> FileFacts:
    return FileFacts(
        outline,
        words=words,
        problem=("V-SRC-HUGE", f"{len(data):,} bytes exceed the limit of {LARGEST:,}; the file was not parsed",
                 "generated source", "leave it out with --exclude, or split it"),
    )  # fmt: skip


def _with_tree(data: bytes, outline: Outline, calls: bool) -> FileFacts:
    try:
        tree = python_reader.parse(data)
    except (SyntaxError, ValueError) as error:
        line = f" in line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        return FileFacts(
            outline,
            problem=("V-SRC-UNPARSABLE", f"not valid Python{line}", reason or type(error).__name__,
                     "correct the file; its kernels and calls were not read"),
        )  # fmt: skip
    except (RecursionError, MemoryError):
        return _too_deep(outline)
    try:
        return FileFacts(outline, python_reader.read(tree, data, every_call=calls))
    except RecursionError:
        return _too_deep(outline)


def _too_deep(outline: Outline) -> FileFacts:
    return FileFacts(
        outline,
        problem=("V-SRC-DEEP", "nested too deeply to be parsed", "expressions inside each other without end",
                 "correct the file; its kernels and calls were not read"),
    )  # fmt: skip
