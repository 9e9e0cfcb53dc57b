"""Files in the folder of ``run --record``: their names, and which of them are kept."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

SUFFIX = ".safetensors"
MADE_BY = "Written by verispec repro --export."
"""Text by which an exported test is known: only such a file is replaced."""


def launch(folder: Path, pid: int) -> Path:
    """Return the file of the launch that process `pid` is making."""
    return folder / f".launch-{pid}{SUFFIX}"


def kept(folder: Path, case: str) -> Path:
    """Return the file of a case that failed: readable, and another one for each case."""
    name = re.sub(r"[^A-Za-z0-9_.=-]+", "_", case.partition("/")[2])[:100]
    return folder / f"{name}-{hashlib.sha256(case.encode()).hexdigest()[:8]}{SUFFIX}"


def keep_launch(folder: Path, pid: int, case: str) -> Path | None:
    """Keep the last launch of a process that crashed or hung in `case`; return its file, or None without one."""
    path = launch(folder, pid)
    if not path.exists():
        return None
    return path.replace(kept(folder, case))


def sweep(folder: Path) -> None:
    """Remove launches of processes that are gone: a run that was killed could not say how its case ended."""
    for path in [*folder.glob(".launch-*"), *folder.glob("..launch-*")]:
        number = re.search(r"launch-(\d+)", path.name)
        if number and not _lives(int(number[1])):
            path.unlink(missing_ok=True)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        return True
    return True


def tidy(folder: Path, pid: int) -> None:
    """Remove the file of the last launch of a process that ended well."""
    launch(folder, pid).unlink(missing_ok=True)
