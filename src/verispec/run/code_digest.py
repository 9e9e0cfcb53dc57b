"""A digest of the code of an engine that is not installed with a version of its own."""

from __future__ import annotations

import functools
import hashlib
import os
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
        files |= _loaded(file.parent)
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:LENGTH]


def _loaded(folder: Path) -> set[Path]:
    """Return the resolved files of loaded modules in `folder`, but not in a virtual environment below it.

    Every worker asks, and resolving two thousand paths takes longer than most cases: each parent is resolved once.
    """

    @functools.cache
    def resolved(parent: str) -> Path | None:
        real = Path(parent).resolve()
        inside = real.is_relative_to(folder) and "site-packages" not in real.relative_to(folder).parts
        return real if inside else None

    files = set()
    for name in {getattr(module, "__file__", None) or "" for module in list(sys.modules.values())}:
        path = os.path.realpath(name) if os.path.islink(name) else name  # noqa: PTH114 - a tenth of a Path's time
        parent, _, file = path.rpartition(os.sep)
        if real := resolved(parent):
            files.add(real / file)
    return {file for file in files if file.is_file()}
