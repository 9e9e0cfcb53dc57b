"""Every fault that a runner was seen to have is caught by the clause of generation that names it."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_runs import outcomes_of

CAUGHT = [
    ("kv_not_rolled_back", "e2e/greedy:GEN-13:draft=draft_model k=3"),
    ("kv_not_rolled_back", "e2e/greedy:GEN-13:draft=ngram k=3"),
    ("position_off_by_one", "e2e/greedy:GEN-13:draft=draft_model k=3"),
    ("position_off_by_one", "e2e/greedy:GEN-13:draft=ngram k=3"),
    ("aux_layers_shifted", "e2e/greedy:GEN-14:draft=eagle3 k=3"),
    ("d2t_ignored", "e2e/greedy:GEN-14:draft=eagle3 k=3"),
    ("bonus_lost", "e2e/limits:GEN-16:draft=draft_model k=3"),
    ("batch_order_by_dict", "e2e/greedy:GEN-3:draft=none;others=20"),
    ("stale_drafts_after_preemption", "e2e/greedy:GEN-15:draft=draft_model k=3"),
    ("stale_drafts_after_preemption", "e2e/greedy:GEN-15:draft=eagle3 k=3"),
    ("draft_probs_lost", "e2e/sampled:GEN-7:draft=draft_model k=3;limits=none"),
    ("recovered_from_target", "e2e/sampled:GEN-6:draft=draft_model k=3;limits=none"),
    ("too_cold", "e2e/sampled:GEN-5:draft=draft_model k=3;limits=none"),
    ("too_cold", "e2e/sampled:GEN-6:draft=draft_model k=3;limits=none"),
    ("seed_ignored", "e2e/counter_rng:GEN-17:draft=none;sampler=request_state"),
    ("counts_from_one", "e2e/counter_rng:GEN-17:draft=ngram k=3;sampler=request_state"),
    ("drafts_count_from_one", "e2e/counter_rng:GEN-17:draft=draft_model k=3;sampler=request_state"),
    ("one_salt", "e2e/counter_rng:GEN-17:draft=draft_model k=3;sampler=request_state"),
    ("slots_mixed_up", "e2e/counter_rng:GEN-17:draft=draft_model k=3;sampler=request_state"),
    ("slot_not_written", "e2e/counter_rng:GEN-17:draft=none;memory=preemption;sampler=request_state"),
    ("samples_on_resuming", "e2e/counter_rng:GEN-17:draft=draft_model k=3;memory=preemption;sampler=request_state"),
]
"""A fault, and a case of the clause that names it."""


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "case"), CAUGHT, ids=lambda value: value.replace(" ", "-"))
def test_a_fault_in_a_runner_is_caught(fault: str, case: str, tmp_path: Path) -> None:
    assert outcomes_of(f"runner_mutants:{fault}", case, tmp_path) == {"fail"}


@pytest.mark.slow
@pytest.mark.parametrize("case", sorted({case for _, case in CAUGHT}), ids=lambda case: case.replace(" ", "-"))
def test_the_reference_passes_what_catches_the_faults(case: str, tmp_path: Path) -> None:
    assert outcomes_of("reference", case, tmp_path) == {"pass"}
