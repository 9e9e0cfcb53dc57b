"""The pytest side of a campaign: collected cases are run in forked processes, one process per mutant.

Started by `verispec.mutants.campaign` with a job file. The process that collects never runs a case itself, so that
each fork starts clean: no mutant, no OpenMP threads, nothing that an earlier mutant wrote.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from verispec.judge import Outcome
from verispec.mutants import activation, launches, layers, measured, results
from verispec.mutants.model import Mutant, MutantResult, Verdict
from verispec.mutants.pool import CaseProcess, Limit, Pool, limit_processor_time, processor_seconds
from verispec.run.process_tree import die_with_parent

JOB = pytest.StashKey["Job"]()
SLOWER, SLACK = 10.0, 4.0
"""A case may use this many times its processor time without a mutant, and this many seconds more."""
COMPILING = 90.0
"""Seconds that a case on a device may take beyond that: its process may have to compile or load all kernels first."""
REPEATED = 1.0
"""Processor seconds of a case on a device past which it runs once more to be measured, for the same reason."""
MOST_CRASHES, MOST_TIMEOUTS = 24, 3
"""Cases that a mutant may crash, and may keep from ending. A crash is cheap, and another case may still fail."""
KILLS: Final = (Verdict.KILLED, Verdict.KILLED_ELSEWHERE)
MEMORY: Final = 24 << 30
"""Address space of a process: a mutant that allocates without end must not take the machine down."""


@dataclass(slots=True)
class Job:
    """Request of the campaign."""

    layer: layers.Layer
    out: Path
    processes: int
    mutants: list[Mutant]
    baseline: dict[str, Any]
    active: activation.Activation
    device: str
    limit: float
    """Processor seconds of cases, by their times without a mutant, that a mutant may cost."""
    per_clause: int
    slowest: float
    """Processor seconds of a case that is used."""
    measuring: bool
    round: int
    """Number of the round of the campaign."""
    is_last: bool
    """False leaves the result of a mutant that no case fails open, since it meets more cases later."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of the job file."""
    parser.addoption("--mutation-job", default="", help="job file of verispec mutants")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Read the job file, and load the modules that all mutants share."""
    path = Path(config.option.mutation_job)
    data = json.loads(path.read_text())
    layer = layers.LAYERS[data["layer"]]
    extension = Path(data["extension"]) if data["extension"] else None
    baseline = measured.read(Path(data["baseline"]))
    job = Job(
        layer,
        Path(data["out"]),
        data["processes"],
        [Mutant.from_json(m) for m in data["mutants"]],
        baseline,
        activation.make(layer, extension, data["count"], path.parent, on_device=bool(data["device"])),
        data["device"],
        data["limit"],
        data["per_clause"],
        data["slowest"],
        data["measuring"],
        data["round"],
        data["is_last"],
    )
    job.active.prepare()
    leave_unexplained()
    if job.device:  # a CUDA context does not survive a fork: each process starts an engine of its own
        _engine_starts_later()
    config.stash[JOB] = job


def leave_unexplained() -> None:
    """Let no failure of this process search for its reason: a campaign needs outcomes, and a search takes seconds."""
    from verispec import pytest_plugin

    setattr(pytest_plugin, "explained", lambda failure, _: failure)  # noqa: B010


def keep_fused() -> None:
    """Let this process use fused models that differ from the plain ones, which would run instead.

    That guard keeps texts right where a model is of a new kind, and hides most faults of the kernels.
    """
    from verispec.reference.models import fused

    setattr(fused, "_same", lambda ours, theirs: True)  # noqa: B010


_start: list[Any] = []


def _engine_starts_later() -> None:
    from verispec import pytest_plugin

    _start.append(pytest_plugin._start_engine)
    pytest_plugin._start_engine = lambda config: None


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Stop Hypothesis from shrinking: a fault only has to be found."""
    import hypothesis

    phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
    hypothesis.settings.register_profile("mutants", hypothesis.settings(), phases=phases, database=None, deadline=None)
    hypothesis.settings.load_profile("mutants")


