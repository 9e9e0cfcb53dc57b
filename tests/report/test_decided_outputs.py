"""Causes of wrong outputs: the clause that they are reported under, and their order."""

from __future__ import annotations

from test_causes import failing, passing

from verispec.report.causes import fold

CEE, ENT = "sampler/copy_and_expand_eagle_inputs", "sampler/eagle_prepare_next_token_padded"
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
