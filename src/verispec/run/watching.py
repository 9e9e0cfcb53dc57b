"""Wait until a source file changes, by looking at modification times: works on every file system."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

SUFFIXES = (".py", ".pyi", ".toml", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".so")
"""Files that decide what an engine does."""
EVERY = 0.5
"""Seconds between two looks: at once for a person, and no load for thousands of files."""
QUIET = 0.3
"""Seconds without a further change after which a run begins: editors and builds write in steps."""

Times = Mapping[str, tuple[int, int]]


def times(folders: Sequence[Path]) -> Times:
    """Return modification time and size of each source file below `folders`; hidden and cache folders are left out."""
    found = {}
    for folder in folders:
        for here, below, names in os.walk(folder):
            below[:] = [name for name in below if not name.startswith(".") and name != "__pycache__"]
            for name in names:
                if name.endswith(SUFFIXES):
                    path = Path(here, name)
                    try:
                        state = path.stat()
                    except OSError:  # removed meanwhile
                        continue
                    found[str(path)] = (state.st_mtime_ns, state.st_size)
    return found


def wait_for_change(folders: Sequence[Path], before: Times) -> tuple[str, ...]:
    """Return the files that differ from `before`, once nothing changes any more."""
    while (now := times(folders)) == before:
        time.sleep(EVERY)
    while True:
        time.sleep(QUIET)
        later = times(folders)
        if later == now:
            return tuple(sorted(path for path in {**before, **now} if before.get(path) != now.get(path)))
        now = later
