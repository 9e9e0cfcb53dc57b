"""A digest of the code of an engine that is not installed with a version of its own."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

LENGTH = 16
"""Hexadecimal digits of a digest: enough to tell two states of a file apart."""


def code_digest(engine: object) -> str:
    """Return a digest of the loaded source files beside the engine's class, or "" for engines of verispec itself.

    A package counts as a whole; a plain module counts with the loaded modules in its folder and below, so that a
    sampler in a file of its own is covered. Installed modules count alone: their neighbours are other projects.
    """
    package = type(engine).__module__.partition(".")[0]
    main = getattr(sys.modules.get(package), "__file__", None)
    if package == "verispec" or main is None:
        return ""
    file = Path(main).resolve()
    files = {file}
    if file.name == "__init__.py" or "site-packages" not in file.parts:
        loaded = {Path(getattr(module, "__file__", None) or "").resolve() for module in list(sys.modules.values())}
        files |= {path for path in loaded if path.is_file() and _belongs(path, file.parent)}
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:LENGTH]


def _belongs(path: Path, folder: Path) -> bool:
    """Return True if `path` is in `folder`, but not in a virtual environment below it."""
    return path.is_relative_to(folder) and "site-packages" not in path.relative_to(folder).parts
