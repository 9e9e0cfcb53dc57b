"""verify_greedy: accept a draft while it is argmax of its row, then emit the argmax of the next row.

One launch; every logit is read once (``_fused``).
"""

from __future__ import annotations

from typing import Any

from ._fused import launch, outputs_of, requests_of
from ._fused_rows import GREEDY
from ._request_state import draft_of


def verify_greedy(
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
) -> None:
    vocabulary = target_logits.shape[1]
    requests = requests_of(draft_sampled, cu_num_logits, idx_mapping, sampled.shape[1])
    launch(
        outputs_of(sampled, num_sampled, num_rejected, next_token, next_row),
        target_logits,
        draft_of(None),
        requests,
        vocabulary,
        GREEDY,
    )
