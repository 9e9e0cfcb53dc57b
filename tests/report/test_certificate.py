"""Certificates: merged evidence, merged couplings, what is excluded, exit codes, and pages that parse."""

from __future__ import annotations

import json
import re
from typing import Any
from xml.etree import ElementTree

import pytest

from verispec.report import pictures
from verispec.report.certificate import Certificate, explanation_of, fails_together, message_of, statistics_line
from verispec.run.record import Record
from verispec.run.runfile import Run

HEADER = {"engine": {"asked": "x"}, "verispec": "0", "seed": 7, "platform": {"packages": {}}}
BETS = [{"where": "bonus token", "fault": "temperature", "size": size} for size in (0.9, 0.95, 1.05)]
ID = "sampler/whole_sampler:WS-10:limits=none;draft=present;mode=law"
COUPLED = "sampler/whole_sampler:WS-9:draft=present;part={};mode=law"


def evidence(log10_e: float | None = -0.5, **changes: Any) -> dict[str, Any]:
    return {
        "log10_e": log10_e,
        "log10_limit": 8.0,
        "weight": 0.01,
        "count": 300,
        "unit": "requests",
        "impossible": [],
        "best": [{"label": "bonus token: temperature x0.95", "log10": 0.1, "issues": []}],
        "excluded": BETS[:2],
        "found": [],
        "all": BETS,
        "trail": {"count": [100, 300], "log10_e": [0.1, log10_e], "bets": {"bonus <token>": [0.0, 0.2]}},
        "places": {"likely first": [[10] * 16], "paired": [[5] * 4] * 4},
        "reliability": [[10.0] * 10, [5.0] * 10, [5.0] * 10],
        **changes,
    }


def certificate(*records: Record, complete: bool = True) -> Certificate:
    return Certificate(Run(HEADER, records, {"complete": complete}))


def coupling(part: int) -> Record:
    shown = {"requests": 50_000, "tokens": 99_000, "differing": 0, "total_variation": 2.8e-4, "brackets": []}
    return Record(COUPLED.format(part), "pass", evidence={"coupling": shown})


def test_couplings_of_a_family_are_merged() -> None:
    total = certificate(coupling(1), coupling(2)).couplings["flat"]
    assert total["requests"] == 100_000
    assert total["total_variation"] == pytest.approx(1.38e-4, rel=0.01)


def test_the_smallest_excluded_size_is_kept_on_either_side() -> None:
    (row,) = certificate(Record(ID, "pass", evidence=evidence())).excluded
    assert row["families"] == {"flat": "x0.95"}


def test_a_failing_test_excludes_nothing_and_is_bad() -> None:
    failing = Record(ID, "fail", failure={"kind": "law", "message": "E = 1e9"}, evidence=evidence(9.0))
    bad = certificate(failing)
    assert bad.exit_code() == 1
    assert bad.excluded[0]["families"] == {"flat": ""}
    assert "E = 1e9" in bad.as_markdown()


def test_a_certificate_of_failures_alone_has_no_empty_table() -> None:
    failing = Record(ID, "fail", failure={"kind": "law", "message": "E = 1e9"}, evidence=evidence(9.0))
    assert "No fault is excluded: no test passed." in certificate(failing).as_markdown()
    assert "| outcome | fault |" not in certificate(failing).as_markdown()
    passing = Record(COUPLED.format(1), "pass", evidence=evidence())
    assert "| outcome | fault |" in certificate(failing, passing).as_markdown()


def test_tests_without_a_result_are_no_passes() -> None:
    """They are counted apart, and listed once per reason."""
    failing = Record(ID, "fail", failure={"kind": "law", "message": "E = 1e9"}, evidence=evidence(9.0))
    absent = [Record(COUPLED.format(part), "unsupported", reason="no generation") for part in range(5)]
    page = certificate(failing, *absent, Record(COUPLED.format(9), "inconclusive", reason="too few")).as_markdown()
    assert "1 of 1 statistical tests fail. 6 have no result." in page
    assert f"- unsupported, no generation: {COUPLED.format(0)} and 4 more" in page
    assert f"- inconclusive, too few: {COUPLED.format(9)}\n" in page
    assert page.count("no generation") == 1


def test_a_fault_beside_the_statistics_keeps_what_they_exclude() -> None:
    apart = {"apart": {"without": "greedy requests", "message": "greedy request 4 emitted [0]"}}
    failing = {"kind": "value", "message": "greedy request 4 emitted [0]"}
    bad = certificate(Record(ID, "fail", failure=failing, evidence=evidence() | apart))
    assert bad.exit_code() == 1
    assert bad.excluded[0]["families"]["flat"]
    assert "1 of them pass without greedy requests" in bad.statement()
    assert "greedy request 4" in bad.as_markdown()
    both = certificate(Record(ID, "fail", failure=failing, evidence=evidence(9.0) | apart))
    assert both.excluded[0]["families"] == {"flat": ""}


def test_a_table_of_markdown_escapes_bars() -> None:
    bet = [{"where": "recovered token", "fault": "unsigned", "size": 0.95}]
    page = certificate(Record(ID, "pass", evidence=evidence() | {"all": bet, "excluded": bet})).as_markdown()
    assert "the residual is \\|p - q\\|" in page


def test_a_certificate_names_the_replaced_kernels() -> None:
    passed = (Record(ID, "pass", evidence=evidence()),)
    repaired = Certificate(Run({**HEADER, "transplanted": ["a", "b"]}, passed, {"complete": True}))
    assert repaired.statement().startswith("With the reference's a and b: E = ")
    assert repaired.to_json()["transplanted"] == ["a", "b"]
    assert "reference's" not in certificate(*passed).statement()


