"""Check which packages and engines are installed and work here, and how to get the rest."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib import metadata
from importlib.util import find_spec
from typing import Any

from verispec.cache_folder import cache_dir
from verispec.engines.registry import BUILT_IN, require_cuda
from verispec.errors import VerispecError

START_LIMIT = 120.0
"""Seconds that importing a package may take before it counts as broken; torch takes 2 to 20 on busy machines."""


class State(StrEnum):
    """State of one component on this machine."""

    OK = "ok"
    MISSING = "missing"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: the package, program or engine.
        state: state of the part on this machine. Something that is installed and does not work is broken.
        found: its version, or the reason why it does not work.
        used_for: commands or engines that need it.
        advice: command that installs or repairs it; empty when it works.
    """

    name: str
    state: State
    found: str
    used_for: str
    advice: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self)


PACKAGES = {
    "torch": ("every engine", "pip install torch"),
    "pytest": ("run, smoke, repro", "pip install 'verispec[judge]'"),
    "hypothesis": ("run, smoke, repro", "pip install 'verispec[judge]'"),
    "scipy": ("run, smoke, repro", "pip install 'verispec[judge]'"),
    "transformers": ("generate, the e2e suite", "pip install 'verispec[generate]'"),
    "safetensors": ("generate, the e2e suite", "pip install 'verispec[generate]'"),
    "triton": ("reference:triton and vllm@SOURCE", "pip install triton; it changes how vLLM chooses its kernels"),
}
"""Optional packages by import name, with their use and the command that installs them."""


def checks() -> Iterator[Check]:
    """Yield every check; a package that is installed is imported in a process of its own to see whether it works."""
    yield Check("python", State.OK, platform.python_version(), "everything")
    yield _kernels()
    for name, (used_for, advice) in PACKAGES.items():
        yield _package(name, used_for, advice)
    yield _cuda()
    yield _program("git", ["git", "--version"], "signatures of revisions, bisect", "install git 2.31 or newer")
    compiler = os.environ.get("CXX") or "c++"
    yield _program("C++ compiler", [compiler, "--version"], "vllm-cpu@SOURCE", "install g++, or name one in CXX")
    yield _cache()
    for name, engine in BUILT_IN.items():
        missing = ", ".join(engine.missing)
        state = State.MISSING if missing else State.OK
        yield Check(
            name,
            state,
            f"needs {missing}" if missing else "can run",
            "an engine to test",
            f"install {missing}" * bool(missing),
        )


def _kernels() -> Check:
    used_for = "the reference engine on the CPU"
    if (error := _import_error("verispec.reference._csrc")) is not None:
        return Check(
            "C++ kernels", State.BROKEN, error, used_for, "install verispec again where a C++ compiler is found"
        )
    return Check("C++ kernels", State.OK, "loaded", used_for)


def _package(name: str, used_for: str, advice: str) -> Check:
    if find_spec(name) is None:
        return Check(name, State.MISSING, "not installed", used_for, advice)
    if (error := _import_error(name)) is not None:
        return Check(name, State.BROKEN, error, used_for, f"import {name} in Python to see the whole error")
    return Check(name, State.OK, metadata.version(name), used_for)


def _import_error(module: str) -> str | None:
    """Return the last line that importing `module` prints in another process, or None when it works."""
    command = [sys.executable, "-c", f"import {module}"]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=START_LIMIT)
    except subprocess.TimeoutExpired:
        return f"importing it takes more than {START_LIMIT:.0f} s"
    if not done.returncode:
        return None
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]


def _cuda() -> Check:
    used_for = "--device cuda"
    try:
        require_cuda()
    except VerispecError as error:
        return Check("CUDA", State.MISSING, error.diagnostic.message, used_for, "use a machine with an NVIDIA GPU")
    import torch

    return Check("CUDA", State.OK, str(torch.cuda.get_device_name(0)), used_for)


def _program(name: str, command: list[str], used_for: str, advice: str) -> Check:
    if shutil.which(command[0]) is None:
        return Check(name, State.MISSING, f"no {command[0]} on PATH", used_for, advice)
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        return Check(name, State.BROKEN, f"{' '.join(command)} ends with {done.returncode}", used_for, advice)
    return Check(name, State.OK, done.stdout.splitlines()[0], used_for)


def _cache() -> Check:
    folder, used_for = cache_dir(), "results files, file summaries, releases"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            free = shutil.disk_usage(folder).free >> 20
    except OSError as error:
        return Check("cache", State.BROKEN, f"{folder}: {error.strerror}", used_for, "name another: VERISPEC_CACHE_DIR")
    return Check("cache", State.OK, f"{folder}, {free:,} MiB free", used_for)
