"""The pytest side of a run: which engine, which cases, and one record for each of them.

Loaded by ``suites/pytest.ini`` with ``-p`` and never through an entry point, so that it does not
leak into anybody else's pytest. Under the supervisor (``--scratch``) every process keeps a log of its
own and tells the journal what it does; without it, a suite is plain pytest, as its author wants it.
"""

from __future__ import annotations

import os
import random
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from verispec import exits
from verispec.cases import CaseId, CaseSpec, selects
from verispec.engines import Engine, Unsupported, UnsupportedCall
from verispec.engines.protocol.check import check_subjects
from verispec.engines.registry import resolve
from verispec.errors import VerispecError
from verispec.judge import DeviceLost, Failure, Inconclusive, Kind, Mismatch, OpUnderTest, Outcome, lost_device
from verispec.reference import contracts
from verispec.run import captured_call
from verispec.run.narrator import Narrator
from verispec.run.record import is_quick

if TYPE_CHECKING:
    from verispec.judge.statistics.trial import Trial

CASE = pytest.StashKey[CaseId]()
SPEC = pytest.StashKey[CaseSpec]()
PARAMS = pytest.StashKey[dict[str, Any]]()
RECORD = pytest.StashKey[dict[str, Any]]()
ENGINE = pytest.StashKey[Engine]()
NARRATOR = pytest.StashKey[Narrator | None]()
SUBJECTS = pytest.StashKey[frozenset[str]]()
"""What the selected cases test: names of ops, or of parts such as ``whole_sampler``."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("verispec")
    group.addoption("--engine", default="reference", help="name of the engine under judgement")
    group.addoption("--device", default=None, help="cpu or cuda; the engine's own choice when left out")
    group.addoption("--only", action="append", default=[], help="case id, prefix or pattern; may be given often")
    group.addoption("--exact", action="store_true", help="take --only as a whole id")
    group.addoption("--smoke", action="store_true", help="the first quick case of every clause")
    group.addoption("--seed", type=int, default=7, help="seed of everything that is drawn")
    group.addoption("--save", default="", help="file for all values of the case's last call (.npz)")
    group.addoption("--budget", default="standard", help="sample sizes of statistical tests: quick, standard, nightly")
    group.addoption("--detail", action="store_true", help="records with the inputs of failing calls")
    group.addoption("--scratch", default="", help="the supervisor's folder: skip, journal.jsonl, logs")


def pytest_configure(config: pytest.Config) -> None:
    _settle_hypothesis()
    config.stash[NARRATOR] = None
    if config.option.scratch:
        narrator = Narrator(Path(config.option.scratch), _worker(config))
        config.pluginmanager.register(narrator)
        config.stash[NARRATOR] = narrator


def _settle_hypothesis() -> None:
    """The same examples in every run, no deadline (a slow machine is no finding), nothing kept between runs."""
    import hypothesis

    hypothesis.settings.register_profile("verispec", derandomize=True, deadline=None, database=None)
    hypothesis.settings.load_profile("verispec")


def _worker(config: pytest.Config) -> str:
    """The name of this pytest-xdist worker; empty in the process that pytest was started in."""
    return str(getattr(config, "workerinput", {}).get("workerid", ""))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One item for each combination of the parameters that `case` listed."""
    spec = getattr(metafunc.function, "__verispec_case__", None)
    if spec is None or not (spec.params or spec.subjects):
        return
    rows = list(spec.combinations())
    metafunc.parametrize(
        list(rows[0]), [tuple(row.values()) for row in rows], ids=[_query({**row, **spec.fixed}) for row in rows]
    )


def _query(params: dict[str, Any]) -> str:
    return ";".join(f"{name}={_text(value)}" for name, value in params.items() if value is not None)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ",".join(_text(v) for v in value)
    return str(value)


