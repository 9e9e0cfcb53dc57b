"""What a run is asked to do, and the pytest command that does it."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path

from verispec.errors import VerispecError
from verispec.kernel_swap import run_command
from verispec.static.sources import cache_dir

SEED = 7
"""The seed of commands that compare revisions or repeat a case; `run` and `smoke` draw anew each day."""
TIMEOUT = 120.0
"""Seconds a case may take before it counts as hung: far above the slowest on a busy machine, below a CI job's limit."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One run of suites on one engine.

    `only` are case ids, prefixes or patterns (all cases when empty), `exact` takes them as whole ids; `suites` are
    names of suite folders (all when empty), `timeout` seconds a case; `smoke` runs the first case of every clause,
    `detail` records inputs and outputs, `budget` names the sample sizes of statistical tests, `transplanted` ops have
    the reference's kernel in place of the engine's.
    """

    engine: str
    device: str | None = None
    only: tuple[str, ...] = ()
    exact: bool = False
    suites: tuple[str, ...] = ()
    seed: int = SEED
    processes: int = 1
    timeout: float = TIMEOUT
    smoke: bool = False
    detail: bool = False
    save: Path | None = None
    budget: str = "standard"
    transplanted: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether every case of every suite is asked for."""
        return not (self.only or self.suites or self.smoke)

    def command(self, scratch: Path, *, collect_only: bool = False) -> list[str]:
        """The pytest command; it reads ``skip`` in the folder `scratch` and writes ``journal.jsonl`` and logs there."""
        root = suites_folder()
        command = [sys.executable, "-P", "-m", "pytest", "-c", str(root / "pytest.ini"), f"--rootdir={root}"]
        command += [str(path) for path in self._paths()]
        command += [f"--engine={self.engine}", f"--seed={self.seed}", f"--scratch={scratch}"]
        command += [f"--budget={self.budget}"]
        command += ["--capture=no", "--assert=plain", "-p", "no:faulthandler"]
        command += [f"--only={pattern}" for pattern in self.only]
        if self.device:
            command.append(f"--device={self.device}")
        command += [f"--{flag}" for flag in ("exact", "smoke", "detail") if getattr(self, flag)]
        if self.save:
            command.append(f"--save={self.save.absolute()}")
        if collect_only:
            command.append("--collect-only")
        elif self.processes > 1:
            # Each process has neighbouring cases, which share what is dear to load; one that is done takes over some.
            command += ["-p", "xdist", f"--numprocesses={self.processes}", "--dist=worksteal"]
        return command

    def _paths(self) -> list[Path]:
        """The files that can hold what is asked for: a pattern that begins with suite/subject: needs one file only."""
        folders = [suite_folder(suite) for suite in self.suites or suites()]
        files = []
        for pattern in self.only:
            subject, colon, _ = pattern.partition(":")
            suite, slash, op = subject.partition("/")
            found = [folder / f"test_{op}.py" for folder in folders if folder.name == suite]
            if not (colon and slash and found and found[0].is_file()):
                return folders
            files += [found[0], *found[0].parent.glob("test_every_*.py")]
        return list(dict.fromkeys(files)) or folders


def seed_of_today() -> int:
    """Return today's date (UTC) as YYYYMMDD: each day draws other values, and all machines of a day the same."""
    return int(datetime.now(UTC).strftime("%Y%m%d"))


def suites_folder() -> Path:
    """Where the installed suites are."""
    return Path(str(resources.files("verispec.suites")))


def suite_folder(suite: str) -> Path:
    """Return the folder of a suite: one of verispec's by its name, or any other by its path.

    Raises:
        VerispecError: V-RUN-SUITE, neither a suite of verispec nor a folder with a ``test_*.py``.
    """
    own = suites_folder() / suite
    if suite in suites():
        return own
    folder = Path(suite).absolute()
    if folder.is_dir() and any(folder.glob("test_*.py")):
        return folder
    raise VerispecError(
        "V-RUN-SUITE",
        f"there is no suite {suite!r}",
        where="--suite",
        hint=f"suites are {', '.join(suites())}, or the path of a folder that holds test_*.py",
    )


def suites() -> list[str]:
    """The names of all suites."""
    return sorted(path.name for path in suites_folder().iterdir() if any(path.glob("test_*.py")))


def environment(plan: Plan) -> dict[str, str]:
    """The child's environment: what leaks into a pytest run from outside is kept out, caches go to the user's cache."""
    around = run_command.environment(plan.transplanted) if plan.transplanted else os.environ
    kept = {k: v for k, v in around.items() if not k.startswith("PYTEST_")}
    if plan.processes > 1:  # threads of several processes that wait for each other cost more than they give
        kept.setdefault("OMP_NUM_THREADS", str(max((os.cpu_count() or 1) // plan.processes, 1)))
    return {
        **kept,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONUNBUFFERED": "1",
        "HYPOTHESIS_STORAGE_DIRECTORY": str(cache_dir() / "hypothesis"),
    }
