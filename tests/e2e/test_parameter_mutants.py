"""Every fault in how parameters meet drafts is caught by the clause of the parameter."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_runs import outcomes_of

CAUGHT = [
    ("allowed_ids_ignored", "GEN-18:parameter=allowed ids;draft=draft_model k=3;sampling=greedy"),
    ("bonus_unprocessed", "GEN-18:parameter=allowed ids;draft=ngram k=3;sampling=greedy"),
    ("drafts_unprocessed", "GEN-18:parameter=allowed ids;draft=eagle3 k=3;sampling=greedy"),
    ("special_first", "GEN-18:parameter=allowed ids;draft=draft_model k=3;sampling=greedy"),
    ("forgets_drafts", "GEN-19:parameter=bad words;draft=draft_model k=3;sampling=greedy"),
    ("bad_words_off_by_one", "GEN-19:parameter=bad words;draft=ngram k=3;sampling=greedy"),
    (
        "bad_words_off_by_one",
        "GEN-19:parameter=bad words;draft=draft_model k=3;target=tiny;sampling=drawn",
    ),
    ("forgets_drafts", "GEN-20:parameter=min tokens;draft=draft_model k=3;sampling=greedy"),
    ("one_stop_token", "GEN-20:parameter=min tokens;draft=none;sampling=greedy"),
    ("drafts_unprocessed", "GEN-21:parameter=logit bias;draft=draft_model k=3;sampling=greedy"),
    (
        "bonus_unprocessed",
        "GEN-21:parameter=logit bias;draft=draft_model k=3;target=tiny;sampler=request_state",
    ),
    ("forgets_drafts", "GEN-22:parameter=presence penalty;draft=draft_model k=3;sampling=greedy"),
    ("forgets_drafts", "GEN-22:parameter=frequency penalty;draft=draft_model k=3;sampling=greedy"),
    ("all_drafts_counted", "GEN-22:parameter=penalties;draft=draft_model k=3;sampling=greedy"),
    ("prompt_forgotten", "GEN-22:parameter=repetition penalty;draft=none;sampling=greedy"),
    (
        "forgets_drafts",
        "GEN-22:parameter=penalties;draft=draft_model k=3;target=tiny;sampler=request_state",
    ),
    ("min_p_of_bonus_only", "GEN-23:parameter=min-p;draft=draft_model k=3"),
    ("min_p_of_bonus_only", "GEN-23:parameter=min-p;draft=draft_model k=3;target=tiny;sampling=drawn"),
    ("top_k_ignored", "GEN-23:parameter=top-k;draft=eagle3 k=3"),
    ("top_p_ignored", "GEN-23:parameter=top-p;draft=ngram k=3"),
    (
        "min_p_after_top_p",
        "GEN-24:parameter=min-p and top-p;draft=draft_model k=3;target=tiny;sampling=drawn",
    ),
    ("special_first", "GEN-24:parameter=everything;draft=ngram k=3;sampling=greedy"),
]
"""A fault, and a case of `e2e/parameters` that names it."""


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "case"), CAUGHT, ids=lambda value: value.replace(" ", "-"))
def test_a_fault_in_a_parameter_is_caught(fault: str, case: str, tmp_path: Path) -> None:
    assert outcomes_of(f"parameter_mutants:{fault}", f"e2e/parameters:{case}", tmp_path) == {"fail"}
