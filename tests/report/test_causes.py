"""Grouping failing cases by cause, and the order and description of causes."""

from __future__ import annotations

from dataclasses import replace

from failing_records import OP, failing, passing

from verispec.judge import Kind
from verispec.report.causes import BY_OP, BY_OUTPUT, BY_TEXT, fold
from verispec.report.reported_clause import BY_CLAUSE
from verispec.report.text import facts
from verispec.run.logs import LAST_CALL
from verispec.run.record import FAULT, Record


def test_the_kinds_that_are_folded_are_kinds_of_the_judge() -> None:
    by_supervisor = {"crash", "timeout"}
    assert {*BY_CLAUSE, *BY_OP, *BY_OUTPUT, *BY_TEXT} - by_supervisor <= {str(kind) for kind in Kind}


def test_a_lost_write_is_one_cause_under_every_clause() -> None:
    records = [failing(f"{OP}:RRS-{n}:k={n}", "unwritten") for n in (1, 2, 3)]
    (cause,) = fold([*records, *passing(f"{OP}:RRS-4:k=1")])
    assert cause.clauses == ("RRS-1", "RRS-2", "RRS-3")
    assert len(cause.cases) == 3


def test_a_lost_write_is_reported_under_the_clause_that_speaks_of_it() -> None:
    op = "sampler/expand_batch_to_tokens"
    (cause,) = fold([failing(f"{op}:EXP-1:b=1", "unwritten"), failing(f"{op}:EXP-2:b=99", "unwritten")])
    assert (cause.clause, cause.case) == ("EXP-2", f"{op}:EXP-2:b=99")


def test_the_same_write_lost_in_two_ops_is_two_causes() -> None:
    causes = fold([failing(f"{OP}:RRS-1", "unwritten"), failing("sampler/rejection_greedy_sample:RGS-1", "unwritten")])
    assert len(causes) == 2


def test_wrong_values_are_one_cause_a_clause() -> None:
    records = [
        failing(f"{OP}:RRS-7:place=first"),
        failing(f"{OP}:RRS-7:place=last"),
        failing(f"{OP}:RRS-11:above=2^-30"),
        *passing(*(f"{OP}:RRS-1:k={k}" for k in range(4))),
    ]
    assert [(c.clause, len(c.cases)) for c in fold(records)] == [("RRS-7", 2), ("RRS-11", 1)]


def test_wrong_in_most_cases_is_one_cause_under_the_first_clause() -> None:
    records = [failing(f"{OP}:RRS-{n}:k=1") for n in (3, 1, 2)]
    records += [failing(f"{OP}:RRS-4:k=1", "unwritten"), failing(f"{OP}:RRS-5:relation=split", "relation broken")]
    (cause,) = fold([*records, *passing(f"{OP}:RRS-6:k=1")])
    assert (cause.clause, cause.kind, len(cause.cases)) == ("RRS-1", "value", 5)


def test_wrong_for_one_dtype_under_several_clauses_is_one_cause() -> None:
    wrong = [failing(f"{OP}:RRS-{n}:dtype=int32") for n in (1, 2)]
    right = [f"{OP}:RRS-{n}:dtype={dtype}" for n in (1, 2) for dtype in ("int64", "float32")]
    (cause,) = fold([*wrong, *passing(*right)])
    assert cause.clauses == ("RRS-1", "RRS-2")
    assert cause.where == "fails for dtype=int32; passes for dtype=int64 or float32"


def test_wrong_for_different_dtypes_is_two_causes() -> None:
    wrong = [failing(f"{OP}:RRS-1:dtype=int32"), failing(f"{OP}:RRS-2:dtype=int64")]
    right = [f"{OP}:RRS-{n}:dtype=float32" for n in (1, 2, 3, 4)]
    assert len(fold([*wrong, *passing(*right)])) == 2


