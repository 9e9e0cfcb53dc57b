"""The HTML page: whole, self-contained, and safe against what engines write."""

from __future__ import annotations

import fcntl
import json
import re
import threading
import urllib.error
import urllib.request
from html.parser import HTMLParser
from pathlib import Path

import pytest
from run_headers import header

from verispec.report.html import as_html
from verispec.report.html.inputs import read_all
from verispec.report.html.serve import make_server
from verispec.report.pictures._canvas import Canvas
from verispec.report.verdict import summarise
from verispec.run.record import Record
from verispec.run.runfile import Run

VOID = {"meta", "link", "input", "br", "wbr"}
HOSTILE = "</script><script>alert(1)</script>\u2028<!--&\"'"
HEADER = header(
    engine={"asked": "m:E", "name": HOSTILE, "details": {"k": HOSTILE}},
    platform={"python": "3.11", "system": "Linux", "machine": "x86_64", "cpus": 2, "packages": {"torch": "2"}},
    command=["verispec", "run", HOSTILE],
)
FAILURE = {
    "kind": "value",
    "message": HOSTILE,
    "examples": [{"index": [0], "expected": 1, "got": HOSTILE}],
    "details": {"log": HOSTILE},
}
RECORDS = (
    Record("sampler/expand_batch_to_tokens:EXP-1:b=1", "pass"),
    Record("sampler/expand_batch_to_tokens:EXP-2:b=1", "fail", failure=FAILURE, reach=HOSTILE),
    Record("sampler/flatten_sampled:FLS-1", "unsupported", reason=HOSTILE),
)
STATIC = {
    "format": "verispec/signatures/1",
    "tree": HOSTILE,
    "findings": [
        {
            "rule": "SIG101",
            "level": "error",
            "symbol": HOSTILE,
            "message": HOSTILE,
            "fix": HOSTILE,
            "sides": [{"label": "call", "location": {"path": HOSTILE, "line": 3}, "text": HOSTILE}],
        }
    ],
}