def subject_of(item: pytest.Item) -> str:
    """The op that a case judges: its parameter `subject`, else the stem of ``test_<op>.py``."""
    spec = getattr(getattr(item, "function", None), "__verispec_case__", None)
    if spec is not None and spec.subjects:
        return str(item.callspec.params["subject"])  # type: ignore[attr-defined]
    return item.path.stem.removeprefix("test_")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Name every item by its case id, and keep the ones that were asked for."""
    seen: dict[str, str] = {}
    kept: list[pytest.Item] = []
    dropped: list[pytest.Item] = []
    done = _already_judged(config)
    first_of: set[tuple[str, str]] = set()
    for item in items:
        text = str(_name(item))
        if text in seen:
            raise pytest.UsageError(
                f"{item.nodeid} and {seen[text]} have the same case id {text}: add a fixed parameter"
            )
        seen[text] = item.nodeid
        wanted = _asked_for(config, text)
        if wanted and config.option.smoke:
            key = (item.stash[CASE].subject, item.stash[CASE].clause)
            wanted = key not in first_of and is_quick(item.stash[CASE])
            first_of |= {key} if wanted else set()
        (kept if wanted and text not in done else dropped).append(item)
    items[:] = kept
    config.stash[SUBJECTS] = frozenset(item.stash[CASE].subject for item in kept)
    if dropped:
        config.hook.pytest_deselected(items=dropped)
    if narrator := config.stash[NARRATOR]:
        narrator.collected(map(_id, kept), map(_id, dropped))


def _asked_for(config: pytest.Config, case: str) -> bool:
    only, exact = config.option.only, config.option.exact
    return not only or any(pattern == case if exact else selects(pattern, case) for pattern in only)


def _already_judged(config: pytest.Config) -> set[str]:
    skip = Path(config.option.scratch, "skip")
    return set(skip.read_text(encoding="utf-8").splitlines()) if config.option.scratch and skip.exists() else set()


def _name(item: pytest.Item) -> CaseId:
    spec = getattr(getattr(item, "function", None), "__verispec_case__", None)
    if spec is None:
        raise pytest.UsageError(f"{item.nodeid}: a test in a suite needs @case, else it judges no clause")
    callspec = getattr(item, "callspec", None)
    params = {**(callspec.params if callspec else {}), **spec.fixed}
    if spec.subjects:
        del params["subject"]
    texts = tuple((name, _text(value)) for name, value in params.items() if value is not None)
    item.stash[CASE] = CaseId(item.path.parent.name, subject_of(item), spec.clause, texts)
    item.stash[SPEC], item.stash[PARAMS] = spec, params
    return item.stash[CASE]


def _id(item: pytest.Item) -> str:
    return str(item.stash[CASE])


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start the engine before the first case, so that its start is not part of any case."""
    controls_workers = bool(getattr(session.config.option, "numprocesses", None)) and not _worker(session.config)
    if session.items and not session.config.option.collectonly and not controls_workers:
        _start_engine(session.config)


def _start_engine(config: pytest.Config) -> None:
    narrator = config.stash[NARRATOR]
    try:
        under_test = resolve(config.option.engine, config.option.device)
        subjects = config.stash[SUBJECTS]
        description = check_subjects(under_test, config.option.engine, subjects)
    except Exception as error:
        refusal = error if isinstance(error, VerispecError) else _cannot_start(config.option.engine, error)
        if narrator:
            narrator.refused(refusal.diagnostic)
        pytest.exit(str(refusal), returncode=exits.CANNOT_TELL)
    config.stash[ENGINE] = under_test
    if narrator:
        narrator.started(description)


def _cannot_start(name: str, error: Exception) -> VerispecError:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return VerispecError(
        "V-ENG-START",
        f"the engine {name!r} cannot be started",
        where="--engine",
        cause=f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})",
        hint="start it in Python alone to see the whole traceback",
    )


def pytest_unconfigure(config: pytest.Config) -> None:
    """Close the engine after the last case has its verdict."""
    if under_test := config.stash.get(ENGINE, None):
        under_test.close()


@pytest.fixture(scope="session")
def engine(request: pytest.FixtureRequest) -> Engine:
    """The engine under judgement."""
    return request.config.stash[ENGINE]


