"""The coverage floor: what a run must decide before silence means that nothing is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_files import write

from verispec import exits
from verispec.errors import VerispecError
from verispec.report.verdict import summarise
from verispec.run.coverage import CLAIMED_OPS, Floor, parse_floor, shortfalls
from verispec.run.record import Record
from verispec.run.runfile import Run


def records(*outcomes: str, op: str = "x", **fields: object) -> list[Record]:
    return [Record(f"sampler/{op}:EXP-{n}", outcome, **fields) for n, outcome in enumerate(outcomes, 1)]  # type: ignore[arg-type]


def test_the_default_floor_is_a_decided_case_of_every_op_that_is_offered() -> None:
    fine = records("pass", "unsupported", "inconclusive")
    assert not list(shortfalls(CLAIMED_OPS, fine, []))
    assert not list(shortfalls(CLAIMED_OPS, fine + records("unsupported", op="y", offered=False), []))
    for outcome in ("unsupported", "inconclusive", "error"):
        (said,) = shortfalls(CLAIMED_OPS, fine + records(outcome, op="y"), [])
        assert said == "no case was decided of 1 op (y), which the engine offers"


def test_a_premise_without_a_decided_case_is_a_shortfall() -> None:
    """An engine whose speculation is off passes the clauses of its text; GEN-8 alone tells that it drafts."""
    told = {"reason": "speculation may be off"}
    texts = [Record("e2e/greedy:GEN-1:draft=ngram k=3", "pass")]
    drafts = [Record(f"e2e/limits:GEN-8:draft={draft}", "unsupported", **told) for draft in ("ngram k=3", "mtp k=3")]
    (said,) = shortfalls(CLAIMED_OPS, texts + drafts + [Record("e2e/limits:GEN-10:stop=any token", "pass")], [])
    assert said == "no case was decided of GEN-8, without which other passes prove little: speculation may be off"
    decided = Record("e2e/limits:GEN-8:draft=eagle3 k=3", "pass")
    assert not list(shortfalls(CLAIMED_OPS, [*texts, *drafts, decided], []))
    issue = {"issue": "https://example.org/1"}
    tracked = [Record(record.id, "unsupported", **told, **issue) for record in drafts]
    absent = [Record(record.id, "unsupported", offered=False) for record in drafts]
    other = [Record("e2e/limits:GEN-10:stop=any token", "pass")]
    assert not list(shortfalls(CLAIMED_OPS, texts + tracked + other, []))
    assert not list(shortfalls(CLAIMED_OPS, texts + absent + other, []))


def test_a_gap_that_is_tracked_is_no_shortfall() -> None:
    tracked = records("unsupported", op="y", issue="https://example.org/1")
    assert not list(shortfalls(CLAIMED_OPS, records("pass") + tracked, []))


def test_every_decided_outcome_counts() -> None:
    decided = [*records("pass", "fail", "crash", "timeout"), Record("sampler/x:EXP-5", "xfail", observed="fail")]
    assert not list(shortfalls(Floor(count=5), decided, []))
    assert list(shortfalls(Floor(count=6), decided, [])) == [
        "5 cases were decided, fewer than 6 (--min-judged)",
    ]


def test_a_percentage_is_one_of_all_cases() -> None:
    half = records("pass", "unsupported")
    assert not list(shortfalls(parse_floor("50%"), half, []))
    assert list(shortfalls(parse_floor("50.1%"), half, [])) == [
        "1 of 2 cases were decided, less than 50.1% (--min-judged)"
    ]


def test_zero_switches_the_floor_off_but_not_what_is_lost() -> None:
    assert not list(shortfalls(parse_floor("0"), records("pass") + records("unsupported", op="y"), []))
    (said,) = shortfalls(parse_floor("0"), records("pass"), ["sampler/x:EXP-9"])
    assert "sampler/x:EXP-9" in said


def test_a_run_file_is_a_floor(tmp_path: Path) -> None:
    path = tmp_path / "before.jsonl"
    write(path, *records("pass", "fail", "unsupported")).release()
    floor = parse_floor(str(path))
    assert not list(shortfalls(floor, records("fail", "pass", "unsupported"), []))
    (said,) = shortfalls(floor, records("pass", "unsupported", "pass"), [])
    assert said == f"1 case (sampler/x:EXP-2) decided in {path} not decided here"


@pytest.mark.parametrize("text", ["", "-1", "1.5", "ninety", "nowhere.jsonl", "90 %", "200%"])
def test_what_is_no_floor_is_said(text: str) -> None:
    with pytest.raises(VerispecError) as caught:
        parse_floor(text)
    assert (caught.value.diagnostic.code, caught.value.exit_code) == ("V-RUN-FLOOR", exits.USAGE)


@pytest.mark.parametrize(
    ("found", "footer", "code"),
    [
        (records("pass"), {"shortfalls": []}, exits.GOOD),
        (records("pass"), {"shortfalls": ["too little"]}, exits.CANNOT_TELL),
        (records("fail"), {"shortfalls": ["too little"]}, exits.BAD),
        (records("pass", "exploded"), {}, exits.CANNOT_TELL),
        (records("fail", "exploded"), {}, exits.BAD),
    ],
)
def test_the_exit_code(found: list[Record], footer: dict[str, object], code: int) -> None:
    summary = summarise(Run({}, tuple(found), {"complete": True, **footer}))
    assert summary.exit_code() == code
    assert summary.unknown == (("exploded",) if len(found) == 2 else ())