def pytest_runtestloop(session: pytest.Session) -> bool:
    """Run the job instead of pytest's own loop."""
    job = session.config.stash[JOB]
    items = {name: item for item in session.items if ":ANY-11" not in (name := _name(item))}
    # ANY-11 asks another process, in which no mutant acts.
    if job.per_clause:
        items = {name: items[name] for name in measured.chosen(items, job.per_clause)}
    if job.measuring:
        _measure(job, items)
    else:
        _judge(job, items)
    return True


def _name(item: pytest.Item) -> str:
    """Return the case id of a suite's case, or the node id of a plain test."""
    from verispec.run.items import CASE

    return str(item.stash.get(CASE, None) or item.nodeid)


def _fork(
    job: Job, items: dict[str, pytest.Item], cases: Sequence[str], limit: Limit, mutant: Mutant | None, enough: Any
) -> CaseProcess:
    """Fork a process that runs `cases` with `mutant`, or records what they reach; `enough` ends it after a record."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        die_with_parent()
        os.close(reading)
        code = 1
        try:
            _run_cases(job, [items[c] for c in cases], limit, mutant, writing, enough)
            code = 0
        except BaseException:
            with contextlib.suppress(OSError):
                record = {"broken": traceback.format_exc(limit=-3)[-600:]}
                os.write(writing, json.dumps(record).encode() + b"\n")
        finally:
            os._exit(code)
    os.close(writing)
    return CaseProcess(pid, reading, list(cases), time.monotonic())


def _run_cases(
    job: Job, items: Sequence[pytest.Item], limit: Limit, mutant: Mutant | None, pipe: int, enough: Any
) -> None:
    os.setpgid(0, 0)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if not job.device:  # CUDA reserves more addresses than any machine has memory
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def tell(record: dict[str, Any]) -> None:
        os.write(pipe, json.dumps(record).encode() + b"\n")

    if mutant is not None:
        try:
            job.active.activate(mutant)
            if "e2e" in job.layer.suites and mutant.file != "fused.py":  # the guard's own file
                keep_fused()
        except Exception as error:
            tell({"invalid": f"{type(error).__name__}: {error}"[:300]})
            return
    else:
        if job.device:
            launches.watch()
        job.active.cover()
        job.active.reached()
    for start in _start:
        start(items[0].config)
    if job.device:
        launches.open_device(job.device)
    for i, item in enumerate(items):
        name = _name(item)
        tell({"start": name})
        limit_processor_time(limit(name))
        following = items[i + 1] if i + 1 < len(items) else None
        record = _timed(item, following)
        if mutant is None and job.device and record["outcome"] == Outcome.PASS and record["seconds"] > REPEATED:
            # Only the time: an engine may remember the texts of the first run, as suffix decoding does.
            record["seconds"] = _timed(item, following)["seconds"]
        record["case"] = name
        if mutant is None:
            record["reached"] = measured.ranges(sorted(job.active.reached()))
        if mutant is None and job.device:
            record["kernels"] = sorted(launches.launched)
            launches.launched.clear()
        tell(record)
        has_lost_device = bool(job.device) and record["outcome"] == Outcome.CRASH
        if has_lost_device or (enough is not None and enough(record)):
            return


def _timed(item: pytest.Item, following: pytest.Item | None) -> dict[str, Any]:
    began = processor_seconds()
    record = _run_one(item, following)
    return record | {"seconds": round(processor_seconds() - began, 4)}


def _run_one(item: pytest.Item, following: pytest.Item | None) -> dict[str, Any]:
    from verispec.pytest_plugin import RECORD

    failed: list[str] = []

    class Watch:
        @pytest.hookimpl(wrapper=True)
        def pytest_runtest_makereport(self, item: pytest.Item, call: Any) -> Generator[None, Any, Any]:
            report = yield
            if report.failed:
                is_plain = isinstance(call.excinfo.value, AssertionError) if call.excinfo else False
                failed.append("fail" if is_plain else "error")
            return report

    watch = Watch()
    item.config.pluginmanager.register(watch)
    try:
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
    finally:
        item.config.pluginmanager.unregister(watch)
    record = item.stash.get(RECORD, None)
    if record is None:
        # A plain test that raises what its subject raised has still told the two apart.
        return {"outcome": "fail" if failed else "pass"}
    outcome = str(record.get("outcome", Outcome.ERROR))
    return {"outcome": outcome, "reason": str(record.get("reason", record.get("failure", "")))[:200]}


def _measure(job: Job, items: dict[str, pytest.Item]) -> None:
    """Run every case once without a mutant; write its processor time, its outcome and the mutants that it reaches.

    Cases that `job.baseline` holds already are left out, but for those that a lower limit ended. Each process's results
    are appended when it ends.
    """
    names = [name for name in items if not measured.is_known(job.baseline.get(name), job.slowest)]
    size = max(1, min(8, len(names) // (4 * job.processes) + 1))
    chunks = [names[i : i + size] for i in range(0, len(names), size)]

    def limit(case: str) -> float:
        return job.slowest + COMPILING * bool(job.device)

    pool = Pool(job.processes, limit)
    with job.out.open("a", encoding="utf-8") as out:
        while chunks or len(pool):
            while chunks and not pool.full:
                pool.add(_fork(job, items, chunks.pop(0), limit, None, None))
            for child in pool.wait():
                done = set()
                for record in child.results:
                    if "broken" in record or "invalid" in record:
                        raise RuntimeError(str(record))
                    done.add(record["case"])
                    out.write(json.dumps(record) + "\n")
                out.flush()
                left = [c for c in child.cases if c not in done]
                if left:
                    chunks.append(left)


def _judge(job: Job, items: dict[str, pytest.Item]) -> None:
    """Run each mutant against the cases that reach it."""
    known = {n: r for n, r in job.baseline.items() if n in items and measured.is_usable(r, job.slowest)}
    times: dict[str, float] = {name: record["seconds"] for name, record in known.items()}
    reaching = measured.reaching(known)
    kills: dict[tuple[str, str], int] = {}
    earlier = results.open_records(job.out)
    slack = SLACK + COMPILING * bool(job.device)

    def limit(case: str) -> float:
        return times[case] * SLOWER + slack

    pool = Pool(job.processes, limit)
    waiting = list(job.mutants)
    states: dict[int, _State] = {}
    with job.out.open("a", encoding="utf-8") as out:

        def write(state: _State) -> None:
            result = state.result()
            record = {"type": "mutant", **result.to_json()}
            if result.verdict in KILLS:
                key = (result.mutant.file, result.case)
                kills[key] = kills.get(key, 0) + 1
            elif not job.is_last and result.verdict != Verdict.INVALID:
                record |= {"type": "open", "round": job.round, "records": state.records}
            out.write(json.dumps(record) + "\n")
            out.flush()

        while waiting or len(pool):
            while waiting and not pool.full:
                mutant = waiting.pop(0)
                state = _State(mutant, job, reaching, times, kills, earlier.get(mutant.id, ()))
                if not state.cases:
                    write(state)
                    continue
                child = _fork(job, items, state.cases, limit, state.mutant, state.ends_process)
                states[child.pipe] = state
                pool.add(child)
            for child in pool.wait():
                state = states.pop(child.pipe)
                state.take(child.results)
                if state.rest():
                    again = _fork(job, items, state.rest(), limit, state.mutant, state.ends_process)
                    states[again.pipe] = state
                    pool.add(again)
                    continue
                write(state)


class _State:
    """A mutant on its way through its cases."""

    def __init__(
        self,
        mutant: Mutant,
        job: Job,
        reaching: dict[int, list[str]],
        times: dict[str, float],
        kills: dict[tuple[str, str], int],
        earlier: Sequence[dict[str, Any]] = (),
    ) -> None:
        self.mutant = mutant
        self._earlier = earlier
        self._results: list[dict[str, Any]] = []
        self._began = time.monotonic()
        self._invalid = ""
        if job.device and launches.kernels_of(job.layer.folder / mutant.file):
            cases = launches.cases_of(mutant, job.layer, job.baseline, times)
        else:
            cases = {case for key in job.active.keys(mutant) for case in reaching.get(key, ())}
        cases = set(cases).difference(record["case"] for record in earlier)

        self.is_late = mutant.trigger == "repeated"

        def order(case: str) -> tuple[bool, bool, int, float]:
            # A case that compares first calls with late ones must be the first of its process.
            is_first = self.is_late and measured.compares_with_first_calls(case)
            return (not self.is_own(case), not is_first, -kills.get((mutant.file, case), 0), times[case])

        self.cases: list[str] = []
        self.left_out = 0
        spent = 0.0
        for case in measured.spread_over_tests(sorted(cases, key=order), self.is_own):
            if spent > job.limit and self.cases:
                self.left_out += 1
                continue
            self.cases.append(case)
            spent += times[case]

    @property
    def records(self) -> list[dict[str, Any]]:
        """The records of all cases that the mutant has met, in earlier rounds too."""
        return [*self._earlier, *self._results]

    def is_own(self, case: str) -> bool:
        """Return True if a case tests a clause of the mutated op, or of any op for a layer without ops."""
        return not self.mutant.ops or measured.subject(case) in self.mutant.ops

    def is_enough(self, record: dict[str, Any]) -> bool:
        return str(record["outcome"]) == "fail"

    def ends_process(self, record: dict[str, Any]) -> bool:
        """Return True after a failure, and after a case whose hundred calls would be the next one's first calls."""
        is_used = self.is_late and measured.compares_with_first_calls(record["case"])
        return is_used or self.is_enough(record)

    def take(self, results: list[dict[str, Any]]) -> None:
        for record in results:
            if "invalid" in record:
                self._invalid = record["invalid"]
            elif "broken" in record:
                self._results.append({"case": "", "outcome": "crash", "seconds": 0.0, "reason": record["broken"]})
            else:
                self._results.append(record)

    def rest(self) -> list[str]:
        """Return the cases to continue with after a crash, those of clauses with fewer crashes first."""
        bad = {outcome: [r for r in self._results if r["outcome"] == outcome] for outcome in ("crash", "timeout")}
        is_lost = len(bad["crash"]) >= MOST_CRASHES or len(bad["timeout"]) >= MOST_TIMEOUTS
        if self._invalid or is_lost or any(map(self.is_enough, self._results)) or not self._results:
            return []
        done = {r["case"] for r in self._results}
        return [] if "" in done else measured.left_after(self.cases, done, [r["case"] for r in bad["crash"]])

    def result(self) -> MutantResult:
        records = self.records
        failed = next((r for r in records if r["outcome"] == "fail"), None)
        bad = [r for r in records if r["outcome"] in ("crash", "timeout", "error")]
        reason = ""
        if self._invalid:
            verdict, case, reason = Verdict.INVALID, "", self._invalid
        elif failed and "CompilationError" in str(failed.get("reason", "")):
            verdict, case, reason = Verdict.INVALID, failed["case"], str(failed["reason"])
        elif not self.cases and not records:
            verdict, case = Verdict.NOT_REACHED, ""
        elif failed:
            case = failed["case"]
            verdict = Verdict.KILLED if self.is_own(case) else Verdict.KILLED_ELSEWHERE
        elif bad:
            verdict, case, reason = Verdict.CRASHED, bad[0]["case"], str(bad[0].get("reason", ""))
        else:
            verdict, case = Verdict.SURVIVED, ""
            reason = f"{self.left_out} more cases reach it" if self.left_out else ""
        seconds = round(time.monotonic() - self._began, 3)
        crashes = [f"{r['outcome']} {r['case']}" for r in bad]
        return MutantResult(self.mutant, verdict, case, len(records), seconds, reason, crashes)