def test_one_exception_is_one_cause_over_all_ops() -> None:
    causes = fold(
        [
            failing(f"{OP}:RRS-1", "raised", "TypeError: got 12 arguments at 0x7f00"),
            failing("sampler/rejection_greedy_sample:RGS-1", "raised", "TypeError: got 7 arguments at 0x7a10"),
            failing("sampler/rejection_greedy_sample:RGS-2", "raised", "ValueError: got 7 arguments"),
        ]
    )
    assert [c.subjects for c in causes] == [
        ("rejection_greedy_sample", "rejection_random_sample"),
        ("rejection_greedy_sample",),
    ]


def test_what_several_callers_cannot_bind_for_one_reason_is_one_cause() -> None:
    live = "signatures/runtime_signature"
    keyword = "got an unexpected keyword argument 'SYNTHETIC_MODE'"
    records = [
        failing(f"{live}:SIG-1:op={op}", "binding", f"vllm.v1.sample.rejection_sampler.{op}_kernel: {keyword}")
        for op in ("rejection_greedy_sample", "rejection_random_sample")
    ]
    records.append(failing(f"{live}:SIG-1:op=expand_batch_to_tokens", "binding", "x.expand_kernel: missing 'batch'"))
    causes = fold([*records, *passing(f"{live}:SIG-1:op=compute_slot_mapping")])
    assert [len(cause.cases) for cause in causes] == [2, 1]
    assert causes[0].where.startswith("fails for op=rejection_greedy_sample or rejection_random_sample; passes for")


def test_two_exceptions_under_one_clause_are_two_causes() -> None:
    records = [failing(f"{OP}:RRS-7:k={k}", "raised", text) for k, text in enumerate(("TypeError: a", "TypeError: b"))]
    assert len(fold(records)) == 2


def test_crashes_are_told_apart_by_their_signal() -> None:
    causes = fold([failing(f"{OP}:RRS-1", "crash", "SIGSEGV"), failing(f"{OP}:RRS-2", "crash", "SIGABRT")])
    assert [c.message for c in causes] == ["SIGSEGV", "SIGABRT"]


def test_crashes_under_one_clause_are_one_cause_whatever_the_signal() -> None:
    """Broken memory ends a process in several ways."""
    records = [failing(f"{OP}:RRS-1:k={k}", "crash", how) for k, how in enumerate(("SIGSEGV", "SIGABRT", "SIGABRT"))]
    hung = failing(f"{OP}:RRS-1:k=9", "timeout", "no answer")
    (cause,) = fold([*records, failing(f"{OP}:ANY-6", "crash", "SIGABRT"), hung])
    assert (cause.kind, cause.clauses, len(cause.cases)) == ("crash", ("ANY-6", "RRS-1"), 5)
    assert len(fold([hung, failing(f"{OP}:RRS-2", "crash", "SIGABRT")])) == 2


def test_crashes_of_several_calls_are_one_cause() -> None:
    died = "the process was ended by SIGSEGV (Segmentation fault)"
    records = [failing(f"{OP}:RRS-{n}:k={n}", "crash", f"{died}{LAST_CALL}{n} requests") for n in (1, 2)]
    assert len(fold([*records, failing(f"{OP}:RRS-3", "crash", died)])) == 1


def test_a_fault_that_cases_name_is_one_cause_under_several_clauses() -> None:
    named = [failing(f"{OP}:RRS-{n}:k={n}", failure={"details": {FAULT: "ties"}}) for n in (1, 2)]
    (cause,) = fold([*named, *passing(f"{OP}:RRS-4:k=1", f"{OP}:RRS-4:k=2", f"{OP}:RRS-4:k=3")])
    assert (cause.clauses, cause.named) == (("RRS-1", "RRS-2"), "ties")


