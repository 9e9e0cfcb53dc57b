"""Drafts of small probability: both models give a draft little, and their quotient is what it was."""

from __future__ import annotations

from typing import Any

import numpy as np

from verispec.suites.sampler._calls import MadeCall

FAINT = ("block_verification", "probabilistic_rejection", "rejection_random_sample", "verify_draft_logits")
"""Ops that accept a draft by the quotient of its probabilities."""
RAW = ("verify_draft_logits",)
"""Ops that divide the target's logits by the temperature themselves; all of them do so with the draft's."""


def make_faint(op: str, call: MadeCall, bits: int) -> None:
    """Divide both probabilities of every draft by 2^bits; normalised rows give the rest to their other tokens."""
    values = call.values
    if "target_probs_ptr" in values:
        rows, tokens = np.arange(len(values["draft_token_ids_ptr"])), values["draft_token_ids_ptr"]
        for name in ("target_probs_ptr", "draft_probs_ptr"):
            if values[name] is not None:
                values[name][rows, tokens] *= 2.0**-bits
        return
    for b, state in enumerate(values["idx_mapping"]):
        start, end = values["cu_num_logits"][b : b + 2]
        for row in range(start, end - 1) if values["temperature"][state] else ():
            _lower(op, values, row, state, row - start, bits * np.log(2))


def _lower(op: str, values: dict[str, Any], row: int, state: int, step: int, distance: float) -> None:
    """Lower both logits of the draft behind a row by a distance, in units of the temperature where it divides them."""
    token, scale = values["draft_sampled"][row + 1], float(values["temperature"][state])
    values["target_logits"][row, token] -= distance * (scale if op in RAW else 1.0)
    if values["draft_logits"] is not None:
        values["draft_logits"][state, step, token] -= distance * scale
