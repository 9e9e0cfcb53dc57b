"""Places of an engine's code as files below the working folder, where annotations of a repository look for them."""

from __future__ import annotations

import sys
from pathlib import Path

from verispec.report.cause import Cause

INSTALLED = ("site-packages", "dist-packages")
"""Folders of installed packages, which a virtual environment may have below the working folder."""


def place_of(cause: Cause) -> tuple[str, int, bool] | None:
    """Return file, line and if the file is below the working folder; None for a cause without a place.

    A file elsewhere, such as one of an installed package, keeps the path relative to the folder of its imports.
    """
    name, _, line = (cause.kernel or cause.caller).rpartition(":")
    if not line.isdigit():
        return None
    here = Path.cwd()
    imports = (Path(root).resolve() for root in sys.path if root and Path(root).name not in INSTALLED)
    for root in (here, here / "src", *imports):
        file = root / name
        if file.is_relative_to(here) and file.is_file():
            return file.relative_to(here).as_posix(), int(line), True
    return name, int(line), False
