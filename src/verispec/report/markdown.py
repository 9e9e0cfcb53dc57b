"""Markdown page of a run, to be committed: the same results file always gives the same page."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from verispec.report.brief import CONTRACTS, INSTALL, TITLE, brief_line, ids_line, introduction, met, packaging
from verispec.report.cause import Cause, Gap
from verispec.report.certificate import statistics_line
from verispec.report.text import (
    GAPS,
    LEGEND,
    cell_text,
    complaints,
    counts_by_op,
    facts,
    gap_line,
    kinds,
    meanings,
    on,
    outcomes,
    plural,
    repro,
    summary,
)
from verispec.report.verdict import Cell, RunSummary, sources
from verispec.terminal import printable


def as_markdown(verdict: RunSummary) -> str:
    """Return the run as a Markdown page."""
    return "\n".join(_lines(verdict)) + "\n"


def _lines(verdict: RunSummary) -> Iterator[str]:
    header = verdict.run.header
    engine = header["engine"]
    package = f", packaged as {packaging(engine)}" if packaging(engine) else ""
    yield printable(f"# Verdict on {engine['name']} {engine['version']} ({engine['device']}){package}")
    yield ""
    yield f"{_capital(summary(verdict))}."
    if users := met(verdict.causes):
        yield ""
        yield f"## {TITLE}"
        yield ""
        if first := introduction(verdict):
            yield escaped(first)
            yield ""
        for number, cause in enumerate(users, 1):
            yield f"{number}. {escaped(brief_line(cause, header))}"
            yield ""
            yield "   ```console"
            yield f"   $ {repro(cause.case, header)}"
            yield "   ```"
        if said := ids_line(users):
            yield ""
            yield escaped(said)
    if verdict.causes:
        yield ""
        yield escaped(CONTRACTS)
        yield ""
        yield escaped(INSTALL)
    if statistics := statistics_line(verdict.run.records, sources(verdict)):
        yield ""
        yield _capital(escaped(statistics))
    for line in complaints(verdict):
        yield ""
        yield f"**{escaped(line)}**"
    yield ""
    yield from _circumstances(verdict)
    yield ""
    yield "## By op"
    yield ""
    rows, others = counts_by_op(verdict)
    if rows:
        yield from _counts(rows)
    for line in [*others, *filter(None, [meanings(rows)])]:
        yield ""
        yield f"{_capital(escaped(line))}."
    if modes := verdict.modes():
        yield ""
        yield "## Generation by proposer"
        yield ""
        yield from _table("draft", modes, sorted({subject for row in modes.values() for subject in row}))
    if verdict.causes:
        yield ""
        yield "## Causes"
        yield ""
        yield LEGEND
        for line in kinds(verdict.causes):
            yield ""
            yield f"{_capital(escaped(line))}."
        for cause in verdict.causes:
            yield from _cause(cause, cause.level, verdict)
    if verdict.known:
        yield ""
        yield "## Known causes"
        yield ""
        yield "Known failures, each with the issue that tracks it."
        for cause in verdict.known:
            yield from _cause(cause, "known", verdict)
    if verdict.gaps:
        yield ""
        yield "## Not tested"
        yield ""
        yield "Cases that the engine rejects or that could not be decided; none of them counts as passed."
        for name, applies in GAPS.items():
            if gaps := [gap for gap in verdict.gaps if gap.applies == applies]:
                yield ""
                yield f"{_capital(name)}:"
                yield ""
                yield from _gaps(gaps)
    yield ""
    yield "## Again"
    yield ""
    yield "```console"
    yield f"$ {' '.join(run_command(verdict))}"
    yield "```"


def _circumstances(verdict: RunSummary) -> Iterator[str]:
    header, here = verdict.run.header, verdict.run.header["platform"]
    yield "| | |"
    yield "| --- | --- |"
    for name, value in header["engine"]["details"].items():
        yield f"| {name} | {escaped(str(value))} |"
    yield f"| verispec | {header['verispec']} |"
    yield f"| packages | {', '.join(f'{name} {version}' for name, version in here['packages'].items())} |"
    yield f"| machine | Python {here['python']}, {here['system']} {here['machine']}, {plural(here['cpus'], 'core')} |"
    yield f"| seed | {header['seed']} |"
    yield f"| date | {header['started'][:10]} |"
    yield f"| cases | {outcomes(verdict)} |"


def _table(corner: str, rows: Mapping[str, Mapping[str, Cell]], columns: Sequence[str]) -> Iterator[str]:
    yield f"| {corner} | {' | '.join(columns)} |"
    yield f"| --- |{' --- |' * len(columns)}"
    for name, row in rows.items():
        yield f"| {name} | {' | '.join(cell_text(row[c]) if c in row else '' for c in columns)} |"


def _counts(rows: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    columns = list(next(iter(rows.values())))
    yield f"| op | {' | '.join(columns)} |"
    yield f"| --- |{' ---: |' * len(columns)}"
    for name, row in rows.items():
        yield f"| {name} | {' | '.join(f'{row[column]:,}' if row[column] else '-' for column in columns)} |"


def _cause(cause: Cause, level: str, verdict: RunSummary) -> Iterator[str]:
    yield ""
    yield f"### {level}: {cause.headline}"
    yield ""
    if cause.norm:
        yield f"> {escaped(cause.norm)}"
        yield ""
    yield f"{escaped(cause.message.rstrip('.'))}."
    yield ""
    for fact in facts(cause):
        yield f"- {escaped(fact)}"
    yield ""
    yield "```console"
    yield f"$ {repro(cause.case, verdict.run.header)}"
    yield "```"


def _gaps(gaps: Sequence[Gap]) -> Iterator[str]:
    for gap in gaps:
        yield f"- {escaped(gap_line(gap))}"


def run_command(verdict: RunSummary) -> Iterator[str]:
    """Yield the command that repeats the run, with only the options that affect its result."""
    header = verdict.run.header
    yield f"verispec run --engine {header['engine']['asked']}{on(header)} --seed {header['seed']}"
    yield from (f"--suite {suite}" for suite in header["selection"]["suites"])
    yield from (f"--only '{pattern}'" for pattern in header["selection"]["only"])


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def escaped(text: str) -> str:
    """Return the text on one line with Markdown's characters escaped, except underscores inside names."""
    return re.sub(r"[\\`*|<>]|\b_|_\b|(?<=_)_", r"\\\g<0>", printable(" ".join(text.split())))