def test_a_named_fault_belongs_to_the_others_of_a_clause_that_fails_without_the_name() -> None:
    """Whatever breaks the clause where nothing ties explains the ties too."""
    named = [failing(f"{OP}:RRS-{n}:k={n}", failure={"details": {FAULT: "ties"}}) for n in (1, 2)]
    others = passing(*(f"{OP}:RRS-4:k={k}" for k in range(5)))
    causes = fold([*named, failing(f"{OP}:RRS-1:k=0"), *others])
    assert sorted((c.clauses, len(c.cases)) for c in causes) == [(("RRS-1",), 2), (("RRS-2",), 1)]
    assert [c.named for c in causes if c.clauses == ("RRS-1",)] == ["ties"], "the case that says more is shown"


def test_writes_beside_two_tensors_are_two_causes() -> None:
    records = [
        failing(f"{OP}:RRS-{clause}:output={output}", "outside", failure={"output": output})
        for clause in (1, 2)
        for output in ("output_token_ids_ptr", "target_probs_ptr")
    ]
    assert [len(c.cases) for c in fold(records)] == [2, 2]


def test_whatever_shows_under_one_clause_is_one_cause() -> None:
    kinds = ("value", "outside", "unwritten", "crash", "overwritten")
    records = [failing(f"{OP}:RRS-14:layout={kind}", kind) for kind in kinds]
    (cause,) = fold([*records, *passing(*(f"{OP}:RRS-1:k={k}" for k in range(9)))])
    assert len(cause.cases) == len(kinds)


def test_a_crash_belongs_to_the_clause_whose_values_are_wrong() -> None:
    records = [
        failing(f"{OP}:RRS-7:place=first"),
        failing(f"{OP}:RRS-7:place=last", "crash", "SIGSEGV"),
        failing(f"{OP}:RRS-8:beyond=1", "crash", "SIGSEGV"),
        failing(f"{OP}:RRS-9:u=0", "crash", "SIGSEGV"),
    ]
    assert [c.clauses for c in fold([*records, *passing(*(f"{OP}:RRS-1:k={k}" for k in range(9)))])] == [
        ("RRS-8", "RRS-9"),
        ("RRS-7",),
    ]


def test_faults_of_memory_come_first_among_their_level() -> None:
    records = [
        *(failing(f"{OP}:RRS-1:k={k}") for k in range(5)),
        failing(f"{OP}:RRS-9:u=0", "crash", "SIGSEGV"),
        failing("sampler/apply_top_k_top_p:TKP-2:k=1", reach="every request"),
        *passing(*(f"{OP}:RRS-2:k={k}" for k in range(9))),
    ]
    assert [(c.level, c.kind) for c in fold(records)] == [("error", "value"), ("note", "crash"), ("note", "value")]


def test_causes_of_a_level_are_ordered_by_harm_then_by_count() -> None:
    def cases(clause: int, kind: str, count: int, reach: str) -> list[Record]:
        return [failing(f"{OP}:RRS-{clause}:k={k}", kind, f"{kind} {reach}", reach=reach) for k in range(count)]

    records = [
        record
        for reach, first in (("", 1), ("always", 6))
        for record in (
            *cases(first, "raised", 5, reach),
            *cases(first + 1, "value", 2, reach),
            *cases(first + 2, "value", 4, reach),
            *cases(first + 3, "outside", 3, reach),
            *cases(first + 4, "timeout", 1, reach),
        )
    ]
    subjects = [replace(r, id=r.id.replace("random", "greedy")) if r.reach else r for r in records]
    causes = fold(
        [*subjects, *passing(*(f"{op}:RRS-12:k={k}" for k in range(40) for op in (OP, OP.replace("random", "greedy"))))]
    )
    assert [(c.level, c.kind, len(c.cases)) for c in causes] == [
        (level, kind, count)
        for level in ("error", "note")
        for kind, count in (("timeout", 1), ("outside", 3), ("raised", 5), ("value", 4), ("value", 2))
    ]


