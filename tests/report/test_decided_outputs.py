"""Causes of wrong outputs: the clause that they are reported under, and their order."""

from __future__ import annotations

import pytest
from failing_records import failing, passing

from verispec.report.causes import fold
from verispec.run.record import Record

CEE, ENT = "sampler/copy_and_expand_eagle_inputs", "sampler/eagle_prepare_next_token_padded"
EPI, ESM = "sampler/eagle_prepare_inputs_padded", "sampler/eagle_step_slot_mapping_metadata"
RGS, RRS = "sampler/rejection_greedy_sample", "sampler/rejection_random_sample"
RATES = "synthetic/unconditional_to_conditional_rates"


def test_what_is_wrong_throughout_is_reported_under_the_clause_that_decides_the_wrong_output() -> None:
    """CEE-1 and CEE-2 come before it, and their cases fail by the same output."""
    output = {"output": "out_positions_ptr"}
    records = [failing(f"{CEE}:CEE-{n}:lengths={m}", failure=output) for n in (1, 2, 6, 7) for m in (1, 2)]
    (cause,) = fold([*records, *passing(f"{CEE}:CEE-9:b=1")])
    assert cause.clause == "CEE-6"


def test_a_wrong_output_that_no_failing_clause_decides_is_reported_under_the_first_clause() -> None:
    records = [failing(f"{CEE}:CEE-{n}:b=1", failure={"output": "out_positions_ptr"}) for n in (2, 3)]
    (cause,) = fold(records)
    assert cause.clause == "CEE-2"


def test_of_clauses_that_fail_alike_one_that_decides_the_wrong_output_is_shown() -> None:
    """Both fail in every case, for one value of a parameter that others pass with."""
    output = {"output": "next_token_ids_ptr"}
    records = [failing(f"{ENT}:ENT-{n}:b=1", failure=output) for n in (1, 2)]
    (cause,) = fold([*records, *passing(*(f"{ENT}:ENT-{n}:b=2" for n in range(3, 9)))])[:1]
    assert cause.clause == "ENT-2"


def test_an_op_comes_before_a_sampler_that_may_fail_because_of_it() -> None:
    """The sampler fails more cases, of the same severity and harm."""
    rates = [failing(f"{RATES}:U2C-2:rates=falling", reach="an option")]
    sampler = [failing(f"synthetic/whole_sampler:WS-26:batch={n}", reach="an option") for n in range(9)]
    rest = [*passing(f"{RATES}:U2C-1:rates=one"), *passing(*(f"synthetic/whole_sampler:WS-3:n={n}" for n in range(9)))]
    assert [cause.clause for cause in fold([*rates, *sampler, *rest])] == ["U2C-2", "WS-26"]


def test_cases_without_a_result_do_not_count_where_nearly_every_case_fails() -> None:
    """EPI-5 fails in two of three cases, by an output that EPI-3 decides."""
    output = {"output": "token_indices_to_sample_ptr"}
    wrong = [f"{EPI}:EPI-{n}:b={b}" for n, b in ((1, 1), (1, 2), (3, 1), (5, 1), (5, 2))]
    undecided = [Record(f"{EPI}:EPI-1:undecided={n}", "inconclusive") for n in range(9)]
    right = passing(*(f"{EPI}:EPI-{n}:b=9" for n in (1, 3, 5)), f"{EPI}:EPI-3:b=8")
    (cause,) = fold([*(failing(case, failure=output) for case in wrong), *undecided, *right])
    assert cause.clause == "EPI-3"


def test_a_deciding_clause_that_mostly_passes_does_not_stand_for_one_that_mostly_fails() -> None:
    """Nearly every general case fails too, as most batches have a discarded request."""
    output = {"output": "valid_sampled_tokens_count_ptr"}
    wrong = [f"{ENT}:ENT-1:b=1", f"{ENT}:ENT-4:b=1", f"{ENT}:ENT-4:b=2", *(f"{ENT}:ANY-2:k={k}" for k in range(20))]
    right = passing(*(f"{ENT}:ENT-1:b={b}" for b in range(2, 9)), f"{ENT}:ENT-4:b=3")
    (cause,) = fold([*(failing(case, failure=output) for case in wrong), *right])
    assert cause.clause == "ENT-4"


