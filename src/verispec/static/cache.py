"""Caches of the static checker: file summaries by content, and whole reports by everything that they depend on."""

from __future__ import annotations

import gc
import hashlib
import os
import pickle
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache, cached_property
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from verispec.static.facts import FileFacts
from verispec.static.forking import can_fork
from verispec.static.tree import SourceFile

_KEPT: Final = 8
_SPARE: Final = 4
"""Summaries in a file, per summary that the last check used. More would cost each run more than it saves."""

_PARALLEL_FROM: Final = 500
"""Summaries that take longer to write than a process takes to start."""


@contextmanager
def uncollected() -> Iterator[None]:
    """Run the block without garbage collection: it makes millions of small objects and no cycle worth finding."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            # What is there now is not looked through again: it lives on, or goes when its last reference does.
            gc.freeze()
            gc.enable()


class FactCache:
    """Facts by content, kept in one file between calls and in memory between trees.

    Pass one object to several calls of `judge` for many similar trees, as in a bisection.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._changed = False
        self._held = False
        self._used: set[str] = set()

    @cached_property
    def _facts(self) -> dict[str, FileFacts]:
        """The contents of the file, read at the first access: many megabytes."""
        if self.path is None or not self.path.is_file():
            return {}
        try:
            with uncollected(), self.path.open("rb") as file:
                stored = pickle.load(file) if pickle.load(file) == readers_digest() else {}
        except Exception:  # A damaged cache is an empty cache, whatever the damage.
            return {}
        return stored if isinstance(stored, dict) else {}

    def get(self, blob: str, *, deep: bool, calls: bool) -> FileFacts | None:
        """Return the summary of the content `blob`, if it was read as `deep` and with the `calls` that are needed."""
        found = self._facts.get(blob) if blob else None
        self._used.add(blob)
        return found if found is not None and found.suffices(deep=deep, calls=calls) else None

    def put(self, blob: str, found: FileFacts) -> None:
        """Keep the summary `found` of the content `blob`, instead of one with less in it."""
        if blob:
            self._facts[blob] = found
            self._used.add(blob)
            self._changed = True

    def save(self) -> None:
        """Write the file, if there is one and anything is new; a reader never sees half of it."""
        if self._is_due():
            self._forget_spare()
            self._write()
            self._changed = False

    @contextmanager
    def saved_meanwhile(self) -> Iterator[None]:
        """Write the file as `save` does, by another process while the block runs if that saves time."""
        if not self._is_due() or len(self._facts) < _PARALLEL_FROM or not can_fork():
            self.save()
            yield
            return
        import multiprocessing

        self._forget_spare()
        writer = multiprocessing.get_context("fork").Process(target=self._try_to_write, daemon=True)
        writer.start()
        try:
            yield
        finally:
            writer.join()
        # Here the error that the other process met is raised again, if it lasts.
        self._changed = writer.exitcode != 0
        self.save()

    def _is_due(self) -> bool:
        return self.path is not None and self._changed and not self._held

    def _forget_spare(self) -> None:
        if len(self._facts) > _SPARE * len(self._used):
            for blob in self._facts.keys() - self._used:
                del self._facts[blob]

    def _try_to_write(self) -> None:
        try:
            self._write()
        except OSError:
            sys.exit(1)

    def _write(self) -> None:
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        with temporary.open("wb") as file:
            pickle.dump(readers_digest(), file)
            pickle.dump(self._facts, file, pickle.HIGHEST_PROTOCOL)
        temporary.replace(self.path)

    @contextmanager
    def saved_once(self) -> Iterator[None]:
        """Write the file at the end of the block only, however many trees it checks."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
            self.save()


class ReportCache:
    """The last few reports by key, in one file beside the facts; none are kept without a file."""

    def __init__(self, facts: Path | None) -> None:
        self._path = facts.with_name(f"{facts.name}.verdicts") if facts is not None else None

    def get(self, key: str) -> Any | None:
        """Return the report under `key`, or None."""
        known = self._load().get(key) if key else None
        try:
            return pickle.loads(known) if known is not None else None
        except Exception:  # A damaged entry counts as missing.
            return None

    def put(self, key: str, verdict: object) -> None:
        """Write `verdict` under `key`; a reader never sees half of the file."""
        if not key or self._path is None:
            return
        known = {name: data for name, data in self._load().items() if name != key}
        known[key] = pickle.dumps(verdict, pickle.HIGHEST_PROTOCOL)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        temporary.write_bytes(pickle.dumps(dict(list(known.items())[-_KEPT:]), pickle.HIGHEST_PROTOCOL))
        temporary.replace(self._path)

    def _load(self) -> dict[str, bytes]:
        if self._path is None or not self._path.is_file():
            return {}
        try:
            known = pickle.loads(self._path.read_bytes())
        except Exception:
            return {}
        return known if isinstance(known, dict) else {}


def report_key(trees: Iterable[Iterable[SourceFile]], rules: Iterable[str], options: Iterable[str] = ()) -> str:
    """Return one name for trees, rules, options and the code of the checker.

    Args:
        trees: source files of each tree.
        rules: ids of the rules that run.
        options: further texts that change the report.

    Returns:
        Hexadecimal digest of 20 bytes; "" if some content has no name.
    """
    digest = hashlib.blake2b(digest_size=20)
    digest.update(f"{' '.join(rules)} {_code()}".encode())
    digest.update("\0".join(options).encode("utf-8", "surrogateescape"))
    for files in trees:
        digest.update(b"\0\0")
        for file in sorted(files, key=lambda file: file.path):
            if not file.blob:
                return ""
            digest.update(f"{file.path}\0{file.blob}\0".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


@cache
def readers_digest() -> str:
    """Return a name for the code that makes summaries: those of other code, or of another parser, are not used."""
    here = Path(__file__).parent
    digest = hashlib.blake2b(repr(sys.version_info).encode(), digest_size=20)
    for path in sorted([here / "facts.py", here / "ignores.py", *(here / "readers").glob("*.py")]):
        digest.update(f"\0{path.name}\0".encode() + path.read_bytes())
    for parser in ("tree-sitter", "tree-sitter-cpp"):
        digest.update(metadata.version(parser).encode())
    return digest.hexdigest()


def _code() -> str:
    """Return the sizes and times of this package's own files: a changed rule must not use old results."""
    here = Path(__file__).parent
    states = [(path.relative_to(here).as_posix(), path.stat()) for path in here.rglob("*.py")]
    return repr(sorted((name, state.st_size, state.st_mtime_ns) for name, state in states))
