"""Wheels for a GPU machine: fetched for its Python, or reduced to the files that are needed there."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

PYTHON = "3.12"
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")


def download(folder: Path, *options: str) -> None:
    """Fetch wheels of the GPU machine's Python and platform into `folder`.

    Args:
        folder: folder of the wheels; it is made.
        *options: requirements and further options of ``pip download``.
    """
    platforms = [argument for platform in PLATFORMS for argument in ("--platform", platform)]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:", "--python-version", PYTHON]
    subprocess.run([*command, *platforms, "--dest", str(folder), *options], check=True)


def reduce(whole: Path, part: Path, needed: Callable[[str], bool]) -> None:
    """Write a wheel with some of another's files, byte for byte, and a list of files that names them.

    Args:
        whole: the released wheel.
        part: the wheel to write.
        needed: function that tells by its name whether a file is kept.
    """
    with zipfile.ZipFile(whole) as source, zipfile.ZipFile(part, "w", zipfile.ZIP_LZMA) as target:
        [record] = (name for name in source.namelist() if name.endswith(".dist-info/RECORD"))
        names = [name for name in source.namelist() if name != record and needed(name)]
        for name in names:
            target.writestr(name, source.read(name))
        target.writestr(record, "".join(f"{name},,\n" for name in [*names, record]))
