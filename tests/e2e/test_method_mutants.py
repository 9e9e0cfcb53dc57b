"""Faults in verification methods, log-probabilities, requests and options are caught by the clause that names them."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_runs import outcomes_of

DRAFT = "draft=draft_model k=3"
METHODS = "verification_methods"
CAUGHT = [
    (
        "block_ignored",
        f"{METHODS}:GEN-25:method=block;sampler=request_state;{DRAFT};limits=none;target=tiny",
    ),
    (
        "stale_residual",
        f"{METHODS}:GEN-26:sampler=request_state;{DRAFT};parameter=none;target=tiny",
    ),
    ("unconditional_rates", f"verification_methods:GEN-27:rates=0.8 0.5 0.2;batch=mixed;{DRAFT};target=tiny"),
    ("scheduled_counted", f"verification_methods:GEN-27:rates=0.8 0.5 0.2;batch=all greedy;{DRAFT};target=tiny"),
    ("rates_ignored", f"verification_methods:GEN-28:rate=0;batch=mixed;{DRAFT}"),
    ("rates_ignored", f"verification_methods:GEN-28:rate=1;batch=all sampled;{DRAFT}"),
    ("logprob_rows_shifted", f"logprobs:GEN-29:{DRAFT}"),
    ("logprobs_of_last_alone", f"logprobs:GEN-29:{DRAFT}"),
    ("logprobs_of_one", "logprobs:GEN-29:draft=ngram k=3"),
    ("raw_is_processed", "logprobs:GEN-29:draft=none"),
    ("raw_is_processed", f"logprobs:GEN-30:{DRAFT};mode=processed"),
    ("prompt_off_by_one", f"logprobs:GEN-31:{DRAFT}"),
    ("stop_string_at_the_end", f"requests:GEN-32:{DRAFT}"),
    ("samples_share_numbers", f"requests:GEN-33:{DRAFT};target=tiny"),
    ("aborted_keeps_running", f"requests:GEN-34:{DRAFT};memory=preemption"),
    ("cached_blocks_not_copied", f"requests:GEN-35:{DRAFT};parameter=none"),
    ("block_ignored", "options:GEN-37:option=rejection_sample_method_block"),
    ("rates_ignored", "options:GEN-37:option=synthetic_acceptance_rates"),
    ("depth_ignored", "options:GEN-37:option=num_speculative_tokens"),
    ("ngram_min_ignored", "options:GEN-37:option=ngram_min"),
    ("argmax_ignored", "options:GEN-37:option=draft_sample_method"),
    ("dtype_ignored", "options:GEN-37:option=dtype"),
    ("seed_of_engine_ignored", "options:GEN-37:option=seed"),
    ("logprobs_mode_ignored", "options:GEN-37:option=logprobs_mode"),
    ("max_num_seqs_ignored", "options:GEN-37:option=max_num_seqs"),
    ("limit_not_checked", "bad_configurations:GEN-38:configuration=length beyond the model"),
]
"""A fault, and a case of suite `e2e` that names it."""


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "case"), CAUGHT, ids=lambda value: value.replace(" ", "-"))
def test_a_fault_is_caught(fault: str, case: str, tmp_path: Path) -> None:
    assert outcomes_of(f"method_mutants:{fault}", f"e2e/{case}", tmp_path) == {"fail"}
