"""Facts that a first reader of a report needs: callers, kinds of faults, what applies, places, meanings of ids."""

from __future__ import annotations

import io
import re
from html import unescape
from typing import Any

import pytest
from rich.console import Console
from run_headers import header

from verispec.cases.glosses import GLOSSES, meaning
from verispec.engines.protocol.places import CALLER, KERNEL
from verispec.reference.contracts import Clause
from verispec.report.brief import effect
from verispec.report.case import case_lines
from verispec.report.causes import fold
from verispec.report.html import as_html
from verispec.report.markdown import as_markdown
from verispec.report.matrix import matrix
from verispec.report.powers import power
from verispec.report.text import facts, kinds, print_verdict
from verispec.report.verdict import RunSummary, summarise
from verispec.run.record import FAULT, Record
from verispec.run.runfile import Run

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
    summary = summary_of(*records)
    markdown = as_markdown(summary).replace("\\", "")
    return [" ".join(text.split()) for text in (text_of(summary), markdown, visible(as_html([summary])))]


def test_a_note_says_that_no_caller_is_known_or_why_none_gets_there() -> None:
    unknown, known, reached = (
        failing("sampler/compute_slot_mapping:ANY-1:size=tokens"),
        failing(STRIDES[0]),
        failing("sampler/compute_slot_mapping:CSM-1:lengths=1", reach="every token"),
    )
    right = [Record(f"sampler/compute_slot_mapping:CSM-{n}", "pass") for n in range(2, 6)]
    for report in reports(unknown, known, reached, *right):
        assert "no caller is known that passes such arguments" in report
        assert "no caller reaches it: callers pass tensors whose last dimension is contiguous" in report
    assert [
        next(f for f in facts(c) if "caller" in f or "reached" in f) for c in fold([unknown, known, reached, *right])
    ] == [
        "reached in production: every token",
        "no caller is known that passes such arguments",
        "no caller reaches it: callers pass tensors whose last dimension is contiguous",
    ]


def test_a_note_says_how_rarely_callers_get_there_or_why_it_does_no_harm() -> None:
    rare = failing("sampler/rejection_random_sample:RRS-11:above=2^-30")
    harmless = failing("sampler/compute_slot_mapping:CSM-4:tail=1")
    for report in reports(rare, harmless, *PASSING):
        assert "rare: a float64 draw within a float32 rounding of p/q" in report
        assert "reached without harm: every step asks for a tail" in report
        assert "no caller" not in report.replace("no caller of", "")
    padded = failing("sampler/compute_slot_mapping:CSM-4:tail=1", reach="captured graphs")
    (cause,) = fold([padded, *PASSING])
    assert (cause.level, "reached in production: captured graphs" in list(facts(cause))) == ("error", True)


def test_a_statistical_test_that_another_fault_breaks_is_shown_as_its_consequence() -> None:
    """The best explanation of its bets would be a second fault, which the engine does not have."""
    message = 'token 3 is impossible; best explained by "bonus token: temperature" (E 1e99); --seed 7 repeats it'
    evidence = {
        "log10_e": None,
        "log10_limit": 8.0,
        "weight": 0.01,
        "count": 300,
        "unit": "requests",
        "impossible": ["token 3"],
        "best": [{"label": "bonus token: temperature", "log10": 99.0, "issues": []}],
        "all": [],
        "trail": {"count": [300], "log10_e": [None], "bets": {"bonus token: temperature": [99.0]}},
        "places": {},
    }
    law, failure = "sampler/whole_sampler:WS-10:limits=none;mode=law", {"kind": "law", "message": message}
    broken = Record(law, "fail", failure=failure, evidence=evidence, explained_by="expand_batch_to_tokens")
    cause = failing("sampler/expand_batch_to_tokens:EXP-2:dtype=int32", reach="every batch")
    text, markdown, html = reports(cause, broken, *PASSING)
    for report in (text, markdown):
        assert "1 of 1 test of random outputs fail (as a consequence of EXP-2)" in report
    assert "1 of 1 statistical tests fail (as a consequence of EXP-2)" in html
    assert "infinite a consequence of EXP-2" in html.replace("1e8", "").replace("  ", " ")
    page = as_html([summary_of(cause, broken, *PASSING)])
    assert "bonus token: temperature" not in page
    case = " ".join(" ".join(case_lines(broken, HEADER)).split())
    assert "law: a consequence of a fault in expand_batch_to_tokens: token 3 is impossible" in case