def test_evidence_of_several_tests_adds_up() -> None:
    """Neither test reaches its own limit of 1e8; their weighted sum reaches that of the run."""
    records = [Record(ID + f";n={n}", "pass", evidence=evidence(7.9)) for n in range(2)]
    assert certificate(records[0]).exit_code() == 0
    assert certificate(*records).exit_code() == 1


def test_a_run_whose_tests_fail_together_is_bad() -> None:
    records = [Record(ID + f";n={n}", "pass", evidence=evidence(7.9)) for n in range(2)]
    assert fails_together(records)
    assert not fails_together(records[:1])
    # A test that fails on its own is a cause, which may be a known failure.
    alone = Record(ID, "xfail", observed="fail", evidence=evidence(9.0))
    assert not fails_together([alone])


def test_nothing_tested_or_incomplete_cannot_tell() -> None:
    assert certificate().exit_code() == 125
    assert certificate(Record(ID, "pass", evidence=evidence()), complete=False).exit_code() == 125


def test_an_impossible_outcome_is_infinite_evidence() -> None:
    record = Record(ID, "fail", failure={"message": "x"}, evidence=evidence(None, impossible=["token 3"]))
    assert "infinite" in statistics_line([record], {})
    assert json.loads(json.dumps(certificate(record).to_json()))["log10_e"] is None


def test_a_run_without_statistics_says_nothing_of_them() -> None:
    assert statistics_line([Record(ID, "pass")], {}) == ""


def law(number: int, outcome: str = "fail") -> Record:
    impossible = evidence(None, impossible=["token 3"])
    message = 'an impossible outcome: token 3; best explained by "bonus token" (E 1e99); --seed 7 repeats it'
    return Record(f"{ID};n={number}", outcome, failure={"message": message}, evidence=impossible)


def test_consequences_of_a_cause_are_counted_and_are_no_evidence_of_another_fault() -> None:
    passed = Record(ID, "pass", evidence=evidence(0.5))
    every = {law(n).id: "EXP-2" for n in (1, 2)}
    line = statistics_line([law(1), law(2), passed], every)
    assert "2 of 3 tests of random outputs fail (all 2 as consequences of EXP-2); the other test finds nothing" in line
    others = [Record(f"{ID};n={n}", "pass", evidence=evidence(0.5)) for n in (8, 9)]
    assert "; the other 2 find nothing against the engine (E of the run = 0." in statistics_line(
        [law(1), *others], every
    )
    assert "statistics: 1 test of random outputs finds nothing against the engine" in statistics_line([passed], {})
    line = statistics_line([law(1), law(2), law(3), passed], {law(1).id: "EXP-2", law(2).id: "RRS-7"})
    assert "3 of 4" in line
    assert "(1 as a consequence of EXP-2, 1 as a consequence of RRS-7), with evidence E = infinite" in line
    assert "evidence" not in statistics_line([law(1), law(2)], every)
    assert "consequence" not in statistics_line([law(1), passed], {})
    assert certificate(law(1), law(2)).statement(every) == (
        "2 of 2 statistical tests fail (all 2 as consequences of EXP-2)."
    )


def test_a_test_that_ends_before_it_has_evidence_is_counted() -> None:
    """A token of probability 0 ends a test; a case that the engine rejects is no test."""
    ended = [Record(f"{ID};n={n}", "fail", failure={"kind": "law"}) for n in (7, 8)]
    rejected = Record(f"{ID};n=9", "unsupported", reason="no")
    passed = Record(ID, "pass", evidence=evidence(0.5))
    line = statistics_line([law(1), *ended, rejected, passed], {law(1).id: "EXP-2"})
    assert "3 of 4 tests of random outputs fail (1 as a consequence of EXP-2); the other test with an E finds" in line


def test_a_consequence_names_its_cause_instead_of_the_best_explanation() -> None:
    source = {law(1).id: "EXP-2"}
    assert explanation_of(law(1), source) == "a consequence of EXP-2"
    assert message_of(law(1), source) == "a consequence of EXP-2: an impossible outcome: token 3"
    assert explanation_of(law(2), source) == "bonus token: temperature x0.95"
    assert "best explained by" in message_of(law(2), source)


def test_the_page_has_every_picture_and_no_scripts() -> None:
    noise = {"noise": {"values": 10, "smallest": 1e-7, "grid_bits": 24, "repeated": 0.1, "lost": 0.01}}
    needle = Record("sampler/whole_sampler:WS-14:mode=law", "pass", evidence=noise)
    page = certificate(Record(ID, "pass", evidence=evidence()), needle, coupling(1)).as_html()
    assert page.count("<svg") == 6
    assert page.count("<script") == 1
    assert 'type="application/json"' in page


def test_infinite_evidence_is_drawn_and_named() -> None:
    trail = {"count": [300], "log10_e": [None], "bets": {}}
    picture = pictures.evidence_over_tokens({**evidence(None), "trail": trail})
    (curve,) = re.findall(r'points="([^"]+)"[^>]*stroke-width="2"', picture)
    assert len(curve.split()) == 2, "a start and no end"
    assert ">E, infinite<" in picture


@pytest.mark.parametrize(
    "picture",
    [
        pictures.evidence_over_tokens(evidence(None)),
        pictures.reliability(evidence()),
        pictures.reliability({}),
        pictures.excluded_sizes([("a < b", "x0.95", 0.05), ("c", "not excluded", 1.0)]),
        pictures.excluded_sizes([]),
        pictures.noise_table([("flat", {"needles": {"seen": 1, "expected": 30.0, "probability": 1e-8}})]),
    ],
)
def test_pictures_are_well_formed(picture: str) -> None:
    assert ElementTree.fromstring(picture).tag.endswith("svg")
