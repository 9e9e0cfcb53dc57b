"""Text report of a run, for a terminal or a log."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from verispec import exits
from verispec.report.brief import CONTRACTS, INSTALL, TITLE, brief_line, ids_line, introduction, met, packaging
from verispec.report.cause import Cause, Gap
from verispec.report.certificate import statistics_line
from verispec.report.severity import MEANING as SEVERITY
from verispec.report.shared import MANY
from verispec.report.verdict import Cell, RunSummary, sources
from verispec.run.plan import BUDGET, SEED, WITHOUT_QUICK_CASES
from verispec.run.record import Record
from verispec.terminal import COLUMNS, printable, wrapped

LEGEND = (
    "An error is a fault that the engine's own callers reach. A note only breaks the contract, the written rules of an "
    "op: no known caller reaches it, or only rarely, or without harm. Clauses ANY-1 and so on hold for every op. "
    "Expected values come from the oracle, which executes these rules. 'verispec explain CASE' says what the "
    f"parameters of a case id mean. {SEVERITY} Shared code belongs to every platform, which may take another branch of "
    "it."
)
_STYLE = {"error": "bold red", "note": "yellow", "known": "cyan"}


def print_verdict(verdict: RunSummary, console: Console, *, errors_only: bool = False) -> None:
    """Print the report; if the output is not a terminal, as plain lines of `COLUMNS` columns that can be sent on."""
    width = console.width if console.is_terminal else COLUMNS
    for line in _lines(verdict, width, errors_only, sent_on=not console.is_terminal):
        console.print(line, soft_wrap=True, highlight=False)


def _lines(verdict: RunSummary, width: int, errors_only: bool, sent_on: bool) -> Iterator[Text]:
    header = verdict.run.header
    yield from _wrapped(title(header), width, style="bold")
    yield from _wrapped(circumstances(header), width, style="dim")
    yield Text()
    yield from _brief(verdict, width, sent_on)
    yield from _table(verdict, width)
    yield Text()
    for line in complaints(verdict):
        yield from _wrapped(line, width, style="red")
    if statistics := statistics_line(verdict.run.records, sources(verdict)):
        yield from _wrapped(statistics, width)
    if not met(verdict.causes):  # else it is on top
        yield from _wrapped(summary(verdict), width, style="bold")
    if len(verdict.causes) > 1:
        yield from _wrapped(LEGEND, width, style="dim")
    for line in kinds(verdict.causes):
        yield from _wrapped(line, width)
    for cause in verdict.causes:
        yield Text()
        yield from _cause(cause, verdict, cause.level, width)
    if verdict.known:
        yield Text()
        yield Text(f"{plural(len(verdict.known), 'known cause')}, as expected", style="bold")
        for cause in verdict.known:
            yield Text()
            yield from _cause(cause, verdict, "known", width)
    for name, found in GAPS.items():
        if gaps := [gap for gap in verdict.gaps if gap.applies == found]:
            yield Text()
            yield Text(name, style="bold")
            for gap in gaps:
                yield from _wrapped(gap_line(gap), width, first=2, rest=4)
    yield Text()
    if len(verdict.causes) > 1:  # the reader of a log begins at its end
        yield from _wrapped(summary(verdict), width, style="bold")
    for line in _remarks(verdict, errors_only):
        yield from _wrapped(line, width)
    yield Text(f"exit {verdict.exit_code(errors_only=errors_only)}")


def _remarks(verdict: RunSummary, errors_only: bool) -> Iterator[str]:
    """Yield remarks on exit codes and selections that surprise a reader."""
    if verdict.run.header["selection"].get("smoke"):
        yield f"smoke has no case of generation: verispec run --suite {WITHOUT_QUICK_CASES} runs those"
    if not errors_only and verdict.exit_code() == exits.BAD and verdict.exit_code(errors_only=True) == exits.GOOD:
        yield "notes alone make this exit code: with --errors-only it is 0"


def _brief(verdict: RunSummary, width: int, sent_on: bool) -> Iterator[Text]:
    """Yield a line and a command for each cause that a user can meet, and for other readers how to run the commands."""
    if found := met(verdict.causes):
        yield from _wrapped(summary(verdict), width, style="bold")
        yield Text()
        yield Text(TITLE.lower(), style="bold")
        if first := introduction(verdict):
            yield from _wrapped(first, width, first=2, rest=2)
        for number, cause in enumerate(found, 1):
            yield from _wrapped(f"{number}. {brief_line(cause, verdict.run.header)}", width, first=2, rest=4)
            yield Text(printable(f"    {repro(cause.case, verdict.run.header)}"), style="dim")
        if said := ids_line(found):
            yield from _wrapped(said, width, first=2, rest=2)
        yield Text()
    if verdict.causes and sent_on:
        yield from _wrapped(CONTRACTS, width, style="dim")
        yield from _wrapped(INSTALL, width, style="dim")
        yield Text()


def complaints(verdict: RunSummary) -> Iterator[str]:
    """Yield the faults of the run itself: low coverage, stale expectations, an engine that ends badly."""
    for shortfall in verdict.shortfalls:
        yield f"coverage: {shortfall}"
    for outcome in verdict.unknown:
        count = plural(verdict.counts[outcome], "case")
        yield f"unknown: {count} with the outcome {outcome!r}, which this version of verispec does not know"
    for record in verdict.stale:
        yield f"stale: {record.id} is expected to fail ({record.issue}) but passes; remove it from the known failures"
    for entry in verdict.unmatched:
        yield f"unmatched: {entry} matches no case; fix its pattern or remove it from the known failures"
    for warning in verdict.run.footer.get("warnings", ()):
        yield f"warning: {warning}"


def title(header: Mapping[str, Any]) -> str:
    """Return the engine, its version, device and plugins, as one line."""
    engine = header["engine"]
    named = "" if engine["asked"] == engine["name"] else f", asked for as {engine['asked']}"
    package = f", packaged as {packaging(engine)}" if packaging(engine) else ""
    plugins = f" with {engine['details']['plugins']}" if "plugins" in engine["details"] else ""
    return f"{engine['name']} {engine['version']} ({engine['device']}){package}{plugins} against the reference{named}"


def circumstances(header: Mapping[str, Any]) -> str:
    """Return the platform and packages of the run, as one line."""
    here, packages = header["platform"], header["platform"]["packages"]
    torch = f"torch {packages['torch']}, " if "torch" in packages else ""
    return (
        f"verispec {header['verispec']}, {torch}Python {here['python']}, {here['system']} {here['machine']}, "
        f"{plural(here['cpus'], 'core')}, seed {header['seed']}"
    )


def summary(verdict: RunSummary) -> str:
    """Return the number of causes, of failing and of decided cases, and the reason why the run is not complete."""
    total = len(verdict.run.records)
    decided = total - verdict.undecided - verdict.absent
    if verdict.failures:
        among = f"{decided:,} decided" if decided < total else f"{total:,}"
        text = f"{causes(verdict.causes)} for {plural(verdict.failures, 'failing case')} of {among}"
    else:
        text = f"no unexpected failure in {plural(decided, 'case')}"
    open_cases = ((verdict.absent, "not applicable"), (verdict.undecided, "not tested"))
    if told := ", ".join(f"{count:,} {name}" for count, name in open_cases if count):
        text += f"; {told}"
    if verdict.run.in_progress:
        text += "; the run is in progress"
    elif not verdict.complete:
        left = verdict.run.footer.get("left")
        reason = verdict.run.footer.get("reason") or "cut off"
        text += f"; the run was {reason}" + (f", {plural(left, 'case')} left" if left else "")
    return text


def causes(found: Sequence[Cause]) -> str:
    """Return the number of causes and, of several, the numbers of errors and notes."""
    count = plural(len(found), "cause")
    return f"{count} ({_levels(found)})" if len(found) > 1 else count


def _levels(found: Sequence[Cause]) -> str:
    levels = Counter(cause.level for cause in found)
    return ", ".join(plural(levels[level], level) for level in ("error", "note") if levels[level])


def kinds(found: Sequence[Cause]) -> Iterator[str]:
    """Yield one line for each kind of fault that several ops share: its causes, counted, and the ops."""
    for fault in dict.fromkeys(cause.fault for cause in found if cause.fault):
        alike = [cause for cause in found if cause.fault == fault]
        ops = sorted({op for cause in alike for op in cause.subjects})
        if len(alike) > 1 and len(ops) >= MANY:
            yield f"one kind of fault, {fault}, is {_levels(alike)} in {len(ops)} ops: {', '.join(ops)}"


GAPS = {"not tested": True, "not applicable: the engine has no such part, or not on this platform": False}
"""Headings of gaps, and whether their cases apply to the engine."""


def repro(case: str, header: Mapping[str, Any]) -> str:
    """Return the command that reproduces one case of the run."""
    command = f"verispec repro {shlex.quote(case)} --engine {shlex.quote(header['engine']['asked'])}{on(header)}"
    for suite in header["selection"]["suites"]:
        if Path(suite).is_absolute():  # a folder of the user, which has no name here
            command += f" --suite {shlex.quote(suite)}"
    if header.get("budget", BUDGET) != BUDGET:
        command += f" --budget {header['budget']}"
    return command if header["seed"] == SEED else f"{command} --seed {header['seed']}"


def on(header: Mapping[str, Any]) -> str:
    """Return ` --device cuda` if the run used a GPU, else an empty string."""
    return " --device cuda" if header["engine"]["device"] == "cuda" else ""


def gap_line(gap: Gap) -> str:
    """Return a gap and its number of cases, as one line."""
    issue = f" ({gap.issue})" if gap.issue else ""
    outcome = f"{_shown(gap.outcome)}: " if gap.applies else ""
    return f"{outcome}{gap.reason}{issue}; {plural(len(gap.cases), 'case')} of {', '.join(gap.subjects)}"


def outcomes(verdict: RunSummary) -> str:
    """Return the number of cases of each outcome, as one line; `shown` names them."""
    found = Counter(shown(record) for record in verdict.run.records)
    return ", ".join(f"{count:,} {name}" for name, count in sorted(found.items(), key=lambda item: (-item[1], item[0])))


def shown(record: Record) -> str:
    """Return the outcome of a case in the words of reports, which tell rejected cases from those that do not apply."""
    return _shown(record.outcome) if record.applies else "not applicable"


def _shown(outcome: str) -> str:
    return "rejected" if outcome == "unsupported" else outcome


def plural(count: int, noun: str) -> str:
    """Return the count and the noun, in plural unless the count is 1."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def extent(cause: Cause) -> str:
    """Return the extent of a cause: its cases, and further clauses beyond the headline's."""
    own = plural(len(cause.cases), "failing case")
    if cause.parts:
        return f"{own} of {', '.join(cause.clauses)}"
    others = [clause for clause in cause.clauses if clause != cause.clause]
    return f"{own}, of this clause and of {', '.join(others)}" if others else own


