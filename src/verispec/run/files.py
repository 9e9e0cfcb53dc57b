"""Paths of results files: named by the user, or among the newest in the user's cache."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
from datetime import UTC, datetime
from pathlib import Path

from verispec.cache_folder import cache_dir
from verispec.errors import VerispecError
from verispec.run.plan import Plan

KEPT = 10
"""Results files of each engine and kind that the cache keeps."""
LAST = "last"
"""Instead of a path: the results file that was begun last."""


def new_run_file(plan: Plan) -> Path:
    """Return a path in the user's cache for a run of `plan` without --out.

    The name holds the time to the microsecond and the process, so that no run replaces another: neither a smoke run
    nor a selection the last full one, nor a run the one before it in the same process and second.
    """
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
    return _folder(plan.engine) / f"{_kind(plan)}-{stamp}-{os.getpid()}.jsonl"


def remember(path: Path, engine: str) -> None:
    """Note `path` as the results file that was begun last, of `engine` and of all; remove old files of the cache."""
    folder = _folder(engine)
    with contextlib.suppress(OSError):  # a convenience: without it, `last` finds an older run
        for pointer in (folder / LAST, folder.parent / LAST):
            pointer.parent.mkdir(parents=True, exist_ok=True)
            pointer.write_text(str(path), encoding="utf-8")
        if path.parent == folder:
            same_kind = sorted(folder.glob(f"{path.name.partition('-')[0]}-*.jsonl"))
            for old in same_kind[:-KEPT]:
                _remove_unless_locked(old)


def last_run_file(engine: str = "") -> Path:
    """Return the results file that was begun last. Raises VerispecError V-RUN-LAST when there is none."""
    pointer = (_folder(engine) if engine else cache_dir() / "runs") / LAST
    with contextlib.suppress(OSError):
        path = Path(pointer.read_text(encoding="utf-8"))
        if path.is_file():
            return path
    raise VerispecError(
        "V-RUN-LAST",
        f"there is no last run{f' of {engine!r}' if engine else ''}",
        where=str(pointer),
        hint="make one with: verispec run" + (f" --engine {engine}" if engine else ""),
    )


def named(path: Path) -> Path:
    """Return `path`, or the last results file where it is the word "last"."""
    return last_run_file() if str(path) == LAST else path


def _kind(plan: Plan) -> str:
    if plan.smoke:
        return "smoke"
    return "full" if plan.whole else "selection"


def _folder(engine: str) -> Path:
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", engine).strip(".") or "engine"
    if name != engine or len(name) > 100:
        name = f"{name[:100]}-{hashlib.sha256(engine.encode()).hexdigest()[:8]}"
    return cache_dir() / "runs" / name


def _remove_unless_locked(path: Path) -> None:
    with contextlib.suppress(OSError), path.open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