def test_a_clause_on_few_places_decides_further_outputs_only_there() -> None:
    """CEE-5 gives rejected slots position 0, CEE-6 counts the positions of the others."""

    def clause(remark: str) -> str:
        message = f"out_positions_ptr[7] is 269, expected 0{remark}"
        failure = {"output": "out_positions_ptr"}
        (cause,) = fold([failing(f"{CEE}:CEE-{n}:b=1", message=message, failure=failure) for n in (5, 6, 7)])
        return cause.clause

    assert clause("") == "CEE-6"
    assert clause(" (wrong only where out_is_rejected_token_mask_ptr is true)") == "CEE-5"


def test_clauses_that_fail_by_the_output_of_another_are_its_cause() -> None:
    """The slots of ESM-3 are right; its calls have lengths apart from their positions, which few calls have."""
    output = {"output": "seq_lens_ptr"}
    wrong = [f"{ESM}:ESM-3:b={b}" for b in range(4)] + [f"{ESM}:ESM-4:b=1"]
    records = [failing(case, failure=output, reach="every step") for case in wrong]
    right = passing(*(f"{ESM}:ESM-{n}:b={b}" for n in (1, 3) for b in range(5, 10)))
    (cause,) = fold([*records, *right])
    assert (cause.clause, len(cause.cases)) == ("ESM-4", 5)
    slots = [failing(case, failure={"output": "out_slot_mapping_ptr"}, reach="every step") for case in wrong[:4]]
    assert {c.clause for c in fold([*slots, *records[4:], *right])} == {"ESM-3", "ESM-4"}, "two outputs, two causes"


@pytest.mark.parametrize(
    ("op", "remark", "clause"),
    [
        (RRS, "wrong only behind the last token of a request", "RRS-3"),
        (RRS, "wrong only where is_greedy_ptr is true", "RRS-6"),
        (RGS, "the first wrong one is the last draft of a request of 3 drafts", "RGS-1"),
        (RGS, "wrong only at bonus tokens", "RGS-3"),
        (RGS, "wrong only in requests without drafts; wrong only at bonus tokens", "RGS-4"),
    ],
)
def test_the_clause_that_governs_the_wrong_places_is_shown(op: str, remark: str, clause: str) -> None:
    """The cases of each clause have requests of every kind. Of two such clauses, the one that fails most is shown."""
    failure, prefix = {"output": "output_token_ids_ptr"}, clause[:3]
    cases = [f"{op}:{prefix}-{n}:k={k}" for n in range(1, 7) for k in (1, 2, 3)]
    message = f"output_token_ids_ptr[0, 0] is 5, expected 3: the values are wrong ({remark})"
    right = passing(*(f"{op}:{prefix}-{n}:k=9" for n in (1, 3)))
    (cause,) = fold([*(failing(case, message=message, failure=failure) for case in cases), *right])
    assert cause.clause == clause


def test_a_lost_write_before_other_wrong_elements_is_one_cause_with_those_alone() -> None:
    begins = {"output": "output_token_ids_ptr", "examples": [{"index": [2, 4], "expected": 3, "got": "not written"}]}
    other = {**begins, "examples": [{"index": [2, 4], "expected": 3, "got": 5}]}
    lost = failing(f"{RGS}:RGS-1:k=1", "unwritten", failure=begins)
    right = passing(*(f"{RGS}:RGS-1:k={k}" for k in range(2, 9)))
    assert [c.clauses for c in fold([lost, failing(f"{RGS}:RGS-2:k=1", failure=begins), *right])] == [
        ("RGS-1", "RGS-2")
    ]
    assert len(fold([lost, failing(f"{RGS}:RGS-2:k=1", failure=other), *right])) == 2