def test_one_kind_of_fault_in_many_ops_is_said_once_and_first() -> None:
    for report in reports(*map(failing, STRIDES)):
        (said,) = re.findall(r"(?i)one kind of fault, strides ignored, is 3 notes in 3 ops: [a-z_, ]+", report)
        assert all(case.partition(":")[0].partition("/")[2] in said for case in STRIDES)
        assert report.index(said) < report.index("wrong in sampler")
        assert report.count("wrong in sampler/compute_slot_mapping:CSM-10") >= 1, "the causes stay"


def test_a_kind_of_two_ops_is_not_said_apart() -> None:
    assert list(kinds(fold([*map(failing, STRIDES[:2])]))) == []


ABSENT = [Record(f"sampler/philox:PHX-{n}", "unsupported", reason="no such part", offered=False) for n in (1, 2)]
REFUSED = Record("sampler/flatten_sampled:FLS-1", "unsupported", reason="not on this device")
PASSING = [Record(f"sampler/compute_slot_mapping:CSM-{n}", "pass") for n in (1, 2)]


def test_what_the_engine_does_not_have_is_apart_from_what_was_not_tested() -> None:
    text, markdown, html = reports(*ABSENT, REFUSED, *PASSING)
    for report in (text, markdown, html):
        assert "2 not applicable, 1 not tested" in report
        assert re.search(r"(?i)not tested:? (- )?unsupported: not on this device; 1 case of flatten_sampled", report)
        assert re.search(
            r"(?i)not applicable: the engine has no such part:? (- )?no such part; 2 cases of philox", report
        )
    for report in (text, markdown):
        assert re.search(r"(?i)not in this engine: philox \(2 cases\)", report)
        assert re.search(r"(?i)nothing tested: flatten_sampled \(1 case\)", report)
    assert "Not in this engine: philox." in html


def test_a_fleet_has_a_style_for_every_state_of_the_matrix() -> None:
    from verispec.fleet.report import _STYLE

    known = Record("sampler/gumbel_sample:GUM-1", "xfail", observed="fail", issue="#1")
    other = [summary_of(*ABSENT, REFUSED, *PASSING, failing("sampler/gumbel_sample:GUM-2")), summary_of(known)]
    states = {cell["state"] for row in matrix(other) for cell in row["cells"]}
    assert states == {"absent", "open", "pass", "fail", "known", "none"} == _STYLE.keys()


def test_the_table_has_a_total_and_no_line_for_what_was_not_tested() -> None:
    records = [*ABSENT, REFUSED, *PASSING, failing("sampler/philox:PHX-3"), failing("sampler/gumbel_sample:GUM-1")]
    lines = [line.split() for line in text_of(summary_of(*records)).splitlines()]
    table = lines[lines.index(["op", "failing", "known", "n/a", "not", "tested", "passing"]) :]
    rows = {line[0]: line[1:] for line in table[: table.index([])]}
    assert rows["philox"] == ["1", "-", "2", "-", "-"]
    assert rows["total"] == ["2", "-", "2", "-", "2"]
    assert "flatten_sampled" not in rows


def test_columns_that_do_not_explain_themselves_have_a_legend_if_they_are_used() -> None:
    text = " ".join(text_of(summary_of(*ABSENT, REFUSED, *PASSING, failing("sampler/philox:PHX-3"))).split())
    assert "n/a: not applicable, the engine has no such part" in text
    assert "known:" not in text
    known = Record("sampler/compute_slot_mapping:CSM-3", "xfail", observed="fail", issue="#1")
    text = " ".join(text_of(summary_of(known, *PASSING)).split())
    assert "known: failing as the list of known failures expects" in text
    assert "n/a:" not in text


def test_the_page_says_beside_a_result_what_it_means() -> None:
    for record, said in (
        (failing(STRIDES[0]), "bad unexpected failures, or known ones that pass"),
        (PASSING[0], "good no unexpected result"),
        (REFUSED, "cannot tell too little was tested"),
    ):
        assert said in visible(as_html([summary_of(record)]))