def test_an_ops_own_clause_names_a_cause_before_the_clauses_of_every_op() -> None:
    records = [failing(f"{OP}:{case}", "unwritten") for case in ("ANY-1:size=1", "ANY-1:size=2", "RRS-7:place=a")]
    (cause,) = fold([*records, *passing(*(f"{OP}:RRS-{n}" for n in (1, 2, 3)), f"{OP}:RRS-7:place=b")])
    assert (cause.clause, cause.clauses) == ("RRS-7", ("ANY-1", "RRS-7"))


def test_a_clause_tells_its_cases_apart_where_the_whole_cause_cannot() -> None:
    records = [
        failing(f"{OP}:{case}", "unwritten") for case in ("ANY-1:size=1", "RRS-7:dtype=float32", "RRS-7:dtype=int32")
    ]
    (cause,) = fold([*records, *passing(f"{OP}:RRS-7:dtype=int64", f"{OP}:RRS-1:k=1", f"{OP}:RRS-2:k=1")])
    assert cause.where == "RRS-7 fails for dtype=float32 or int32; passes for dtype=int64"


def test_a_cause_of_several_ops_is_named_by_a_clause_of_every_op() -> None:
    cases = (f"{OP}:ANY-1:size=1", f"{OP}:RRS-7:place=a", "sampler/philox:ANY-1:size=1", "sampler/philox:PHX-1")
    (cause,) = fold([failing(case, "raised", "TypeError: no such kernel") for case in cases])
    assert cause.clause == "ANY-1"


def test_errors_come_before_notes_and_large_causes_before_small_ones() -> None:
    records = [
        failing(f"{OP}:RRS-1:k=1"),
        failing(f"{OP}:RRS-1:k=2"),
        failing(f"{OP}:RRS-2:k=1", reach="always"),
        failing(f"{OP}:RRS-3:k=1"),
        *passing(*(f"{OP}:RRS-9:k={k}" for k in range(9))),
    ]
    assert [c.clause for c in fold(records)] == ["RRS-2", "RRS-1", "RRS-3"]


def test_expected_failures_keep_their_issues() -> None:
    record = Record(
        f"{OP}:RRS-1", "xfail", observed="fail", failure={"kind": "value", "message": ""}, issue="https://i/1"
    )
    assert fold([record])[0].issues == ("https://i/1",)


def test_a_consequence_belongs_to_the_cause_with_its_text_else_to_the_first_of_the_op() -> None:
    """`WS-7` raises what top-k raises; two kernels break the sequences, which therefore implicate neither."""
    top_k = "sampler/apply_top_k_top_p"
    text = "RuntimeError: max(): Expected reduction dim to be specified for input.numel() == 0."
    causes = fold(
        [
            *(failing(f"{top_k}:TKP-2:k={k}", reach="ties") for k in (1, 2)),
            failing(f"{top_k}:TKP-14:rule=k", "raised", text, reach="no drafts"),
            failing(f"{OP}:RRS-7:place=last", reach="prefix caching"),
            failing("sampler/whole_sampler:WS-7:limits=top_k", "raised", text, explained_by="apply_top_k_top_p"),
            failing("e2e/sampled:GEN-6:limits=none", "law", explained_by="rejection_random_sample, apply_top_k_top_p"),
            failing("e2e/sampled:GEN-5:limits=top_k", "law", "G = 3", explained_by="apply_top_k_top_p"),
        ]
    )
    assert {(c.clause, c.consequences) for c in causes} == {
        ("TKP-2", ("e2e/sampled:GEN-5:limits=top_k",)),
        ("TKP-14", ("sampler/whole_sampler:WS-7:limits=top_k",)),
        ("RRS-7", ("e2e/sampled:GEN-6:limits=none",)),
    }


