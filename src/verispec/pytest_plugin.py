"""The pytest side of a run: which engine, which cases, and one record for each of them.

Loaded by ``suites/pytest.ini`` with ``-p`` and never through an entry point, so that it does not leak into
anybody else's pytest. Under the supervisor (`ForkServer`) pytest collects once and forks workers, which run the
cases and report events. Without a supervisor, a suite is plain pytest, as its author wants it.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
import traceback
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from verispec import exits
from verispec.engines import Description, Engine, UnsupportedCall
from verispec.engines.protocol.check import check_subjects
from verispec.engines.protocol.running_case import begin_case
from verispec.engines.protocol.source_places import places
from verispec.engines.registry import resolve
from verispec.errors import VerispecError, describe_exception
from verispec.judge import (
    DeviceLost,
    Kind,
    Mismatch,
    OpUnderTest,
    Outcome,
    Replayed,
    explained,
    offered,
)
from verispec.judge._poison_rng import seed_poison_rng
from verispec.judge.statistics.budget import allow_p_values
from verispec.kernel_swap.patch_sites import substituted
from verispec.reference import contracts
from verispec.run import captured_call
from verispec.run.code_digest import code_digest
from verispec.run.events import (
    CaseEnded,
    CaseShrinks,
    CaseStarted,
    CloseFailed,
    Collected,
    EngineClosing,
    EngineRefused,
    EngineStarted,
    EventWriter,
    SuiteFailed,
)
from verispec.run.fork_server import ForkServer
from verispec.run.items import (
    CASE,
    OMITTED,
    PARAMS,
    SPEC,
    asked_for,
    contract_of,
    name_case,
    needed_rows,
    query,
    subject_of,
)
from verispec.run.outcome import bounded, decisive, process_ended, result_of
from verispec.run.record import FAILING, is_quick
from verispec.saved_calls.keeper import Keeper

if TYPE_CHECKING:
    from verispec.judge.statistics.trial import Trial

RECORD = pytest.StashKey[dict[str, Any]]()
CPU = pytest.StashKey[float]()
"""Processor seconds of this process when the case began."""
ENGINE = pytest.StashKey[Engine]()
DESCRIPTION = pytest.StashKey[Description]()
SERVER = pytest.StashKey[ForkServer | None]()
EVENTS = pytest.StashKey[EventWriter | None]()
KEEPER = pytest.StashKey[Keeper]()
SUBJECTS = pytest.StashKey[frozenset[str]]()
"""Subjects of the selected cases: names of ops, or of parts such as ``whole_sampler``."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of a run."""
    group = parser.getgroup("verispec")
    group.addoption("--engine", default="reference", help="name of the engine under test")
    group.addoption("--device", default=None, help="cpu or cuda; the engine's own choice when left out")
    group.addoption("--only", action="append", default=[], help="case id, prefix or pattern; may be given often")
    group.addoption("--exact", action="store_true", help="take --only as a whole id")
    group.addoption("--smoke", action="store_true", help="the first quick case of every clause")
    group.addoption("--seed", type=int, default=7, help="seed of everything that is drawn")
    group.addoption("--save", default="", help="file for all values of the case's last call (.npz)")
    group.addoption("--record", default="", help="folder for the cases that fail, with the inputs of their calls")
    group.addoption("--shrink", default="", help="file for the case, with its failing call made small")
    group.addoption("--replay", default="", help="file of a saved case, whose call replaces the case's own")
    group.addoption("--export", default="", help="file for a test of the engine alone, made from --replay")
    group.addoption("--trial", action="store_true", help="end the process at once when the case crashes")
    group.addoption("--budget", default="standard", help="sample sizes of statistical tests: quick, standard, nightly")
    group.addoption("--detail", action="store_true", help="records with the inputs of failing calls")


def pytest_configure(config: pytest.Config) -> None:
    """Find the event log if a supervisor started this process."""
    _settle_hypothesis()
    server = next((plugin for plugin in config.pluginmanager.get_plugins() if isinstance(plugin, ForkServer)), None)
    config.stash[SERVER] = server
    config.stash[EVENTS] = server.events if server else None
    config.stash[OMITTED] = {}
    if server:
        config.pluginmanager.register(_CollectionErrors(server.events))


class _CollectionErrors:
    """Reports suites that cannot be collected: they end the run, because their cases would be missing silently."""

    def __init__(self, events: EventWriter) -> None:
        self._events = events

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._events.write(SuiteFailed(report.nodeid, str(report.longrepr)))