@pytest.fixture
def op(request: pytest.FixtureRequest, engine: Engine) -> OpUnderTest:
    """The op that the suite file is named after, of the engine under judgement."""
    name = subject_of(request.node)
    function = engine.op(name)
    if isinstance(function, Unsupported):
        raise UnsupportedCall(function.reason)
    return OpUnderTest(contracts.load(name), function, engine.describe().device)


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """A seed of the case's own: from the run's seed and the case id, the same in every process and order."""
    case_id = str(request.node.stash[CASE])
    return random.Random(f"{request.config.option.seed}/{case_id}").getrandbits(63)


@pytest.fixture
def trial(request: pytest.FixtureRequest, seed: int) -> Trial:
    """The statistical test of the case; what it shows goes into the case's record."""
    from verispec.judge.statistics.trial import Trial

    option = request.config.option
    evidence: dict[str, Any] = {}
    request.node.stash[RECORD]["evidence"] = evidence
    return Trial(str(request.node.stash[CASE]), seed, option.seed, option.budget, evidence)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    spec, params = item.stash[SPEC], item.stash[PARAMS]
    reach = spec.reach_of(params, item.config.stash[ENGINE].describe().platform)
    item.stash[RECORD] = {"id": _id(item), "test": item.nodeid.partition("[")[0], "reach": reach}
    if narrator := item.config.stash[NARRATOR]:
        narrator.begins(item.stash[RECORD])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Complete the record of the case; a failing set-up is judged like a failing call."""
    report = yield
    record = item.stash[RECORD]
    if call.when == "teardown":
        if call.excinfo is not None and record["outcome"] == Outcome.PASS:
            record.update(_judge(call))
        if narrator := item.config.stash[NARRATOR]:
            narrator.ended(record)
    elif call.when == "call" or call.excinfo is not None:
        record.update(_judge(call), seconds=round(call.duration, 6))
        narrator = item.config.stash[NARRATOR]
        if narrator and call.excinfo is not None and isinstance(_decisive(call.excinfo.value), DeviceLost):
            narrator.ended(record)
            os._exit(exits.CANNOT_TELL)  # the supervisor goes on in a new process, with a context of its own
        if item.config.option.detail:
            record["detail"] = captured_call.detail_of(item.funcargs)  # type: ignore[attr-defined]
        if item.config.option.save:
            captured_call.save(item.funcargs, Path(item.config.option.save))  # type: ignore[attr-defined]
    return report


def _judge(call: pytest.CallInfo[None]) -> dict[str, Any]:
    if call.excinfo is None:
        return {"outcome": Outcome.PASS}
    error = _decisive(call.excinfo.value)
    if isinstance(error, Mismatch):
        return {"outcome": Outcome.FAIL, "failure": error.failure.to_json()}
    if isinstance(error, SystemExit):
        failure = Failure(Kind.RAISED, f"SystemExit: {error}: the engine tried to end the process")
        return {"outcome": Outcome.FAIL, "failure": failure.to_json()}
    if isinstance(error, DeviceLost):
        return {"outcome": Outcome.CRASH, "failure": {"kind": "crash", "message": str(error)}}
    if isinstance(error, UnsupportedCall):
        return {"outcome": Outcome.UNSUPPORTED, "reason": str(error)}
    if isinstance(error, Inconclusive):
        return {"outcome": Outcome.INCONCLUSIVE, "reason": str(error)}
    last = traceback.extract_tb(error.__traceback__)[-1]
    return {
        "outcome": Outcome.ERROR,
        "reason": f"{type(error).__name__}: {error}",
        "at": f"{Path(last.filename).name}:{last.lineno}",
    }


def _decisive(error: BaseException) -> BaseException:
    """What an exception is about: Hypothesis wraps a failure that does not come again in a group with it inside."""
    if isinstance(error, BaseExceptionGroup):
        inner = [_decisive(e) for e in error.exceptions]
        return next((e for e in inner if isinstance(e, Mismatch)), inner[0])
    return lost_device(error) or error