def test_facts_of_a_cause_are_sentences() -> None:
    cause = fold([failing(f"{OP}:RRS-7:place={n}", reach="prefix caching") for n in (1, 2)])[0]
    two = replace(cause, clauses=("RRS-7", "ANY-6"), consequences=("e2e/a:GEN-5", "e2e/b:GEN-5"), where="")
    assert list(facts(two)) == [
        "2 failing cases, of this clause and of ANY-6",
        "severity: high",
        "reached in production: prefix caching",
        "consequences: 2 more failing cases, of a, b; they pass with the reference's kernel in its place",
    ]
    one = list(facts(replace(two, clauses=("RRS-7",), consequences=("e2e/a:GEN-5",), cases=("x",))))
    assert one[0] == "1 failing case"
    assert one[3] == "consequences: 1 more failing case, of a; it passes with the reference's kernel in its place"


def test_what_passes_is_no_cause() -> None:
    assert fold(passing(f"{OP}:RRS-1")) == ()


def test_a_clause_on_layouts_joins_the_pairs_of_axes_that_name_its_fault() -> None:
    def cause(fault: dict[str, str]) -> list[tuple[str, int]]:
        pair = {"kind": "outside", "message": "wrong", "details": fault}
        records = [
            Record("sampler/compute_slot_mapping:ANY-6:part=1", "fail", failure=pair),
            failing("sampler/compute_slot_mapping:CSM-10:layout=gapped", "unwritten", "wrong"),
        ]
        return [
            (found.clause, len(found.cases))
            for found in fold([*records, *passing("sampler/compute_slot_mapping:CSM-1:k=1")])
        ]

    assert cause({FAULT: "strides ignored"}) == [("CSM-10", 2)]
    assert sorted(cause({})) == [("ANY-6", 1), ("CSM-10", 1)], "an op that loses writes fails both"


def test_causes_with_one_headline_are_told_apart_by_their_cases() -> None:
    raised = [
        failing(f"{OP}:RRS-1:k={k}", "raised", f"{error}: bad") for k, error in ((1, "KeyError"), (2, "IndexError"))
    ]
    assert [cause.headline for cause in fold(raised)] == [
        "RRS-1, rejection_random_sample, k=1",
        "RRS-1, rejection_random_sample, k=2",
    ]
    assert [cause.headline for cause in fold(raised[:1])] == ["RRS-1, rejection_random_sample"]


def test_a_clause_on_drafts_does_not_stand_for_one_on_texts() -> None:
    records = [
        *(failing(f"e2e/trees:GEN-14:tree={tree}", "value", "drafts") for tree in ("wide", "forks")),
        failing("e2e/trees:GEN-44:tree=wide", "value", "text"),
    ]
    (cause,) = fold(records)
    assert (cause.clause, cause.message, cause.clauses) == ("GEN-44", "text", ("GEN-14", "GEN-44"))


def test_an_ops_own_clause_comes_before_one_of_every_op() -> None:
    """A batch of many cases of an axis tells less than the rule that is broken."""
    records = [
        *(failing(f"sampler/compute_slot_mapping:ANY-3:threads={n}", "value", "wrong") for n in range(3)),
        failing("sampler/compute_slot_mapping:CSM-2:ranks=2", "value", "wrong"),
        *(record for n in range(9) for record in passing(f"sampler/compute_slot_mapping:CSM-1:k={n}")),
    ]
    assert [cause.clause for cause in fold(records)] == ["CSM-2", "ANY-3"]


def test_a_case_that_two_faults_explain_has_the_one_that_another_case_names_alone() -> None:
    def faults(*names: str) -> list[tuple[str, int]]:
        records = [
            failing(f"sampler/gumbel_sample:GUM-{n}:k={n}", "value", failure={"details": {FAULT: name}})
            for n, name in enumerate(names, 1)
        ]
        right = (f"sampler/gumbel_sample:GUM-{n}:k={k}" for n in range(1, 9) for k in range(9, 11))
        return sorted((cause.named, len(cause.cases)) for cause in fold([*records, *passing(*right)]))

    assert faults("bits", "bits", "bits, or ids") == [("bits", 3)]
    assert faults("bits", "ids", "bits, or ids") == [("bits", 1), ("bits, or ids", 1), ("ids", 1)]
