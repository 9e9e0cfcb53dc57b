"""Render runs as one self-contained HTML page: no network, no framework, readable without scripts.

`view` arranges what the page shows. ``page.html.j2`` and the parts beside it lay it out; ``style.css`` and
``explore.js`` are inlined. Causes, the matrix and everything else that decides are plain HTML. Only the list of all
cases is drawn by script, from data inside the page, a hundred rows at a time: 10,000 cases open at once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import resources
from typing import Any

from verispec.report.diff import RunDiff
from verispec.report.html.view import page_of
from verispec.report.verdict import RunSummary


def as_html(
    summaries: Sequence[RunSummary],
    *,
    findings: Sequence[dict[str, Any]] = (),
    diff: RunDiff | None = None,
    live: str = "",
    home: str = "",
    pages: Sequence[str] = (),
) -> str:
    """Return the page of `summaries`, one column per run.

    Args:
        summaries: one or more runs, in the order of the columns.
        findings: reports of the static checker, as ``verispec signatures --json`` prints them.
        diff: the difference between the two runs of `summaries`, shown first.
        home: address of the site's index, for a page of one run.
        pages: addresses of the pages of `summaries`, for the index of a site.
        live: address that answers with the version of a run in progress; the page reloads when it changes.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("verispec.report.html", ""),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters["capitalize_first"] = lambda text: text[:1].upper() + text[1:]
    page = page_of(summaries, findings, diff)
    return environment.get_template("page.html.j2").render(
        page=page,
        style=Markup(_asset("style.css")),
        script=Markup(_asset("explore.js")),
        data=Markup(_inline_json(page["data"])),
        live=live,
        home=home,
        pages=list(pages),
    )


def _asset(name: str) -> str:
    return (resources.files("verispec.report.html") / name).read_text(encoding="utf-8")


def _inline_json(value: Any) -> str:
    """Return JSON that cannot end the script element that it stands in."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
