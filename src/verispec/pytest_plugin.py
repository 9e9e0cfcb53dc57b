"""The pytest side of a run: which engine, which cases, and one record for each of them.

Loaded by ``suites/pytest.ini`` with ``-p`` and never through an entry point, so that it does not
leak into anybody else's pytest.
"""

from __future__ import annotations

import json
import random
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from verispec.cases import CaseId, CaseSpec, selects
from verispec.engines import Engine, Unsupported, UnsupportedCall
from verispec.engines._resolve import resolve
from verispec.judge import Inconclusive, Mismatch, OpUnderTest, Outcome
from verispec.reference import contracts

CASE = pytest.StashKey[CaseId]()
SPEC = pytest.StashKey[CaseSpec]()
PARAMS = pytest.StashKey[dict[str, Any]]()
RECORD = "verispec"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("verispec")
    group.addoption("--engine", default="reference", help="name of the engine under judgement")
    group.addoption("--only", action="append", default=[], help="case id, prefix or pattern; may be given often")
    group.addoption("--skip-cases", default="", help="file with ids that are already judged, one a line")
    group.addoption("--smoke", action="store_true", help="the first case of every clause")
    group.addoption("--seed", type=int, default=7, help="seed of everything that is drawn")
    group.addoption("--started", default="", help="file to which the id of each case is appended before it runs")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One item for each combination of the parameters that `case` listed."""
    spec = getattr(metafunc.function, "__verispec_case__", None)
    if spec is None or not spec.params:
        return
    names = list(spec.params)
    rows = list(spec.combinations())
    metafunc.parametrize(
        names, [tuple(row.values()) for row in rows], ids=[_query({**row, **spec.fixed}) for row in rows]
    )


def _query(params: dict[str, Any]) -> str:
    return ";".join(f"{name}={_text(value)}" for name, value in params.items())


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ",".join(_text(v) for v in value)
    return str(value)


def subject_of(item: pytest.Item) -> str:
    """The op that a suite file judges: the stem of ``test_<op>.py``."""
    return item.path.stem.removeprefix("test_")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Name every item by its case id, and keep the ones that were asked for."""
    seen: dict[str, str] = {}
    kept, dropped = [], []
    done = set(Path(config.option.skip_cases).read_text().splitlines()) if config.option.skip_cases else set()
    first_of: set[tuple[str, str]] = set()
    for item in items:
        spec = getattr(getattr(item, "function", None), "__verispec_case__", None)
        if spec is None:
            raise pytest.UsageError(f"{item.nodeid}: a test in a suite needs @case, else it judges no clause")
        callspec = getattr(item, "callspec", None)
        params = {**(callspec.params if callspec else {}), **spec.fixed}
        case_id = CaseId(
            item.path.parent.name, subject_of(item), spec.clause, tuple((k, _text(v)) for k, v in params.items())
        )
        text = str(case_id)
        if text in seen:
            raise pytest.UsageError(f"{item.nodeid} and {seen[text]} have the same case id {text}: add a fixed parameter")
        seen[text] = item.nodeid
        item.stash[CASE], item.stash[SPEC], item.stash[PARAMS] = case_id, spec, params
        wanted = not config.option.only or any(selects(p, text) for p in config.option.only)
        key = (case_id.subject, case_id.clause)
        if config.option.smoke and key in first_of:
            wanted = False
        if wanted and text not in done:
            first_of.add(key)
            kept.append(item)
        else:
            dropped.append(item)
    items[:] = kept
    if dropped:
        config.hook.pytest_deselected(items=dropped)


@pytest.fixture(scope="session")
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """The engine under judgement."""
    under_test = resolve(request.config.option.engine)
    yield under_test
    under_test.close()


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


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logstart(nodeid: str, location: Any) -> None:
    """Nothing is printed by pytest itself; the supervisor shows progress from the records."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if path := item.config.option.started:
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{item.stash[CASE]}\n")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Attach the record of the case to its report; xdist carries it to the controller."""
    result = yield
    report = result.get_result()  # type: ignore[attr-defined]
    if report.when == "teardown" or (report.when == "setup" and call.excinfo is None):
        return
    outcome, failure, reason = _judge(call)
    spec, params = item.stash[SPEC], item.stash[PARAMS]
    record = {
        "type": "case",
        "id": str(item.stash[CASE]),
        "outcome": outcome.value,
        "seconds": round(call.duration, 6),
        "reach": spec.reach_of(params),
        "test": item.nodeid.partition("[")[0],
    }
    if failure is not None:
        record["failure"] = failure
    if reason:
        record["reason"] = reason
    report.user_properties.append((RECORD, json.dumps(record)))


def _judge(call: pytest.CallInfo[None]) -> tuple[Outcome, dict[str, Any] | None, str]:
    if call.excinfo is None:
        return Outcome.PASS, None, ""
    error = call.excinfo.value
    if isinstance(error, Mismatch):
        return Outcome.FAIL, error.failure.to_json(), ""
    if isinstance(error, UnsupportedCall):
        return Outcome.UNSUPPORTED, None, str(error)
    if isinstance(error, Inconclusive):
        return Outcome.INCONCLUSIVE, None, str(error)
    text = "".join(traceback.format_exception(error)[-6:])
    return Outcome.ERROR, None, f"{type(error).__name__}: {error}\n{text}"
