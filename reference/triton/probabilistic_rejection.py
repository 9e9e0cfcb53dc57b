"""probabilistic_rejection: accept a draft token x of row i while

    log p_i(x) > log u_i + log q_i(x)          or, at temperature 0, while x = argmax p_i

Two launches: block statistics of the draft rows, then one program per request that walks its draft tokens and stops at
the first rejection.

Source: Leviathan et al. 2023 (arXiv 2211.17192), algorithm 1.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from ._launches import UNFUSED
from ._request_state import (
    accept_while_argmax,
    batch_of,
    decision_of,
    draft_log_probs,
    draft_of,
    row_stats,
    rows_of,
    shared_vocabulary,
    store_normalisers,
    target_of,
)
from .philox import log_acceptance_number


@triton.jit
def _accept_kernel(decision, stats, target, draft, batch, vocabulary, PADDED: tl.constexpr):
    request = tl.program_id(0).to(tl.int64)
    state = tl.load(batch.idx_mapping + request).to(tl.int64)
    if state < 0:
        return
    first = tl.load(batch.cu_num_logits + request).to(tl.int64)
    drafts = tl.load(batch.cu_num_logits + request + 1).to(tl.int64) - first - 1
    temp = tl.load(batch.temperature + state)
    if temp == 0.0:
        accept_while_argmax(decision, stats, batch, request, first, drafts, PADDED)
        return
    sampled = decision.sampled + request * decision.sampled_stride_0
    request_seed = tl.load(batch.seed + state)
    step = tl.zeros((), tl.int64)
    verifying = drafts > 0
    while verifying:
        row = first + step
        token = tl.load(batch.draft_sampled + row + 1).to(tl.int64)
        accepted = (token >= 0) & (token < vocabulary) & (step < draft.steps)
        if accepted:
            log_p, log_q, target_lse, draft_lse = draft_log_probs(
                stats, target, draft, state, step, row, token, True, temp, PADDED
            )
            log_u = log_acceptance_number(request_seed, tl.load(batch.pos + row), step)
            accepted = log_p > log_u + log_q
            if accepted:
                tl.store(sampled + step * decision.sampled_stride_1, token)
            else:
                store_normalisers(decision, request, target_lse, draft_lse)
        step += accepted.to(tl.int64)
        verifying = accepted & (step < drafts)
    tl.store(decision.num_accepted + request * decision.num_accepted_stride, step)


def probabilistic_rejection(
    *,
    sampled: Any,
    num_accepted: Any,
    target_logsumexp: Any,
    draft_logsumexp: Any,
    target_logits: Any,
    draft_logits: Any,
    draft_sampled: Any,
    cu_num_logits: Any,
    pos: Any,
    idx_mapping: Any,
    expanded_idx_mapping: Any,
    expanded_local_pos: Any,
    temperature: Any,
    seed: Any,
) -> None:
    requests = idx_mapping.shape[0]
    if requests == 0:
        return
    target, draft = target_of(target_logits), draft_of(draft_logits)
    batch = batch_of(draft_sampled, cu_num_logits, pos, idx_mapping, temperature, seed)
    vocabulary = shared_vocabulary(target_logits, draft_logits)
    rows = rows_of(expanded_idx_mapping, expanded_local_pos)
    stats = row_stats(target, draft, rows, batch.temperature, vocabulary)
    _accept_kernel[(requests,)](
        decision_of(sampled, num_accepted, target_logsumexp, draft_logsumexp),
        stats,
        target,
        draft,
        batch,
        vocabulary,
        PADDED=triton.next_power_of_2(stats.blocks),
        num_warps=1,
        **UNFUSED,
    )