class Page(HTMLParser):
    """Parse a page; collect ids, links, scripts and visible text, and check that every element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.scripts: list[str] = []
        self.text = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.ids += [value for name, value in attrs if name == "id" and value]
        self.links += [value for name, value in attrs if name in ("href", "src") and value]
        if tag == "script":
            self.scripts.append(str(found.get("type")))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def page() -> str:
    return as_html([summarise(Run(HEADER, RECORDS, {"complete": True}))], findings=[STATIC])


def test_the_page_is_well_formed_and_loads_nothing(page: str) -> None:
    parsed = Page(page)
    assert len(parsed.ids) == len(set(parsed.ids))
    assert parsed.links == ["data:,", *(f"#{name}" for name in (
        "causes", "matrix", "static", "cases", "excludes", "statistics", "budget", "untested", "environment",
        "parameters", "reading", "parameters",
    ))]  # fmt: skip
    assert {link[1:] for link in parsed.links if link.startswith("#")} <= set(parsed.ids)
    assert not re.search(r"""url\(|@import|https?://""", page.replace("https://github.com/verispec/verispec", ""))


def test_what_an_engine_writes_is_text(page: str) -> None:
    """A name, a message, a path or a log can end neither an attribute nor a script."""
    assert Page(page).scripts == ["application/json", "None"]
    assert "<script>alert" not in page
    data = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
    assert [data["texts"][case[2]] for case in data["cases"]] == ["pass", "fail", "rejected"]
    assert data["texts"][data["cases"][1][3]] == HOSTILE
    assert len(data["texts"]) == len(set(data["texts"])), "a text is there twice"


def test_what_decides_is_readable_without_scripts(page: str) -> None:
    text = Page(page.partition("<script type")[0] + "</body></html>").text
    for wanted in ("1 cause for 1 failing case of 2 decided", "EXP-2, expand_batch_to_tokens", "1 of 2 fail",
                   "1 not tested", "verispec repro sampler/expand_batch_to_tokens:EXP-2:b=1 --engine m:E",
                   "bad"):  # fmt: skip
        assert wanted in text


def test_of_several_runs_the_comparison_comes_first() -> None:
    """The causes of 22 runs were 140,000 pixels high, and the table that compares the runs came after them."""
    runs = [summarise(Run(HEADER, RECORDS, {"complete": True}))] * 4
    page = as_html(runs)
    assert page.index('id="matrix"') < page.index('id="causes"')
    assert page.index('href="#matrix"') < page.index('href="#causes"')
    assert page.count('<details class="run"><summary>') == 6 * len(runs), "each run of each section is one line"
    assert '<td class="count" data-label="failing cases">1</td>' in page
    assert '<details class="run" open>' in as_html(runs[:2]), "two runs fit on a page"
    assert '<details class="run"' not in as_html(runs[:1])


def test_the_index_of_a_site_leaves_details_to_the_pages_of_the_runs() -> None:
    runs = [summarise(Run(HEADER, RECORDS, {"complete": True}))] * 2
    parsed = Page(as_html(runs, pages=["a.html", "b.html"]))
    assert {"a.html", "b.html", "a.html#cause-1-1", "b.html#cause-1-1"} <= set(parsed.links)
    assert not {"statistics", "untested", "cause-1-1"} & set(parsed.ids)
    assert {link[1:] for link in parsed.links if link.startswith("#")} <= set(parsed.ids)


def test_several_runs_are_columns() -> None:
    good = Run(HEADER, RECORDS[:1], {"complete": True})
    text = Page(as_html([summarise(Run(HEADER, RECORDS, {"complete": True})), summarise(good)])).text
    assert "2 runs" in text
    assert "1 of 2 fail" in text
    assert "1 pass" in text
    assert "not run" in text


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    path = tmp_path / "run.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in (HEADER, RECORDS[0].to_json())) + "\n")
    return path


def test_results_and_static_reports_are_told_apart(run_file: Path, tmp_path: Path) -> None:
    static = tmp_path / "signatures.json"
    static.write_text(json.dumps(STATIC))
    runs, findings = read_all([run_file, static])
    assert (len(runs), len(findings)) == (1, 1)


def test_a_run_in_progress_is_followed(run_file: Path) -> None:
    server = make_server([run_file], 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        address = f"http://127.0.0.1:{server.server_port}"
        page = urllib.request.urlopen(f"{address}/").read().decode()
        assert 'data-live="/version"' in page
        assert "1 of 3 cases have a result" in page
        before = urllib.request.urlopen(f"{address}/version").read()
        with run_file.open("a") as file:
            file.write(json.dumps(RECORDS[1].to_json()) + "\n")
        assert urllib.request.urlopen(f"{address}/version").read() != before
        assert "not complete: 2 of 3 cases have a result" in urllib.request.urlopen(f"{address}/").read().decode()
        with run_file.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # as a run does while it writes
            page = urllib.request.urlopen(f"{address}/").read().decode()
        assert "in progress: 2 of 3 cases have a result" in page
        assert "cut off" not in page
        run_file.write_text("")
        with pytest.raises(urllib.error.HTTPError, match="503"):
            urllib.request.urlopen(f"{address}/")
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{address}/../secret")
    finally:
        server.shutdown()
        server.server_close()


def test_short_details_are_facts_and_lists_are_lines() -> None:
    details = {"sample": "70 of at most 2,000 requests", "impossible outcomes": ["request 4: a", "request 7: b"],
               "counts": [{"cell": "0", "observed": 3}, {"cell": "10", "observed": 35}]}  # fmt: skip
    record = Record(
        "sampler/expand_batch_to_tokens:EXP-2:b=1",
        "fail",
        failure={"kind": "value", "message": "wrong", "details": details},
    )
    page = as_html([summarise(Run(HEADER, (record,), {"complete": True}))])
    assert "<li>sample: 70 of at most 2,000 requests</li>" in page
    assert '<pre tabindex="0">request 4: a\nrequest 7: b</pre>' in page
    assert "cell  observed\n   0         3\n  10        35" in page
    assert "<summary>sample</summary>" not in page


def test_numbers_of_an_axis_do_not_lie_on_each_other() -> None:
    canvas = Canvas("title", (0, 1), (0, 100))
    canvas.axes("x", "y", [], {-2: "-2", 0: "0", 8: "8", 100: "100"})
    assert re.findall(r'text-anchor="end">([-\d]+)<', canvas.render()) == ["100", "8", "0"]
