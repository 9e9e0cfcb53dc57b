"""Names of the files in the folder of ``run --record``."""

from __future__ import annotations

import hashlib
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


def tidy(folder: Path, pid: int) -> None:
    """Remove the file of the last launch of a process that ended well."""
    launch(folder, pid).unlink(missing_ok=True)
