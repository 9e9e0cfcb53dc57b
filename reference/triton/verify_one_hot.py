"""verify_one_hot: accept a draft x while p(x) > u, then draw by inverse CDF from p, without x where it was rejected.

One launch; every logit is read once (``_fused``). With top-k or top-p more launches follow (``_fused_limited``).
"""

from __future__ import annotations

from typing import Any

from ._fused import launch, outputs_of, requests_of
from ._fused_rows import ONE_HOT
from ._request_state import draft_of


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
    requests = requests_of(draft_sampled, cu_num_logits, idx_mapping, sampled.shape[1], pos, temperature, seed)
    launch(
        outputs_of(sampled, num_sampled, num_rejected, next_token, next_row),
        target_logits,
        draft_of(None),
        requests,
        vocabulary,
        ONE_HOT,
        top_k,
        top_p,
    )
