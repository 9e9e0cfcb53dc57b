"""verify_one_hot: accept a draft x while p(x) > u, then draw by inverse CDF from p, without x where it was rejected.

One launch; every logit is read once (``_fused``). With top-k or top-p the rows are masked before.
"""

from __future__ import annotations

from typing import Any

from ._fused import ONE_HOT, launch, outputs_of, requests_of
from ._fused_limits import limited
from ._request_state import draft_of, target_of


def verify_one_hot(
    *,
    sampled: Any,
    num_sampled: Any,
    num_rejected: Any,
    next_token: Any,
    next_row: Any,
    target_logits: Any,
    draft_sampled: Any,
    cu_num_logits: Any,
    idx_mapping: Any,
    pos: Any,
    temperature: Any,
    seed: Any,
    top_k: Any = None,
    top_p: Any = None,
) -> None:
    vocabulary = target_logits.shape[1]
    if top_k is not None or top_p is not None:
        target_logits = limited(target_logits, vocabulary, cu_num_logits, idx_mapping, temperature, top_k, top_p)
    launch(
        outputs_of(sampled, num_sampled, num_rejected, next_token, next_row),
        target_of(target_logits),
        draft_of(None),
        requests_of(draft_sampled, cu_num_logits, idx_mapping, sampled.shape[1], pos, temperature, seed),
        vocabulary,
        ONE_HOT,
    )
