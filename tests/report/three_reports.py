"""A run in the three forms in which people read it: text, Markdown and a page."""

from __future__ import annotations

import io
import re
from html import unescape
from typing import Any

from rich.console import Console
from run_headers import header

from verispec.report.html import as_html
from verispec.report.markdown import as_markdown
from verispec.report.text import print_verdict
from verispec.report.verdict import RunSummary, summarise
from verispec.run.record import Record
from verispec.run.runfile import Run

PASSING = [Record(f"sampler/compute_slot_mapping:CSM-{n}", "pass") for n in (1, 2)]
HEADER = header()
STRIDES = (
    "sampler/compute_slot_mapping:CSM-10:layout=gapped",
    "sampler/rejection_random_sample:RRS-14:layout=gapped;draft=absent",
    "sampler/eagle_prepare_inputs_padded:EPI-7:layout=gapped",
)


def failing(case: str, **fields: Any) -> Record:
    return Record(case, "fail", failure={"kind": "value", "message": f"wrong in {case}"}, **fields)


def summary_of(*records: Record) -> RunSummary:
    return summarise(Run(HEADER, records, {"complete": True}))


def text_of(summary: RunSummary) -> str:
    out = io.StringIO()
    print_verdict(summary, Console(file=out, width=80, color_system=None))
    return out.getvalue()


def visible(html: str) -> str:
    body = re.sub(r"<(script|style)\b.*?</\1>", " ", html, flags=re.S)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", body)).split())


def reports(*records: Record) -> list[str]:
    """Return the text, the Markdown and the HTML of a run, without line breaks."""
    return three_of(summary_of(*records))


def three_of(summary: RunSummary) -> list[str]:
    """Return the text, the Markdown and the HTML of a summary, without line breaks."""
    markdown = as_markdown(summary).replace("\\", "")
    return [" ".join(text.split()) for text in (text_of(summary), markdown, visible(as_html([summary])))]