_MEANINGS = {
    "known": "failing as the list of known failures expects",
    "n/a": "not applicable, the engine has no such part, or not on this platform",
    "not tested": "rejected by the engine, or not decided",
}
"""Meanings of the table's columns that do not explain themselves."""
_COLUMNS: Mapping[str, tuple[str, str]] = {
    "failing": ("failed", "red"),
    "known": ("known", "cyan"),
    "n/a": ("absent", "dim"),
    "not tested": ("undecided", "dim"),
    "passing": ("passed", "green"),
}
"""Columns of the table, each with its count in a `Cell` and its style; n/a stands for not applicable."""


def tested(verdict: RunSummary) -> tuple[dict[str, dict[str, Cell]], list[str]]:
    """Return the rows of `RunSummary.table` with a tested case, and a line about each kind of the others."""
    rows = verdict.table()
    lines = []
    for name, applies in (("not in this engine, or not on this platform", False), ("nothing tested", True)):
        cells = {op: list(row.values()) for op, row in rows.items() if all(not cell.decided for cell in row.values())}
        ops = [op for op, row in cells.items() if any(cell.undecided for cell in row) == applies]
        if ops:
            count = sum(cell.total for op in ops for cell in cells[op])
            lines.append(f"{name}: {', '.join(ops)} ({plural(count, 'case')})")
    return {op: row for op, row in rows.items() if any(cell.decided for cell in row.values())}, lines


