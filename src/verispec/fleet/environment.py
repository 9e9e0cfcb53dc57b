"""Python environments of a fleet: made once per recipe and machine by uv or pip, kept in the user's cache.

Each gets the verispec that makes it, file by file, so that the same suites run in every cell. A kill at any moment
leaves an environment that is made anew, since its last file says that it is complete.
"""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path, PurePosixPath

from packaging.requirements import Requirement

import verispec
from verispec import exits
from verispec.cache_folder import cache_dir
from verispec.errors import VerispecError
from verispec.fleet.plan import Environment
from verispec.run.process_tree import die_with_parent

COMPLETE = "verispec-environment.json"
"""The file that an environment gets last."""
REPORT_EVERY = 10.0
"""Seconds between two reports on a wait."""
_END = 2000
"""Characters of an installer's output that an error shows."""
_NOISE = ("WARNING:", "ERROR: Ignored the following")
"""Beginnings of lines of pip about indexes without a package, and about versions for other Pythons."""

Report = Callable[[str], None]
"""Receives the reason for waiting."""


def interpreter(environment: Environment | None, report: Report) -> str:
    """Return the Python interpreter of `environment`, made first if it is not there yet.

    Args:
        environment: None for that of this process.
        report: function that receives each step that takes long.

    Raises:
        VerispecError: V-FLEET-ENVIRONMENT, the installer fails or is not there; V-CACHE-WRITE.
    """
    if environment is None:
        return sys.executable
    if environment.python:
        return environment.python
    folder = folder_of(environment)
    python = folder / "bin" / "python"
    with _locked(folder, report):
        if not (folder / COMPLETE).exists():
            report(f"making the environment {environment.name}")
            _make(environment, folder, python)
    return str(python)


def folder_of(environment: Environment) -> Path:
    """Return the folder of an environment, which its recipe, this interpreter and this verispec decide."""
    distribution = _own_distribution()
    recipe = {
        **dataclasses.asdict(environment),
        "interpreter": sys.executable,
        "verispec": [verispec.__version__, distribution.read_text("RECORD")],
    }
    digest = hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:16]
    return cache_dir() / "environments" / f"{environment.name}-{digest}"


def _make(environment: Environment, folder: Path, python: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    if environment.installer == "uv":
        uv = shutil.which("uv")
        if uv is None:
            raise _failed(environment, "uv is not installed here", "", 'install it, or write installer = "pip"')
        _run(environment, [uv, "venv", "--quiet", "--python", sys.executable, str(folder)])
        install = [uv, "pip", "install", "--quiet", "--python", str(python)]
    else:
        _run(environment, [sys.executable, "-m", "venv", str(folder)])
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    # Environments of uv have no pip, which knows the index of engines that are given as a release's source.
    own = (*_own_requirements(environment.extras), *(["pip"] if environment.installer == "uv" else []))
    for name, lines in (
        ("requirements", (*own, *environment.requirements)),
        ("without_dependencies", environment.without_dependencies),
    ):
        if lines:
            file = folder / f"{name}.txt"
            file.write_text("\n".join(lines) + "\n", encoding="utf-8")
            alone = ["--no-deps"] if name == "without_dependencies" else []
            _run(environment, [*install, *alone, *environment.options, "-r", str(file)])
    _copy_verispec(folder, python)
    _run(environment, [str(python), "-P", "-c", "import verispec.fleet.piece"])
    (folder / COMPLETE).write_text(json.dumps(dataclasses.asdict(environment), indent=2), encoding="utf-8")


def _run(environment: Environment, command: list[str]) -> None:
    # An installer that outlived this process would write into the folder that the next one makes anew.
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        preexec_fn=die_with_parent,
    )  # fmt: skip
    if done.returncode:
        program = command[command.index("-m") + 1] if "-m" in command else Path(command[0]).name
        said = _without_noise(done.stdout.decode(errors="replace"))
        raise _failed(environment, f"{program} ended with {done.returncode}", said)


def _without_noise(said: str) -> str:
    """Return the end of an installer's output, without what pip says about things that are no reason."""
    lines = [line for line in said.strip().splitlines() if not line.startswith(_NOISE)]
    text = "\n".join(lines)
    return text if len(text) <= _END else text[-_END:].partition("\n")[2] or text[-_END:]


def _failed(environment: Environment, message: str, cause: str, hint: str = "") -> VerispecError:
    return VerispecError(
        "V-FLEET-ENVIRONMENT",
        f"the environment cannot be made: {message}",
        where=f"[environment.{environment.name}]",
        cause=cause,
        hint=hint or "try its requirement lines alone, in an empty environment",
        exit_code=exits.CANNOT_TELL,
    )


def _own_distribution() -> metadata.Distribution:
    try:
        return metadata.distribution("verispec")
    except metadata.PackageNotFoundError as error:
        raise VerispecError(
            "V-FLEET-OWN", "verispec is not installed here, so that no environment can get it", hint="pip install it"
        ) from error


def _own_requirements(extras: tuple[str, ...]) -> Iterator[str]:
    """Yield the requirement lines of verispec with these extras."""
    for line in _own_distribution().requires or ():
        requirement = Requirement(line)
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            requirement.marker = None
            yield str(requirement)


def _copy_verispec(folder: Path, python: Path) -> None:
    """Copy the installed files of verispec, which for an editable installation are links to the sources."""
    where = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    target = Path(subprocess.run(where, capture_output=True, text=True, check=True).stdout.strip())
    for file in _own_distribution().files or ():
        if ".." in PurePosixPath(file).parts or "__pycache__" in file.parts:  # commands, which hold a path of their own
            continue
        source, copy = Path(str(file.locate())), target / file
        if source.is_file():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy)


@contextmanager
def _locked(folder: Path, report: Report) -> Iterator[None]:
    """Hold the lock of an environment, which the end of a process releases."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with Path(f"{folder}.lock").open("w") as file:
        told = time.monotonic()
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() - told > REPORT_EVERY:
                    told = time.monotonic()
                    report(f"another process makes {folder.name}")
                time.sleep(0.2)
        yield


def with_variables(variables: dict[str, str]) -> dict[str, str]:
    """Return the environment variables of a cell's processes."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONHOME"}
    return {**inherited, **variables}
