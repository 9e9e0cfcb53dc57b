"""The plan of a run, and the pytest command that carries it out."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import IO

from verispec.cache_folder import cache_dir
from verispec.errors import VerispecError
from verispec.kernel_swap import run_command

SEED = 7
"""The seed of commands that compare revisions or repeat a case; `run` and `smoke` draw anew each day."""
TIMEOUT = 120.0
"""Seconds per case before it counts as hung: far above the slowest on a busy machine, below a CI job's limit."""
CUDA_TIMEOUT = 300.0
"""The same on a CUDA device: Triton compiles a kernel for each layout, 70 s for one case of large batches."""
BUDGET = "standard"
"""The sizes of statistical tests in runs that ask for no other."""
WITHOUT_QUICK_CASES = "e2e"
"""The suite of which smoke runs nothing: each case generates text, and its modules take seconds to import."""
START_TIMEOUT = 600.0
"""Seconds for importing and starting the engine, which may load libraries and compile."""
CLOSE_TIMEOUT = 60.0
"""Seconds for closing the engine."""
SHRINK_TIMEOUT = 300.0
"""Seconds for making the call of a failing case small, beside the case's own; a quiet machine takes one minute."""


def require_budget(name: str) -> None:
    """Raise VerispecError V-LAW-BUDGET unless statistical tests have sizes of this name."""
    from verispec.judge.statistics.trial import BUDGETS

    if name not in BUDGETS:
        raise VerispecError(
            "V-LAW-BUDGET", f"there is no budget {name!r}", where="--budget", hint=f"budgets are {', '.join(BUDGETS)}"
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """One run of suites on one engine.

    Attributes:
        only: case ids, prefixes or patterns; empty for all cases.
        exact: True if `only` holds whole ids.
        suites: names of suite folders; empty for all.
        processes: workers that test at the same time.
        timeout: seconds per case.
        start_timeout: seconds for importing and starting the engine.
        close_timeout: seconds for closing the engine.
        smoke: True runs the first quick case of every clause only.
        detail: True records inputs and outputs of each case.
        budget: sample sizes of statistical tests: quick, standard or nightly.
        save: file for all values of the last call.
        record: folder for the cases that fail, crash or hang, each with the inputs of its last launch.
        shrink: file for the case, with its call made small.
        replay: file of a saved case, whose call takes the place of the case's own.
        export: file for a test of the engine alone, made from `replay`; nothing is launched.
        trial: True if a crash needs no traceback, so that its process ends at once.
        transplanted: ops that use the reference's kernel instead of the engine's.
    """

    engine: str
    device: str | None = None
    only: tuple[str, ...] = ()
    exact: bool = False
    suites: tuple[str, ...] = ()
    seed: int = SEED
    processes: int = 1
    timeout: float = TIMEOUT
    start_timeout: float = START_TIMEOUT
    close_timeout: float = CLOSE_TIMEOUT
    smoke: bool = False
    detail: bool = False
    save: Path | None = None
    record: Path | None = None
    shrink: Path | None = None
    replay: Path | None = None
    export: Path | None = None
    trial: bool = False
    budget: str = BUDGET
    transplanted: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        """Return True if the plan selects every case of every suite."""
        return not (self.only or self.suites or self.smoke)

    @property
    def generates(self) -> bool:
        """Return True if cases of the suite e2e may be selected."""
        folder = suites_folder() / "e2e"
        return any(folder in (path, path.parent) for path in self._paths())

    def command(self, scratch: Path, *, collect_only: bool = False) -> list[str]:
        """Return the command of the fork server, which shares the folder `scratch` with the supervisor."""
        root = suites_folder()
        command = [sys.executable, "-P", "-m", "verispec.run.collecting_process"]
        command += ["-c", str(root / "pytest.ini"), f"--rootdir={root}"]
        command += [str(path) for path in self._paths()]
        command += [f"--engine={self.engine}", f"--seed={self.seed}", f"--scratch={scratch}"]
        command += [f"--processes={self.processes}", f"--budget={self.budget}"]
        command += [f"--start-timeout={self.start_timeout}"]
        command += ["--capture=no", "--assert=plain", "-p", "no:faulthandler", "-p", "no:logging"]
        command += [f"--only={pattern}" for pattern in self.only]
        if self.device:
            command.append(f"--device={self.device}")
        command += [f"--{flag}" for flag in ("exact", "smoke", "detail", "trial") if getattr(self, flag)]
        for option in ("save", "record", "shrink", "replay", "export"):
            if path := getattr(self, option):
                command.append(f"--{option}={path.absolute()}")
        if collect_only:
            command.append("--collect-only")
        return command

    def _paths(self) -> list[Path]:
        """Return the files or folders of matching cases: one file for a pattern that begins with suite/op:.

        Importing the others may take longer than the chosen cases.
        """
        quick = [suite for suite in suites() if not (self.smoke and suite == WITHOUT_QUICK_CASES)]
        folders = [suite_folder(suite) for suite in self.suites or quick]
        needed: dict[Path, None] = {}
        for pattern in self.only:
            subject, colon, _ = pattern.partition(":")
            suite, slash, op = subject.partition("/")
            named = [folder for folder in folders if slash and folder.name == suite]
            if not named:
                return folders
            files = [named[0] / f"test_{op}.py", *named[0].glob("test_every_*.py")]
            needed |= dict.fromkeys(files if colon and files[0].is_file() else named)
        return [path for path in needed if path.parent not in needed] or folders


def require_agreement(plan: Plan) -> None:
    """Raise VerispecError V-RUN-SELECT if no case has the suite that a pattern names, and is what the plan asks for.

    A plan may select other suites, or quick cases, of which the suite that generates text has none.
    """
    names = [Path(suite).name for suite in plan.suites]
    slow = [*plan.only, *(f"{name}/" for name in names)]
    if plan.smoke and any(pattern.partition("/")[0] == WITHOUT_QUICK_CASES for pattern in slow):
        raise VerispecError(
            "V-RUN-SELECT",
            f"smoke runs quick cases, and the suite {WITHOUT_QUICK_CASES} has none: each of its cases generates text",
            where="--only" if plan.only else "--suite",
            hint="use verispec run with the same options",
        )
    for pattern in plan.only:
        suite, slash, _ = pattern.partition("/")
        if names and slash and not set("*?[") & set(suite) and suite not in names:
            raise VerispecError(
                "V-RUN-SELECT",
                f"{pattern!r} is of suite {suite}, and --suite selects {' and '.join(names)} alone",
                where="CASE" if plan.exact else "--only",
                hint=f"omit --suite, or add --suite {suite}",
            )


def start_server(plan: Plan, scratch: Path, log: IO[bytes], *, collect_only: bool = False) -> subprocess.Popen[bytes]:
    """Start the fork server of a plan in a session of its own; its output goes to `log`."""
    return subprocess.Popen(
        plan.command(scratch, collect_only=collect_only),
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=subprocess.STDOUT,
        env=environment(plan),
        start_new_session=True,
    )


def seed_of_today() -> int:
    """Return today's date (UTC) as YYYYMMDD: each day draws other values, and all machines of a day the same."""
    return int(datetime.now(UTC).strftime("%Y%m%d"))


def suites_folder() -> Path:
    """Return the folder of the installed suites."""
    return Path(str(resources.files("verispec.suites")))


def suite_folder(suite: str) -> Path:
    """Return the folder of a suite: one of verispec's by its name, or any other by its path.

    Raises:
        VerispecError: V-RUN-SUITE, neither a suite of verispec nor a folder with a ``test_*.py``.
    """
    own = suites_folder() / suite
    if suite in suites():
        return own
    folder = Path(os.path.normpath(Path(suite).absolute()))
    if folder.is_dir() and any(folder.glob("test_*.py")):
        return folder
    raise VerispecError(
        "V-RUN-SUITE",
        f"there is no suite {suite!r}",
        where="--suite",
        hint=f"suites are {', '.join(suites())}, or the path of a folder that holds test_*.py",
    )


def named_suite(suite: str) -> str:
    """Return a suite of verispec by its name, any other by its absolute path. Raises like `suite_folder`."""
    return suite if suite in suites() else str(suite_folder(suite))


def suites() -> list[str]:
    """Return the names of all suites."""
    return sorted(path.name for path in suites_folder().iterdir() if any(path.glob("test_*.py")))


def environment(plan: Plan) -> dict[str, str]:
    """Return the environment of the fork server: without pytest settings from outside, caches in the user's cache."""
    around = run_command.environment(plan.transplanted) if plan.transplanted else os.environ
    kept = {k: v for k, v in around.items() if not k.startswith("PYTEST_")}
    if plan.processes > 1:  # threads of several processes that wait for each other cost more than they give
        kept.setdefault("OMP_NUM_THREADS", str(max((os.cpu_count() or 1) // plan.processes, 1)))
    kept.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # threads that spin take the processors of those they wait for
    kept.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy's library starts threads as it is imported: no fork then
    return {
        **kept,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONUNBUFFERED": "1",
        "HYPOTHESIS_STORAGE_DIRECTORY": str(cache_dir() / "hypothesis"),
    }