def counts_by_op(verdict: RunSummary) -> tuple[Mapping[str, Mapping[str, int]], list[str]]:
    """Return the counts of each op with a tested case, by column, and their total; then lines about the other ops."""
    found, others = tested(verdict)
    rows = {
        subject: {name: sum(getattr(cell, count) for cell in row.values()) for name, (count, _) in _COLUMNS.items()}
        for subject, row in found.items()
    }
    if len(rows) > 1:
        rows["total"] = {name: sum(row[name] for row in rows.values()) for name in _COLUMNS}
    columns = [name for name in _COLUMNS if name != "n/a" or any(row[name] for row in rows.values())]
    return {subject: {name: row[name] for name in columns} for subject, row in rows.items()}, others


def meanings(rows: Mapping[str, Mapping[str, int]]) -> str:
    """Return the meanings of the columns that do not explain themselves and count anything."""
    used = (name for name in _MEANINGS if any(row.get(name) for row in rows.values()))
    return "; ".join(f"{name}: {_MEANINGS[name]}" for name in used)


def _table(verdict: RunSummary, width: int) -> Iterator[Text]:
    """Yield the counts of each op as a table."""
    rows, others = counts_by_op(verdict)
    columns = list(next(iter(rows.values()), _COLUMNS))
    first = max(len(subject) for subject in [*rows, "op"])
    widths = {name: max([len(name), *(len(f"{row[name]:,}") for row in rows.values())]) for name in columns}
    gap = "  " if 2 + first + sum(widths.values()) + 2 * len(columns) <= width else " "
    yield Text(gap.join(["  " + "op".ljust(first), *(name.rjust(widths[name]) for name in columns)]), style="bold")
    for subject, counts in rows.items():
        line = Text("  " + subject.ljust(first))
        for name in columns:
            shown = f"{counts[name]:,}" if counts[name] else "-"
            line.append(f"{gap}{shown.rjust(widths[name])}", style=_COLUMNS[name][1] if counts[name] else "dim")
        if subject == "total":
            line.stylize("bold")
        yield line
    for text in others:
        yield from _wrapped(text, width, first=2, rest=4)
    if found := meanings(rows):
        yield from _wrapped(found, width, first=2, rest=4, style="dim")


