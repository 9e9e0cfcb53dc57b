"""A site of reports: one page per run, one page that compares them all, and a badge for each."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from verispec.errors import VerispecError
from verispec.report.badge import as_badge
from verispec.report.html import as_html
from verispec.report.html.view import RESULT
from verispec.report.text import summary as summary_line
from verispec.report.verdict import RunSummary
from verispec.whole_file import write_whole

INDEX = "index.html"


def write_site(folder: Path, runs: Sequence[RunSummary], findings: Sequence[dict[str, Any]] = ()) -> list[Path]:
    """Write the site of `runs` into `folder`; return its files, the index first.

    Args:
        folder: made if it is missing; files of the same names are replaced, others stay.
        runs: runs in the order of the columns.
        findings: reports of the static checker, for the index.

    Raises:
        VerispecError: V-CLI-WRITE, a file cannot be written.
    """
    try:
        (folder / "badges").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise VerispecError(
            "V-CLI-WRITE",
            "the site cannot be written",
            where=str(folder),
            cause=error.strerror or str(error),
            hint="name a folder that can be made and written",
        ) from error
    named = list(zip(names(runs), runs, strict=True))
    files = dict(_files(named, findings))
    for name, text in files.items():
        write_whole(folder / name, text, what="the site")
    return [folder / name for name in files]


def _files(named: Sequence[tuple[str, RunSummary]], findings: Sequence[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    pages = [f"{name}.html" for name, _ in named]
    yield INDEX, as_html([run for _, run in named], findings=findings, pages=pages)
    for name, run in named:
        yield f"{name}.html", as_html([run], home=INDEX)
        yield f"badges/{name}.svg", as_badge(run)
    yield "runs.json", json.dumps([_entry(name, run) for name, run in named], indent=2) + "\n"


def _entry(name: str, run: RunSummary) -> Mapping[str, Any]:
    """Return the facts about a run that other programs read."""
    engine = run.run.header["engine"]
    return {
        "engine": engine["name"],
        "version": engine["version"],
        "device": engine["device"],
        "started": run.run.header["started"],
        "result": RESULT[run.exit_code()],
        "summary": summary_line(run),
        "page": f"{name}.html",
        "badge": f"badges/{name}.svg",
    }


def names(runs: Sequence[RunSummary]) -> list[str]:
    """Return a file name for each run: engine, version and device, numbered where several are alike."""
    found: list[str] = []
    for run in runs:
        engine = run.run.header["engine"]
        text = f"{engine['name']}-{engine['version']}-{engine['device']}"
        name = re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip(".-")[:80] or "run"
        same = sum(re.fullmatch(rf"{re.escape(name)}(-\d+)?", other) is not None for other in found)
        found.append(f"{name}-{same + 1}" if same else name)
    return found
