"""Every cell of the table of parameters, drafters and methods has a case or a reason, and every option a probe."""

from __future__ import annotations

from dataclasses import fields

import pytest
from caught import CAUGHT
from parameter_table import CHECKED, METHODS, NO_PARAMETER, REASONS, cells, checked_by, reason_of

from verispec.cases import CaseId
from verispec.engines.protocol.generation import REJECTION_SAMPLE_METHODS, GenerationRequest, LoadOptions
from verispec.run.plan import Plan
from verispec.run.supervisor import Supervisor
from verispec.suites.e2e.test_successors import NARROWEST

ELSEWHERE = {
    "draft": "every case with a model that drafts (GEN-9, GEN-14)",
    "rejection_sample_method": "probed as rejection_sample_method_block and by the synthetic rates",
    "sampler": "request_state has random numbers of its contract (GEN-17)",
    "async_scheduling": "no text may change (GEN-36)",
    "tensor_parallel_size": "no text may change (GEN-40)",
    "max_num_batched_tokens": "no text may change (GEN-4)",
    "parallel_drafting": "drafts are those of mask tokens (GEN-47)",
    "suffix_decoding_max_tree_depth": "limits of suffix drafts (GEN-46)",
    "suffix_decoding_max_cached_requests": "limits of suffix drafts (GEN-46)",
    "suffix_decoding_max_spec_factor": "limits of suffix drafts (GEN-46)",
    "suffix_decoding_min_token_prob": "limits of suffix drafts (GEN-46)",
    "block_size": "no text may change (GEN-4)",
    "lora_adapters": "requests name them, and their texts show it (GEN-43)",
}
"""Options without a probe of their own, and what checks them."""


@pytest.fixture(scope="module")
def collected() -> list[CaseId]:
    """Ids of suite `e2e`, whatever the engine supports."""
    return [CaseId.parse(case) for case in Supervisor(Plan("reference", suites=("e2e",))).collect().selected]


def test_every_cell_has_a_case_or_a_reason(collected: list[CaseId]) -> None:
    checked = set().union(*map(checked_by, collected))
    assert [cell for cell in cells() if cell not in checked and not reason_of(cell)] == []


def test_limits_lie_inside_their_ranges() -> None:
    """OpenVINO GenAI refuses a min-p of 1 by an error of its own, and is right to have a range without its end."""
    values = [value for limit in NARROWEST.values() for name, value in limit.items() if name != "top_k"]
    assert [value for value in values if not 0 < value < 1] == []


def test_every_reason_is_needed(collected: list[CaseId]) -> None:
    checked = set().union(*map(checked_by, collected))
    used = {reason_of(cell) for cell in cells() if cell not in checked}
    assert [reason for *_, reason in REASONS if reason not in used] == []


def test_the_table_has_every_field_and_method() -> None:
    assert set(CHECKED) | set(NO_PARAMETER) == {field.name for field in fields(GenerationRequest)}
    assert set(METHODS) == set(REJECTION_SAMPLE_METHODS)


def test_every_option_is_probed_or_checked_elsewhere(collected: list[CaseId]) -> None:
    probed = {dict(case.params)["option"] for case in collected if case.clause == "GEN-37"}
    missing = {field.name for field in fields(LoadOptions)} - probed
    assert missing == set(ELSEWHERE)


def test_the_faults_name_cases_that_exist(collected: list[CaseId]) -> None:
    known = {str(case).removeprefix("e2e/") for case in collected}
    assert [case for cases in CAUGHT.values() for case in cases if case not in known] == []
