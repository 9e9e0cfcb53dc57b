"""The questions that a history answers: failures and their first run, engines that disagree, flaky cases, the trend."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any

from verispec import exits
from verispec.errors import VerispecError
from verispec.history.store import Store
from verispec.run.record import FAILING

_FAILING = ", ".join(f"'{outcome}'" for outcome in FAILING)


@dataclass(frozen=True, slots=True)
class FailingCase:
    """A case that fails in the newest run of an engine that has it.

    Attributes:
        since: start of the first run of the failures without a pass between; `version` is the engine's version there.
        passed: start of the last run that passed, None if none did; `passed_version` is the engine's version there.
        runs: the number of failing runs since then.
    """

    engine: str
    case_id: str
    outcome: str
    since: datetime
    version: str
    passed: datetime | None
    passed_version: str | None
    runs: int


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A case that passes in the newest runs of some engines and fails in those of others."""

    case_id: str
    passing: list[str]
    failing: list[str]


@dataclass(frozen=True, slots=True)
class FlakyCase:
    """A case with passes and failures although the same code ran with the same seed."""

    engine: str
    case_id: str
    passes: int
    failures: int
    last: datetime


@dataclass(frozen=True, slots=True)
class Night:
    """The counts of one run."""

    started: datetime
    engine: str
    version: str
    cases: int
    failing: int
    undecided: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Answers:
    """All answers about a history; `runs` and `cases` count its rows."""

    runs: int
    cases: int
    failing: list[FailingCase]
    disagreements: list[Disagreement]
    flaky: list[FlakyCase]
    trend: list[Night]

    def to_json(self) -> dict[str, Any]:
        """Return the answers as JSON values; times in ISO format, UTC."""
        return {"format": "verispec/history/1", **_json(asdict(self))}


def ask(store: Store, *, engine: str = "", case: str = "", since: datetime | None = None, nights: int = 14) -> Answers:
    """Return all answers.

    Args:
        store: store of the history.
        engine: engine to ask about, as ``--engine`` named it; all if empty.
        case: beginning of the ids of cases to ask about; all if empty.
        since: start of the earliest run to ask about.
        nights: runs of the trend, newest first.

    Raises:
        VerispecError: V-HIST-EMPTY, there is no run that matches.
    """
    database = store.database
    if store.count():
        database.execute(
            "CREATE OR REPLACE TEMP VIEW history AS SELECT * FROM read_parquet("
            f"'{store.files.replace(chr(39), chr(39) * 2)}') WHERE " + _condition(engine, case, since)
        )
        database.execute(_RUNS)
        database.execute(_NEWEST)
        database.execute(_REPEATED)
        (runs, cases) = database.execute("SELECT count(*), coalesce(sum(cases), 0)::BIGINT FROM runs").fetchall()[0]
    else:
        runs = cases = 0
    if not runs:
        raise VerispecError(
            "V-HIST-EMPTY",
            "there is no such folder" if store.is_missing() else "the history has no run that matches",
            where=store.place,
            hint="add runs: verispec history FOLDER --add 'runs/*.jsonl'",
            exit_code=exits.CANNOT_TELL,
        )

    def rows(query: str, kind: type[Any]) -> list[Any]:
        names = ", ".join(field.name for field in fields(kind))
        return [kind(*row) for row in database.execute(f"SELECT {names} FROM ({query})").fetchall()]

    return Answers(
        runs,
        cases,
        rows(_FIRST_FAILURE, FailingCase),
        rows(_DISAGREEMENT, Disagreement),
        rows(_FLAKY, FlakyCase),
        rows(f"{_TREND} LIMIT {int(nights)}", Night),
    )


_RUNS = f"""
CREATE OR REPLACE TEMP TABLE runs AS
SELECT run, any_value(started) AS started, any_value(engine) AS engine, any_value(version) AS version,
       any_value(ran) AS ran, count(*) AS cases, count(*) FILTER (outcome IN ({_FAILING})) AS failing,
       count(*) FILTER (outcome IN ('unsupported', 'inconclusive', 'error')) AS undecided, sum(seconds) AS seconds
FROM history GROUP BY run
"""
"""One row a run: its start, engine, version and code are the same in all rows of its cases."""

_NEWEST = """
CREATE OR REPLACE TEMP TABLE newest AS
WITH latest AS (SELECT engine, case_id, outcome, max(started) AS started
                FROM history GROUP BY engine, case_id, outcome),
     cases AS (SELECT engine, case_id, arg_max(outcome, started) AS outcome,
                      max(started) FILTER (outcome = 'pass') AS passed
               FROM latest GROUP BY engine, case_id),
     versions AS (SELECT engine, started AS passed, any_value(version) AS passed_version
                  FROM runs GROUP BY engine, started)
SELECT * FROM cases LEFT JOIN versions USING (engine, passed)
"""

_FIRST_FAILURE = f"""
SELECT engine, case_id, newest.outcome AS outcome, min(started) AS since, arg_min(version, started) AS version,
       passed, passed_version, count(*) AS runs
FROM history JOIN newest USING (engine, case_id)
WHERE newest.outcome IN ({_FAILING}) AND history.outcome IN ({_FAILING})
  AND case_id IN (SELECT case_id FROM newest WHERE outcome IN ({_FAILING}))
  AND (passed IS NULL OR started > passed)
GROUP BY ALL ORDER BY since DESC, engine, case_id
"""

_DISAGREEMENT = f"""
SELECT case_id,
       list_sort(list(engine) FILTER (outcome = 'pass')) AS passing,
       list_sort(list(engine) FILTER (outcome IN ({_FAILING}))) AS failing
FROM newest GROUP BY case_id
HAVING count(*) FILTER (outcome = 'pass') > 0 AND count(*) FILTER (outcome IN ({_FAILING})) > 0
ORDER BY case_id
"""

_REPEATED = f"""
CREATE OR REPLACE TEMP TABLE repeated AS
SELECT engine, case_id, ran, count(*) AS failures, max(started) AS last
FROM history
WHERE outcome IN ({_FAILING}) AND ran IN (SELECT ran FROM runs GROUP BY ran HAVING count(*) > 1)
GROUP BY engine, case_id, ran
"""
"""Failures of code that ran more than once: few rows, which find the passes of the same code quickly."""

_FLAKY = """
SELECT engine, case_id, sum(passes)::INTEGER AS passes, sum(failures)::INTEGER AS failures,
       max(greatest(repeated.last, passing.last)) AS last
FROM repeated JOIN (
    SELECT engine, case_id, ran, count(*) AS passes, max(started) AS last
    FROM history SEMI JOIN repeated USING (engine, case_id, ran)
    WHERE outcome = 'pass' GROUP BY engine, case_id, ran) AS passing USING (engine, case_id, ran)
GROUP BY engine, case_id ORDER BY last DESC, engine, case_id
"""

_TREND = "SELECT * FROM runs ORDER BY started DESC, engine"


def _condition(engine: str, case: str, since: datetime | None) -> str:
    """Return the condition of the view; a view takes no parameters, so that values are quoted here."""
    parts = ["true"]
    if engine:
        parts.append(f"engine = {_quoted(engine)}")
    if case:
        parts.append(f"starts_with(case_id, {_quoted(case)})")
    if since:
        parts.append(f"started >= TIMESTAMP {_quoted(since.isoformat(sep=' '))}")
    return " AND ".join(parts)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _json(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _json(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_json(inner) for inner in value]
    return value.isoformat() if isinstance(value, datetime) else value
