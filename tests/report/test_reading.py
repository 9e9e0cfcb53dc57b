"""Facts that a first reader of a report needs: callers, kinds of faults, what applies, places, meanings of ids."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from three_reports import HEADER, PASSING, STRIDES, failing, reports, summary_of, text_of, visible

from verispec.cases.glosses import GLOSSES, meaning
from verispec.engines.protocol.source_places import CALLER, KERNEL
from verispec.report.case import case_lines
from verispec.report.causes import fold
from verispec.report.html import as_html
from verispec.report.matrix import matrix
from verispec.report.powers import power
from verispec.report.text import facts, kinds, outcomes
from verispec.run.record import Record


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
        "no caller reaches it: callers pass tensors whose last dimension is contiguous",
        "no caller is known that passes such arguments",
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


def test_one_kind_of_fault_of_errors_in_many_ops_is_said_once_and_first() -> None:
    for report in reports(*(failing(case, reach="every step") for case in STRIDES)):
        (said,) = re.findall(r"(?i)one kind of fault, strides ignored, is 3 errors in 3 ops: [a-z_, ]+", report)
        assert all(case.partition(":")[0].partition("/")[2] in said for case in STRIDES)
        assert report.index(said) < report.rindex("wrong in sampler")
        assert report.count("wrong in sampler/compute_slot_mapping:CSM-10") >= 1, "the causes stay"


ENDED = Record(
    "sampler/eagle_prepare_inputs_padded:ANY-6:part=1",
    "crash",
    failure={"kind": "crash", "message": "ended by SIGSEGV; its last call had 4 requests, x_ptr int64 gapped"},
)


def test_notes_of_one_kind_of_fault_in_many_ops_are_one_cause() -> None:
    summary = summary_of(*(failing(case, places={KERNEL: "k.py:3"}) for case in STRIDES), ENDED, *PASSING)
    (cause,) = summary.causes
    assert (cause.level, cause.headline, len(cause.cases)) == ("note", "strides ignored in 3 ops", 4)
    assert cause.case in STRIDES, "a case that ends its process names no fault"
    for report in reports(*(failing(case, places={KERNEL: "k.py:3"}) for case in STRIDES), ENDED, *PASSING):
        assert "strides ignored in 3 ops" in report
        assert "one kind of fault" not in report, "it is said already"
        assert "1 of them ended the process" in report
        for case in STRIDES:
            op = case.partition(":")[0].partition("/")[2]
            count = "2 failing cases" if op in ENDED.id else "1 failing case"
            assert f"{op}: {count}, such as {case}, kernel defined at k.py:3; callers " in report


def test_a_crash_in_a_call_without_strides_is_a_cause_of_its_own() -> None:
    dense = replace(ENDED, failure={**ENDED.failure, "message": "ended by SIGSEGV; its last call had 4 requests"})
    elsewhere = replace(ENDED, id="sampler/philox:ANY-6:part=1")
    for crash in (dense, elsewhere):
        assert len(fold([*map(failing, STRIDES), crash])) == 2


def test_known_failures_of_several_ops_stay_apart() -> None:
    known = [replace(failing(case), outcome="xfail", observed="fail", issue=f"i/{n}") for n, case in enumerate(STRIDES)]
    assert [len(cause.subjects) for cause in summary_of(*known, *PASSING).known] == [1, 1, 1]


def test_a_kind_of_two_ops_is_not_said_apart() -> None:
    assert list(kinds(fold([*map(failing, STRIDES[:2])]))) == []


ABSENT = [Record(f"sampler/philox:PHX-{n}", "unsupported", reason="no such part", offered=False) for n in (1, 2)]
REFUSED = Record("sampler/flatten_sampled:FLS-1", "unsupported", reason="not on this device")


def test_what_the_engine_does_not_have_is_apart_from_what_was_not_tested() -> None:
    text, markdown, html = reports(*ABSENT, REFUSED, *PASSING)
    for report in (text, markdown, html):
        assert "2 not applicable, 1 not tested" in report
        assert re.search(r"(?i)not tested:? (- )?rejected: not on this device; 1 case of flatten_sampled", report)
        assert re.search(
            r"(?i)not applicable: the engine has no such part, or not on this platform:? (- )?no such part; 2 cases of "
            r"philox",
            report,
        )
    for report in (text, markdown):
        assert re.search(r"(?i)not in this engine, or not on this platform: philox \(2 cases\)", report)
        assert re.search(r"(?i)nothing tested: flatten_sampled \(1 case\)", report)
    assert "Not in this engine, or not on this platform: philox." in html


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
    assert "n/a: not applicable, the engine has no such part, or not on this platform" in " ".join(text.split())
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


def test_rejected_cases_and_those_that_do_not_apply_have_words_of_their_own() -> None:
    summary = summary_of(*ABSENT, REFUSED, *PASSING)
    assert outcomes(summary) == "2 not applicable, 2 pass, 1 rejected"
    for report in reports(*ABSENT, REFUSED, *PASSING):
        assert "unsupported" not in report


def test_a_note_of_a_clause_of_every_op_names_the_faults_that_it_may_be() -> None:
    """A batch with special values fails wherever the op's own clause does; no case can tell."""
    general = failing("sampler/rejection_random_sample:ANY-2:requests=23")
    right = [Record(f"sampler/rejection_random_sample:RRS-1:k={n}", "pass") for n in range(4)]
    for report in reports(general, RARE, NEGATIVE, failing(STRIDES[1]), *right):
        assert report.count("may be the fault of RRS-7 or RRS-11, which this op fails too") == 1
    for report in reports(general, failing(STRIDES[0]), *PASSING):
        assert "may be the fault" not in report, "another op tells nothing"


RARE, NEGATIVE = (
    failing(f"sampler/rejection_random_sample:{clause}") for clause in ("RRS-11:above=2^-30", "RRS-7:place=last")
)
