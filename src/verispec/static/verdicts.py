"""What was found in a tree, remembered by everything that it depends on: an unchanged tree is not judged again."""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from verispec.static.facts import VERSION
from verispec.static.tree import SourceFile

_KEPT: Final = 8


class Verdicts:
    """The last few verdicts by key, in one file beside the facts; none are kept without a file."""

    def __init__(self, facts: Path | None) -> None:
        self._path = facts.with_name(f"{facts.name}.verdicts") if facts is not None else None

    def get(self, key: str) -> Any | None:
        """What was remembered under `key`, or None."""
        known = self._load().get(key) if key else None
        try:
            return pickle.loads(known) if known is not None else None
        except Exception:  # A damaged memory is no memory, whatever the damage.
            return None

    def put(self, key: str, verdict: object) -> None:
        """Remember `verdict`; a reader never sees half of the file."""
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


def key(trees: Iterable[Iterable[SourceFile]], rules: Iterable[str]) -> str:
    """One name for the content of these trees, the rules and the code that judges; "" where content is not known."""
    digest = hashlib.blake2b(digest_size=20)
    digest.update(f"{VERSION} {' '.join(rules)} {_code()}".encode())
    for files in trees:
        digest.update(b"\0\0")
        for file in sorted(files, key=lambda file: file.path):
            if not file.blob:
                return ""
            digest.update(f"{file.path}\0{file.blob}\0".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _code() -> str:
    """The sizes and times of this package's own files: whoever changes a rule wants to see what it finds now."""
    here = Path(__file__).parent
    states = [(entry.name, entry.stat()) for folder in (here, here / "rules") for entry in os.scandir(folder)]
    return repr(sorted((name, state.st_size, state.st_mtime_ns) for name, state in states if name.endswith(".py")))
