"""Every fault in how parameters meet drafts is caught by the clause of the parameter."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_mutants import judged

CAUGHT = [
    ("allowed_ids_ignored", "e2e/parameters:GEN-18:parameter=allowed ids;draft=draft_model k=3;sampling=greedy"),
    ("bonus_unprocessed", "e2e/parameters:GEN-18:parameter=allowed ids;draft=ngram k=3;sampling=greedy"),
    ("drafts_unprocessed", "e2e/parameters:GEN-18:parameter=allowed ids;draft=eagle3 k=3;sampling=greedy"),
    ("special_first", "e2e/parameters:GEN-18:parameter=allowed ids;draft=draft_model k=3;sampling=greedy"),
    ("forgets_drafts", "e2e/parameters:GEN-19:parameter=bad words;draft=draft_model k=3;sampling=greedy"),
    ("bad_words_off_by_one", "e2e/parameters:GEN-19:parameter=bad words;draft=ngram k=3;sampling=greedy"),
    (
        "bad_words_off_by_one",
        "e2e/parameters:GEN-19:parameter=bad words;draft=draft_model k=3;target=tiny;sampling=drawn",
    ),
    ("forgets_drafts", "e2e/parameters:GEN-20:parameter=min tokens;draft=draft_model k=3;sampling=greedy"),
    ("one_stop_token", "e2e/parameters:GEN-20:parameter=min tokens;draft=none;sampling=greedy"),
    ("drafts_unprocessed", "e2e/parameters:GEN-21:parameter=logit bias;draft=draft_model k=3;sampling=greedy"),
    (
        "bonus_unprocessed",
        "e2e/parameters:GEN-21:parameter=logit bias;draft=draft_model k=3;target=tiny;sampler=request_state",
    ),
    ("forgets_drafts", "e2e/parameters:GEN-22:parameter=presence penalty;draft=draft_model k=3;sampling=greedy"),
    ("forgets_drafts", "e2e/parameters:GEN-22:parameter=frequency penalty;draft=draft_model k=3;sampling=greedy"),
    ("forgets_drafts", "e2e/parameters:GEN-22:parameter=presence penalty;draft=draft_model k=3;target=tiny;sampling=drawn"),
    ("all_drafts_counted", "e2e/parameters:GEN-22:parameter=penalties;draft=draft_model k=3;sampling=greedy"),
    ("prompt_forgotten", "e2e/parameters:GEN-22:parameter=repetition penalty;draft=none;sampling=greedy"),
    (
        "forgets_drafts",
        "e2e/parameters:GEN-22:parameter=penalties;draft=draft_model k=3;target=tiny;sampler=request_state",
    ),
    ("min_p_of_bonus_only", "e2e/parameters:GEN-23:parameter=min-p;draft=draft_model k=3"),
    ("min_p_of_bonus_only", "e2e/parameters:GEN-23:parameter=min-p;draft=draft_model k=3;target=tiny;sampling=drawn"),
    ("top_k_ignored", "e2e/parameters:GEN-23:parameter=top-k;draft=eagle3 k=3"),
    ("top_p_ignored", "e2e/parameters:GEN-23:parameter=top-p;draft=ngram k=3"),
    (
        "min_p_after_top_p",
        "e2e/parameters:GEN-24:parameter=min-p and top-p;draft=draft_model k=3;target=tiny;sampling=drawn",
    ),
    ("special_first", "e2e/parameters:GEN-24:parameter=everything;draft=ngram k=3;sampling=greedy"),
]
"""A fault, and a case of the clause that names it."""


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "case"), CAUGHT, ids=lambda value: value.replace(" ", "-"))
def test_a_fault_in_a_parameter_is_caught(fault: str, case: str, tmp_path: Path) -> None:
    assert judged(f"parameter_mutants:{fault}", case, tmp_path) == {"fail"}
