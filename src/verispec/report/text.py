"""The verdict as people read it on a terminal or in a log."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from verispec.report.causes import Cause, Gap
from verispec.report.verdict import Cell, Verdict

WIDTH = 120
"""Columns where there is no terminal to ask."""
_STYLE = {"error": "bold red", "note": "yellow", "known": "cyan"}


def print_verdict(verdict: Verdict, console: Console, *, errors_only: bool = False) -> None:
    """Print `verdict`; on no terminal, as plain lines of `WIDTH` columns."""
    if not console.is_terminal:
        console.width = WIDTH
    for part in _parts(verdict, errors_only):
        console.print(part, highlight=False)


def _parts(verdict: Verdict, errors_only: bool) -> Iterator[RenderableType]:
    yield Text(title(verdict.run.header), style="bold")
    yield Text(circumstances(verdict.run.header), style="dim")
    yield ""
    yield _table(verdict)
    engine = str(verdict.run.header["engine"]["asked"])
    if verdict.stale or verdict.unmatched:
        yield ""
    for record in verdict.stale:
        yield Text(f"stale: {record.id} passes, but is expected to fail ({record.issue}): take it off the expectations")
    for entry in verdict.unmatched:
        yield Text(f"unmatched: {entry} selects no case: mend its pattern, or take it off the expectations")
    yield ""
    yield Text(summary(verdict), style="bold")
    for cause in verdict.causes:
        yield from _cause(cause, engine, cause.level)
    if verdict.known:
        yield ""
        yield Text(f"{plural(len(verdict.known), 'known cause')}, as expected", style="bold")
        for cause in verdict.known:
            yield from _cause(cause, engine, "known")
    if verdict.gaps:
        yield ""
        yield Text("not judged", style="bold")
        for gap in verdict.gaps:
            yield _indented(gap_line(gap), 2)
    yield ""
    yield Text(f"exit {verdict.exit_code(errors_only=errors_only)}")


def title(header: Mapping[str, Any]) -> str:
    engine = header["engine"]
    named = "" if engine["asked"] == engine["name"] else f", asked for as {engine['asked']}"
    return f"{engine['name']} {engine['version']} ({engine['device']}) against the reference{named}"


def circumstances(header: Mapping[str, Any]) -> str:
    here, packages = header["platform"], header["platform"]["packages"]
    torch = f"torch {packages['torch']}, " if "torch" in packages else ""
    return (
        f"verispec {header['verispec']}, {torch}Python {here['python']}, {here['system']} {here['machine']}, "
        f"{plural(here['cpus'], 'core')}, seed {header['seed']}"
    )


def summary(verdict: Verdict) -> str:
    """How many causes for how many failing cases of how many, and what kept the run from being whole."""
    total = len(verdict.run.records)
    if verdict.failures:
        text = f"{plural(len(verdict.causes), 'cause')} for {plural(verdict.failures, 'failing case')} of {total:,}"
    else:
        text = f"no unexpected failure in {plural(total, 'case')}"
    if not verdict.complete:
        left = verdict.run.footer.get("left")
        reason = verdict.run.footer.get("reason") or "cut off"
        text += f"; the run was {reason}" + (f", {plural(left, 'case')} left" if left else "")
    return text


def repro(case: str, engine: str) -> str:
    """The one command that reproduces a case."""
    return f"verispec repro {shlex.quote(case)} --engine {shlex.quote(engine)}"


def gap_line(gap: Gap) -> str:
    issue = f" ({gap.issue})" if gap.issue else ""
    return f"{gap.outcome}: {gap.reason}{issue}; {plural(len(gap.cases), 'case')} of {', '.join(gap.subjects)}"


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def extent(cause: Cause) -> str:
    """How far a cause goes: its cases, and the clauses and ops beside the one in the headline."""
    own = plural(len(cause.cases), "case")
    others = [clause for clause in cause.clauses if clause != cause.clause]
    also = f", also under {', '.join(others)}" if others else ""
    return f"{own} of {', '.join(cause.subjects)}{also}"


def _table(verdict: Verdict) -> Table:
    rows = verdict.table()
    columns = list(dict.fromkeys(c for row in rows.values() for c in row))
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    table.add_column("  op", no_wrap=True)
    for column in columns:
        table.add_column(column, no_wrap=True)
    for subject, row in rows.items():
        table.add_row(f"  {subject}", *(_cell(row[c]) if c in row else Text("-", style="dim") for c in columns))
    return table


def _cell(cell: Cell) -> Text:
    text = cell_text(cell)
    return Text(text, style="red" if cell.failed else "green" if cell.passed else "dim")


def cell_text(cell: Cell) -> str:
    if cell.failed:
        return f"{cell.failed:,} of {cell.total:,} fail"
    if cell.undecided == cell.total:
        return f"{cell.total:,} not judged"
    extra = [f"{cell.known:,} known"] * bool(cell.known) + [f"{cell.undecided:,} not judged"] * bool(cell.undecided)
    return f"{cell.passed:,} ok" + (f" ({', '.join(extra)})" if extra else "")


def _cause(cause: Cause, engine: str, level: str) -> Iterator[RenderableType]:
    head = Text()
    head.append(f"{level} {cause.clause}", style=_STYLE[level])
    head.append(f"  {cause.message}")
    yield Padding(head, (0, 0, 0, 2))
    lines = [f"{extent(cause)}{'; ' + cause.where if cause.where else ''}"]
    if cause.reach:
        lines.append(f"reached: {cause.reach}")
    if cause.explained_by:
        lines.append(f"explained by the fault of {cause.explained_by}")
    lines += [f"tracked by {issue}" for issue in cause.issues]
    for line in lines:
        yield _indented(line, 6)
    yield Padding(Text(repro(cause.case, engine), style="dim", overflow="fold", no_wrap=True), (0, 0, 0, 6))


def _indented(line: str, columns: int) -> Padding:
    return Padding(Text(line), (0, 0, 0, columns))