def cell_text(cell: Cell) -> str:
    """Return a table cell as text."""
    if cell.failed:
        return f"{cell.failed:,} of {cell.total:,} fail"
    counts = ((cell.known, "known"), (cell.undecided, "not tested"), (cell.absent, "not applicable"))
    extra = ", ".join(f"{count:,} {name}" for count, name in counts if count)
    if not cell.decided:
        return extra
    return f"{cell.passed:,} ok" + (f" ({extra})" if extra else "")


def _cause(cause: Cause, verdict: RunSummary, level: str, width: int) -> Iterator[Text]:
    name = f"{level} {cause.headline}"
    head, *more = _wrapped(f"{name}: {cause.message}", width, first=2, rest=6)
    head.stylize(_STYLE[level], 2, 2 + len(name))
    yield head
    yield from more
    for line in explained(cause):
        yield from _wrapped(line, width, first=6, rest=8)
    yield Text(printable(f"      {repro(cause.case, verdict.run.header)}"), style="dim")


def explained(cause: Cause) -> Iterator[str]:
    """Yield the rule that a cause breaks, then its details, for reports that have no other place for the rule."""
    if cause.norm:
        yield f"rule: {cause.norm}"
    yield from facts(cause)


def places_line(kernel: str, caller: str, code: str = "") -> str:
    """Return the places of the kernel and of its caller, either of which may be empty, as one line.

    Args:
        kernel: place of the kernel.
        caller: place of its caller.
        code: owner of the kernel's code; empty if unknown.
    """
    kernel = f"{kernel} ({code})" if kernel and code else kernel
    return ", ".join(f"{name} defined at {place}" for name, place in (("kernel", kernel), ("caller", caller)) if place)


def facts(cause: Cause) -> Iterator[str]:
    """Yield details of a cause: extent, production reach, known issues."""
    yield f"{extent(cause)}{'; ' + cause.where if cause.where else ''}"
    worse = ((cause.crashes, "ended the process"), (cause.hangs, "gave no answer in time"))
    if found := [f"{count} of them {what}" for count, what in worse if count]:
        yield ", ".join(found)
    if cause.severity:
        yield f"severity: {cause.severity}"
    if cause.reach:
        yield f"reached in production{'' if cause.is_trigger else ', first seen with'}: {cause.reach}"
    elif cause.unreachable:
        yield f"no caller reaches it: {cause.unreachable}"
    elif cause.rare:
        yield f"rare: {cause.rare}"
    elif cause.harmless:
        yield f"reached without harm: {cause.harmless}"
    else:
        yield "no caller is known that passes such arguments"
    if cause.beside:
        *first, last = cause.beside
        clauses = f"{', '.join(first)} or {last}" if first else last
        yield f"may be the fault of {clauses}, which this op fails too"
    if cause.origin:
        yield f"such calls are made at {cause.origin}"
    if cause.stopped:
        yield cause.stopped
    if cause.kernel or cause.caller:
        yield places_line(cause.kernel, cause.caller, cause.code)
    yield from cause.parts
    if cause.consequences:
        subjects = sorted({case.partition(":")[0].partition("/")[2] for case in cause.consequences})
        count, they = len(cause.consequences), "it passes" if len(cause.consequences) == 1 else "they pass"
        more = plural(count, "more failing case")
        yield f"consequences: {more}, of {', '.join(subjects)}; {they} with the reference's kernel in its place"
    if cause.saved:
        yield f"inputs in {cause.saved}"
    for issue in cause.issues:
        yield f"tracked by {issue}"


def _wrapped(text: str, width: int, *, first: int = 0, rest: int = 2, style: str = "") -> list[Text]:
    return [Text(line, style=style) for line in wrapped(text, width, first=first, rest=rest)]