def _settle_hypothesis() -> None:
    """Draw the same examples in every run, without a database, and without a deadline for slow machines."""
    import hypothesis

    hypothesis.settings.register_profile("verispec", derandomize=True, deadline=None, database=None)
    hypothesis.settings.load_profile("verispec")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one item for each combination of the parameters that `case` listed."""
    spec = getattr(metafunc.function, "__verispec_case__", None)
    if spec is None or not (spec.params or spec.subjects):
        return
    rows = list(spec.combinations())
    if metafunc.config.option.only or metafunc.config.option.smoke:
        rows = needed_rows(metafunc, spec, rows)
    metafunc.parametrize(
        list(rows[0]), [tuple(row.values()) for row in rows], ids=[query({**row, **spec.fixed}) for row in rows]
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Name every item by its case id, and keep those that match the options."""
    tests = {item.nodeid.partition("[")[0] for item in items}  # a suite may have taken some away
    seen = {text: test for test, texts in config.stash[OMITTED].items() if test in tests for text in texts}
    omitted = list(seen)
    kept: list[pytest.Item] = []
    dropped: list[pytest.Item] = []
    first_of: set[tuple[str, str]] = set()
    for item in items:
        text = str(name_case(item))
        if text in seen:
            raise pytest.UsageError(
                f"{item.nodeid} and {seen[text]} have the same case id {text}: add a fixed parameter"
            )
        seen[text] = item.nodeid
        wanted = asked_for(config, text)
        if wanted and config.option.smoke:
            key = (item.stash[CASE].subject, item.stash[CASE].clause)
            wanted = key not in first_of and is_quick(item.stash[CASE]) and item.stash[SPEC].quick
            first_of |= {key} if wanted else set()
        (kept if wanted else dropped).append(item)
    items[:] = kept = _own_clauses_first(kept)
    config.stash[SUBJECTS] = frozenset(item.stash[CASE].subject for item in kept)
    if dropped:
        config.hook.pytest_deselected(items=dropped)
    if events := config.stash[EVENTS]:
        events.write(Collected([_id(item) for item in kept], [*map(_id, dropped), *omitted]))


