"""Gather the files that a GPU machine without a package index lacks: wheels, and the releases to test.

    python tools/gpu/make_offline_bundle.py build/gpu vllm==0.33.0 vllm==0.32.0 vllm==0.27.0 sglang==0.5.23

Run it where pip reaches an index; take the folder and a checkout to the GPU machine and run
``tools/gpu/run_offline.sh`` there. torch, triton, numpy, scipy, CMake and a C++ compiler are expected there.
A release is brought as an entry of verispec's cache, less what has nothing to do with speculative decoding.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import re
import tarfile
from pathlib import Path

from packaging.utils import canonicalize_version
from wheels import download

from verispec.static.sources import open_tree

PACKAGES = (
    "tox",
    "typer",
    "rich",
    "jinja2",
    "tree-sitter",
    "tree-sitter-cpp",
    "pytest",
    "pytest-xdist",
    "pytest-timeout",
    "hypothesis",
    "scikit-build-core",
    "nanobind",
)

NEEDED = re.compile(
    r"setup\.py|vllm/(v1|utils|platforms|triton_utils)/.*\.py|vllm/config/speculative\.py|csrc/cpu/[^/]+"
    r"|(python/)?(pyproject\.toml|sglang/(kernels/ops|srt)/(speculative|sampling)/.*\.py|sglang/version\.py)"
)
"""The files of a release with kernels of speculative decoding; setup.py marks a project's archive."""


def main(folder: Path, releases: list[str]) -> None:
    """Write the wheels and the releases below `folder`."""
    download(folder / "wheels", *PACKAGES)
    for release in releases:
        bring(release, folder / "cache" / "releases")


def bring(release: str, releases: Path) -> None:
    """Put the needed files of ``name==version`` where `verispec.static.sources` looks for that release."""
    name, _, version = release.partition("==")
    archive = releases / name / canonicalize_version(version) / f"{name}-{version}.tar.gz"
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w:gz") as packed:
        for file in open_tree(release).files():
            if NEEDED.fullmatch(file.path):
                data = file.read()
                entry = tarfile.TarInfo(f"{name}-{version}/{file.path}")
                entry.size = len(data)
                packed.addfile(entry, io.BytesIO(data))
    known = {"name": archive.name, "sha256": hashlib.sha256(archive.read_bytes()).hexdigest()}
    (archive.parent / "file.json").write_text(json.dumps(known))
    print(f"{archive}: {archive.stat().st_size >> 10} KiB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder to fill")
    parser.add_argument("releases", nargs="*", metavar="NAME==VERSION", help="releases to bring")
    given = parser.parse_args()
    main(given.folder, given.releases)
