"""Run the rejection sampler tests that vLLM ships, with vLLM's kernels or with the reference's in their place.

    python -m peer_tests [--kernels reference|vllm] [--release 0.32.0] [pytest options]

The tests come out of the release's source distribution into a temporary folder; none of them is kept here.
The interpreter needs an installed vLLM of that release, verispec and pytest.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from packaging.version import Version

from verispec.kernel_swap import run_command
from verispec.kernel_swap.patch_vllm import exchangeable
from verispec.static.sources.releases import Release, fetch

TESTS = "tests/v1/sample/test_rejection_sampler.py"
NEEDED = ("tests/__init__.py", "tests/v1/__init__.py", "tests/v1/sample/__init__.py", "tests/v1/sample/utils.py", TESTS)
"""Modules that the tests import of their own tree; the tree's conftest serves other tests and needs much more."""


def unpack(release: str, folder: Path) -> None:
    """Write the tests of vLLM `release` below `folder`.

    Raises VerispecError V-IDX-*: the index cannot be asked, or has no such release; KeyError: it has no such tests.
    """
    with tarfile.open(fetch(Release("vllm", Version(release)))) as archive:
        for path in NEEDED:
            member = archive.getmember(f"vllm-{release}/{path}")
            member.name = path
            archive.extract(member, folder, filter="data")


def run(kernels: str, release: str, options: list[str]) -> int:
    """Run the tests with the kernels of "reference" or "vllm" and return pytest's exit code."""
    with tempfile.TemporaryDirectory(prefix="verispec-peer-") as name:
        folder = Path(name)
        unpack(release, folder)
        (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        ops = tuple(exchangeable()) if kernels == "reference" else ()
        environment = run_command.environment(ops)
        here = str(Path(__file__).resolve().parents[1])
        paths = [environment.get("PYTHONPATH", ""), here, name]
        command = [sys.executable, "-m", "pytest", "-c", "pytest.ini", "--noconftest", "-p", "no:cacheprovider"]
        return subprocess.run(
            [*command, "-p", "peer_tests.worker_kernels", TESTS, *options],
            cwd=folder,
            env={**environment, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            check=False,
        ).returncode


def main() -> None:
    """Parse the command line, run the tests and exit with pytest's code."""
    parser = argparse.ArgumentParser(prog="python -m peer_tests", description=str(__doc__).splitlines()[0])
    parser.add_argument("--kernels", choices=("reference", "vllm"), default="reference", help="whose kernels to run")
    parser.add_argument("--release", default="0.32.0", help="the vLLM release whose tests to run")
    arguments, options = parser.parse_known_args()
    raise SystemExit(run(arguments.kernels, arguments.release, options))
