"""``verispec history``: ask about the runs of many nights."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from verispec.terminal import printable
from verispec.whole_file import PatientWriter, require_place

if TYPE_CHECKING:
    from rich.console import Console

    from verispec.history.questions import Answers

app = typer.Typer(add_completion=False)


@app.command()
def history(
    store: Annotated[str, typer.Argument(help="Folder or URL of the history.")],
    add: Annotated[
        list[str] | None, typer.Option(help="Results files to add first; may contain *; repeatable.")
    ] = None,
    engine: Annotated[str, typer.Option(help="Only this engine.")] = "",
    case: Annotated[str, typer.Option(help="Only cases whose id begins with this.")] = "",
    since: Annotated[datetime | None, typer.Option(help="Only runs from this day on.", formats=["%Y-%m-%d"])] = None,
    nights: Annotated[int, typer.Option(help="Number of newest runs in the trend.", min=1)] = 14,
    html: Annotated[Path | None, typer.Option(help="Also write the answers to this HTML file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Ask about the runs of many nights.

    Shows the cases that fail now and since when, cases on which engines disagree, flaky cases, and the trend. A case is
    flaky if it passed and failed although engine, verispec, packages and seed were the same.

    Examples:

        verispec history nightly --add 'runs/*.jsonl'

        verispec history s3://bucket/nightly --engine vllm --since 2026-10-01 --json
    """
    from verispec.history.questions import ask
    from verispec.history.store import Store

    require_place(html, "--html")
    writer = PatientWriter()
    opened = Store(store)
    added = opened.add(add) if add else 0
    answers = ask(opened, engine=engine, case=case, since=since, nights=nights)
    if html is not None:
        from verispec.history.page import as_html

        writer.write(html, as_html(answers, store), what="the page")
    if as_json:
        print(json.dumps({"added": added, **answers.to_json()}, indent=2), flush=True)
    else:
        from rich.console import Console

        _print(Console(highlight=False, soft_wrap=True), answers, added)
    writer.close()


def _print(console: Console, answers: Answers, added: int) -> None:
    console.print(f"{answers.runs:,} runs, {answers.cases:,} results" + (f"; {added:,} runs added" if added else ""))
    failing = [
        (f.case_id, f.engine, f"{f.since:%Y-%m-%d}", f.version, _last_pass(f), str(f.runs)) for f in answers.failing
    ]
    _table(console, "failing now", ("case", "engine", "since", "version", "last pass", "runs"), failing)
    differing = [(d.case_id, ", ".join(d.passing), ", ".join(d.failing)) for d in answers.disagreements]
    _table(console, "engines disagree", ("case", "pass", "fail"), differing)
    flaky = [
        (f.case_id, f.engine, f"{f.passes} of {f.passes + f.failures}", f"{f.last:%Y-%m-%d}") for f in answers.flaky
    ]
    _table(console, "flaky", ("case", "engine", "passes", "last"), flaky)
    trend = [
        (f"{n.started:%Y-%m-%d %H:%M}", n.engine, n.version, str(n.cases), str(n.failing), f"{n.seconds:.0f} s")
        for n in answers.trend
    ]
    _table(console, "newest runs", ("started", "engine", "version", "cases", "failing", "time"), trend)


def _last_pass(failing: Any) -> str:
    return f"{failing.passed:%Y-%m-%d} ({failing.passed_version})" if failing.passed else "never"


def _table(console: Console, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table whose cells are never cut or wrapped: case ids are copied."""
    console.print(f"\n{title}: {len(rows) or 'none'}")
    if rows:
        widths = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
        for row in (columns, *rows):
            line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            console.print(printable(line.rstrip()), markup=False)