def test_the_column_of_what_does_not_apply_is_there_if_something_does_not() -> None:
    assert " n/a " not in text_of(summary_of(REFUSED, *PASSING))


PLACES = {KERNEL: "pkg/kernels.py:12", CALLER: "pkg/sampler.py:340"}


def test_a_cause_names_the_file_and_line_of_kernel_and_caller() -> None:
    for report in reports(failing(STRIDES[0], places=PLACES), *PASSING):
        assert "kernel defined at pkg/kernels.py:12, caller defined at pkg/sampler.py:340" in report


def test_a_crash_has_the_places_of_other_cases_of_its_op() -> None:
    crash = Record(STRIDES[0], "crash", failure={"kind": "crash", "message": "ended by SIGSEGV"})
    other = failing("sampler/compute_slot_mapping:CSM-10:layout=transposed", places=PLACES)
    assert {(cause.kernel, cause.caller) for cause in fold([crash, other])} == {tuple(PLACES.values())}


@pytest.mark.parametrize(
    ("log10", "text"),
    [(0, "1"), (2.301, "200"), (6, "1e6"), (8.23, "1.7e8"), (5.999, "1e6"), (360.2, "1.6e360"), (-2, "0.01"),
     (float("inf"), "infinite"), (-float("inf"), "0")],
)  # fmt: skip
def test_evidence_is_written_in_one_way(log10: float, text: str) -> None:
    assert power(log10) == text


def test_the_page_writes_evidence_as_the_text_does() -> None:
    trail = {"count": [0, 10], "log10_e": [0.0, 9.3], "bets": {}}
    evidence = {"weight": 0.1, "count": 10, "unit": "tokens", "log10_e": 9.3, "log10_limit": 8.23, "trail": trail}
    sure = {**evidence, "log10_e": None, "impossible": ["token 3 has probability 0"]}
    records = [
        failing("sampler/whole_sampler:WS-10:mode=law", evidence=evidence),
        failing("sampler/whole_sampler:WS-11:mode=law", evidence=sure),
    ]
    page = as_html([summary_of(*records)])
    shown = visible(page)
    assert "2e9 1.7e8" in shown
    assert "infinite 1.7e8" in shown
    assert "log10" not in shown
    assert shown.count("says how many times better") == 1
    assert "with evidence E = infinite against the engine" in " ".join(text_of(summary_of(*records)).split())


def test_the_page_explains_the_parameters_of_its_failing_cases() -> None:
    shown = visible(as_html([summary_of(failing(STRIDES[1]), failing("sampler/philox:ANY-12:axis=others"), *PASSING)]))
    for name, value in (("draft", "absent"), ("layout", "gapped"), ("axis", "others")):
        assert f"{name} {GLOSSES[name].text}" in shown
        assert GLOSSES[name].values[value] in shown
    assert GLOSSES["axis"].values["first"] not in shown, "no case on the page has this value"


def test_a_parameter_of_a_suite_of_ones_own_has_no_meaning_here() -> None:
    assert meaning("flavour", "sweet") == ""


EXPANDED = failing("sampler/expand_batch_to_tokens:EXP-2:dtype=int32", reach="every batch", places={KERNEL: "k.py:3"})
RARE = failing("sampler/rejection_random_sample:RRS-11:above=2^-30")


def test_what_a_user_can_meet_comes_first_in_one_line_each() -> None:
    line = (
        "Trigger: every batch. Effect: drafts of sampled requests are verified with uninitialised temperature, top_k "
        "and top_p: their text is wrong, or a value out of range raises. Clause: EXP-2 of expand_batch_to_tokens, in "
        "the function at k.py:3."
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
    assert of_op.startswith("drafts are accepted too often or too rarely")
    assert neither == "wrong in mine/my_op:MINE-1:k=1"


def test_a_fault_that_a_case_names_stands_in_the_line() -> None:
    failure = {"kind": "value", "message": "x[0] is 1", "details": {FAULT: "ties are kept"}}
    cause = Record("sampler/apply_top_k_top_p:TKP-2:k=1", "fail", failure=failure, reach="every request")
    for report in reports(cause, failing(STRIDES[0]), *PASSING):
        assert "Fault: ties are kept. Seen: x[0] is 1. Clause: TKP-2 of apply_top_k_top_p." in report
        assert "Effect" not in report, "that of the clause may be another"