def _own_clauses_first(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the items of each suite with those of rules for many subjects last: a run may be cut before they end.

    The clauses of an op itself name a fault of it better than the rules of every op.
    """
    suites = {suite: n for n, suite in enumerate(dict.fromkeys(item.stash[CASE].suite for item in items))}
    return sorted(items, key=lambda item: (suites[item.stash[CASE].suite], bool(item.stash[SPEC].subjects)))


def _id(item: pytest.Item) -> str:
    return str(item.stash[CASE])


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start the engine before the first case, so that its start is not part of any case."""
    if session.items and not session.config.option.collectonly and session.config.stash[SERVER] is None:
        try:
            _start_engine(session.config)
        except VerispecError as error:
            pytest.exit(str(error), returncode=exits.CANNOT_TELL)


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Fork workers if a supervisor started this process; else leave the loop to pytest."""
    server = session.config.stash[SERVER]
    if server is None or session.config.option.collectonly or session.testsfailed:
        return None
    server.serve(lambda events, cases: _work(session, events, cases))
    return True


def _work(session: pytest.Session, events: EventWriter, cases: Iterator[str]) -> None:
    """Run `cases` on an engine of this worker's own."""
    config = session.config
    config.stash[EVENTS] = events
    config.pluginmanager.unregister(name="terminalreporter")  # it is not read, and an engine may close stdout
    config.option.tbstyle = "no"  # nor is a traceback with its sources, which takes longer than most cases
    try:
        _start_engine(config)
    except VerispecError as error:
        events.write(EngineRefused(os.getpid(), error.diagnostic.to_json(), error.exit_code))
        return
    about = config.stash[DESCRIPTION]
    described = {name: getattr(about, name) for name in ("name", "version", "platform", "device", "details")}
    events.write(EngineStarted(os.getpid(), {**described, "digest": code_digest(config.stash[ENGINE])}))
    items = {_id(item): item for item in session.items}
    # pytest finalises the fixtures that the next item does not need, so the next one is taken before this one runs.
    item = next((items[case] for case in cases), None)
    while item is not None:
        following = next((items[case] for case in cases), None)
        config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        item = following
    events.write(EngineClosing(os.getpid()))
    try:
        config.stash[ENGINE].close()
    except BaseException as error:  # sys.exit() in close() is as much a fault as any other exception
        events.write(CloseFailed(os.getpid(), bounded(describe_exception(error))))


def _start_engine(config: pytest.Config) -> None:
    """Start the engine under test. Raises VerispecError, whatever the engine raises."""
    name, subjects = config.option.engine, config.stash[SUBJECTS]
    try:
        config.stash[ENGINE] = resolve(name, config.option.device)
        config.stash[DESCRIPTION] = check_subjects(config.stash[ENGINE], name, subjects)
    except VerispecError:
        raise
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        raise VerispecError(
            "V-ENG-START",
            f"the engine {name!r} cannot be started",
            where="--engine",
            cause=f"{bounded(describe_exception(error))} ({Path(frames[-1].filename).name}:{frames[-1].lineno})",
            hint="start it in Python alone to see the whole traceback",
        ) from error


def pytest_unconfigure(config: pytest.Config) -> None:
    """Close the engine of a plain pytest run; workers close their own."""
    if (under_test := config.stash.get(ENGINE, None)) is not None and config.stash[SERVER] is None:
        under_test.close()


@pytest.fixture(scope="session")
def engine(request: pytest.FixtureRequest) -> Engine:
    """Return the engine under test."""
    return request.config.stash[ENGINE]


@pytest.fixture(scope="session")
def another_process(request: pytest.FixtureRequest, engine: Engine) -> Iterator[Engine]:
    """Yield the engine under test in a second process, with another hash seed; ops only."""
    from verispec.engines.process.subprocess_ops import Child

    if engine.describe().device != "cpu":
        raise UnsupportedCall("only tensors of the host travel to another process")
    option = request.config.option
    child = Child(option.engine, option.device or "cpu", {"PYTHONHASHSEED": "4"})
    yield child
    child.close()


@pytest.fixture
def op(request: pytest.FixtureRequest, engine: Engine) -> OpUnderTest:
    """Return the op that the suite file is named after, of the engine under test."""
    name = subject_of(request.node)
    function = offered(engine.op(name))
    device = request.config.stash[DESCRIPTION].device
    under_test = OpUnderTest(contracts.load(name), substituted(name, function), device)
    request.node.stash[KEEPER].watch(under_test)
    return under_test


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Return the seed of the case: drawn from the run's seed and the case id, the same in every process and order."""
    return _seed_of(request.node)


def _seed_of(item: pytest.Item) -> int:
    return random.Random(f"{item.config.option.seed}/{item.stash[CASE]}").getrandbits(63)


@pytest.fixture
def trial(request: pytest.FixtureRequest, seed: int) -> Trial:
    """Return the statistical test of the case; its evidence goes into the case's record."""
    from verispec.judge.statistics.trial import Trial

    option = request.config.option
    evidence: dict[str, Any] = {}
    request.node.stash[RECORD]["evidence"] = evidence
    return Trial(str(request.node.stash[CASE]), seed, option.seed, option.budget, evidence)


@pytest.fixture
def record(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the record of the case, to which a suite adds measurements."""
    case_record: dict[str, Any] = request.node.stash[RECORD]
    return case_record


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """Begin the record of the case, and report its start."""
    spec, params = item.stash[SPEC], item.stash[PARAMS]
    reach = spec.reach_of(params, item.config.stash[DESCRIPTION].platform)
    item.stash[CPU] = time.process_time()
    begin_case(_id(item))
    own = contracts.registered_clause(spec.clause)
    rule = {"rule": own.text} if own else {}
    item.stash[RECORD] = {"id": _id(item), "test": _test(item), **rule, "reach": reach}
    if events := item.config.stash[EVENTS]:
        events.write(CaseStarted(os.getpid(), _log_size(), item.stash[RECORD]))
    item.stash[KEEPER] = Keeper(item.config.option, _id(item), subject_of(item), item.path.parent)
    with _interrupts_are_failures(item.config):
        return (yield)


def _test(item: pytest.Item) -> str:
    """Return file and function of a test; one outside of the suites' folder has no folder in its name."""
    name = item.nodeid.partition("[")[0]
    return f"{item.path.name}{name}" if name.startswith("::") else name


def _log_size() -> int:
    try:
        return os.lseek(2, 0, os.SEEK_END)
    except OSError:  # an engine may have closed it
        return 0


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Run the case; an interrupt by the engine is a failure."""
    seed_poison_rng(_seed_of(item))
    with _interrupts_are_failures(item.config), allow_p_values(item.stash[SPEC].p_values):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Export the saved call, or run the saved step, instead of the case's own, where one is given."""
    keeper, engine_ = pyfuncitem.stash[KEEPER], pyfuncitem.config.stash[ENGINE]
    if pyfuncitem.config.option.export:
        pyfuncitem.obj = lambda **_: keeper.export(engine_)
    elif keeper.replays_step:
        pyfuncitem.obj = lambda **_: keeper.run_step(engine_)
    try:
        return (yield)
    except Replayed:
        return True


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Release the case's fixtures; an interrupt by the engine is a failure."""
    with _interrupts_are_failures(item.config):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> Iterator[Any]:
    """Set up a fixture; a mismatch inside counts as the failure of every case that uses it."""
    try:
        with _interrupts_are_failures(request.config):
            return (yield)
    except Mismatch as failure:
        # pytest caches an Exception by itself, without which it cannot finish the fixture.
        fixturedef.cached_result = (None, fixturedef.cache_key(request), (failure, failure.__traceback__))  # type: ignore[arg-type]
        raise


@contextlib.contextmanager
def _interrupts_are_failures(config: pytest.Config) -> Iterator[None]:
    """Turn exceptions that pytest does not survive into failures: in a worker, only the engine can have raised them."""
    try:
        yield
    except BaseException as error:
        survived = isinstance(error, Exception) and not isinstance(error, pytest.exit.Exception)
        if survived or config.stash[SERVER] is None:
            raise
        raise Mismatch(process_ended(error)) from error


def _places(item: pytest.Item) -> dict[str, str]:
    """Return the places of the tested part, and the line that triggers the fault, where the clause knows it."""
    clause = contracts.clause_of(item.stash[SPEC].clause)
    return places(item.config.stash[ENGINE], contract_of(item), clause.origin if clause else None)


_DAMAGING = (Kind.OUTSIDE, Kind.ACCEPTED)
"""Failures after which memory may be damaged, seen or not: a new process keeps later cases from being blamed for it."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Complete the record of the case; a failing set-up counts like a failing call."""
    report = yield
    record = item.stash[RECORD]
    events = item.config.stash[EVENTS]
    error = None if call.excinfo is None else decisive(call.excinfo.value)
    if call.when == "teardown":
        if error is not None and record["outcome"] == Outcome.PASS:
            record.update(result_of(error))
        if events:
            events.write(CaseEnded(os.getpid(), record))
            if record.get("failure", {}).get("kind") in _DAMAGING:
                os._exit(exits.CANNOT_TELL)
        del item.stash[KEEPER]  # it holds the tensors of the last call, and items live as long as the session
    elif call.when == "call" or error is not None:
        record.update(result_of(error), seconds=round(call.duration, 6))
        record["cpu"] = round(time.process_time() - item.stash[CPU], 3)
        if record["outcome"] in FAILING and (where := _places(item)):
            record["places"] = where
        if isinstance(error, Mismatch):
            if events and item.config.option.shrink:
                events.write(CaseShrinks(os.getpid()))
            engine_ = item.config.stash[ENGINE]
            smaller = item.stash[KEEPER].failed(error.failure, getattr(item, "funcargs", {}), engine_)
            tested = getattr(item, "funcargs", {}).get("op")
            compared = tested.compared if isinstance(tested, OpUnderTest) else None
            try:
                record["failure"] = bounded(explained(smaller, compared).to_json())
            except DeviceLost as lost:  # the failure stays the result, but later cases need another process
                record["failure"], error = bounded(smaller.to_json()), lost
        if events and isinstance(error, DeviceLost):
            record["failure"]["details"] = item.stash[KEEPER].crashed() | record["failure"].get("details", {})
            events.write(CaseEnded(os.getpid(), record))
            os._exit(exits.CANNOT_TELL)  # the supervisor goes on in a new process, with a context of its own
        called = item.stash[KEEPER].step or item.funcargs  # type: ignore[attr-defined]
        if item.config.option.detail:
            record["detail"] = captured_call.detail_of(called)
        if item.config.option.save:
            captured_call.save(called, Path(item.config.option.save))
    return report
