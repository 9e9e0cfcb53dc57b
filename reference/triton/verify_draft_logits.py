"""verify_draft_logits: accept a draft x while log p(x) > log u + log q(x), then draw from norm(max(p - q, 0)).

One launch; every logit is read once (``_fused``). The residual is never summed but in rare cases: candidates from p
pass with probability 1 - q / p. With top-k or top-p more launches follow (``_fused_limited``).

Source: Leviathan et al. 2023 (arXiv 2211.17192), algorithm 1; von Neumann 1951 for the draw.
"""

from __future__ import annotations

from typing import Any

from ._fused import launch, outputs_of, requests_of
from ._fused_rows import DRAFT
from ._request_state import draft_of, shared_vocabulary


def verify_draft_logits(
    *,
    sampled: Any,
    num_sampled: Any,
    num_rejected: Any,
    next_token: Any,
    next_row: Any,
    target_logits: Any,
    draft_logits: Any,
    draft_sampled: Any,
    cu_num_logits: Any,
    idx_mapping: Any,
    pos: Any,
    temperature: Any,
    seed: Any,
    top_k: Any = None,
    top_p: Any = None,
    draft_normaliser: Any = None,
) -> None:
    vocabulary = shared_vocabulary(target_logits, draft_logits)
    requests = requests_of(
        draft_sampled, cu_num_logits, idx_mapping, sampled.shape[1], pos, temperature, seed, draft_normaliser
    )
    launch(
        outputs_of(sampled, num_sampled, num_rejected, next_token, next_row),
        target_logits,
        draft_of(draft_logits),
        requests,
        vocabulary,
        DRAFT,
        top_k,
        top_p,
    )
