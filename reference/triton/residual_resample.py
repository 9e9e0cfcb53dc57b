"""residual_resample: the token after the accepted drafts,

    rejected draft:     argmax(log(p - q) + g),   log(p - q) = log p + log1p(-q / p)
    rejected one-hot:   argmax(log p + g) without the draft
    bonus, placeholder: argmax(log p + g)

Two launches: the race in blocks of the vocabulary, then one program a request that settles it. Only if
no token of the residual has mass does that program run the race of p itself.

Source: Leviathan et al. 2023 (arXiv 2211.17192), algorithm 1; Sun et al. 2024 (arXiv 2403.10444) for
the prefix ratio.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from ._logits import exp, load_logits
from ._race import RACE_BLOCK, Race, noisy, row_winner, store_block_winner
from ._request_state import draft_strides, log_prob, shared_vocabulary, stored_steps
from .philox import TARGET, log1m


@triton.jit
def log_residual(log_p, log_q):
    """log(max(p - q, 0)), minus infinity where q >= p."""
    ratio = exp(tl.minimum(log_q - log_p, 0.0))
    has_mass = (log_p > log_q) & (ratio < 1.0)
    ratio = tl.where(has_mass, ratio, 0.0)
    return tl.where(has_mass, log_p + log1m(ratio, 1.0 - ratio), float("-inf"))


@triton.jit
def _race_kernel(
    best_score,
    best_id,
    num_accepted,
    num_accepted_stride,
    target_logsumexp,
    draft_logsumexp,
    log_prefix_ratio,
    target_logits,
    target_stride_0,
    target_stride_1,
    draft_logits,
    draft_stride_0,
    draft_stride_1,
    draft_stride_2,
    draft_steps,
    draft_sampled,
    cu_num_logits,
    pos,
    idx_mapping,
    temperature,
    seed,
    vocabulary,
    HAS_DRAFT_LOGITS: tl.constexpr,
    HAS_PREFIX_RATIO: tl.constexpr,
    BLOCK: tl.constexpr,
):
    request = tl.program_id(0).to(tl.int64)
    state = tl.load(idx_mapping + request).to(tl.int64)
    if state < 0:
        return
    step = tl.load(num_accepted + request * num_accepted_stride).to(tl.int64)
    row = tl.load(cu_num_logits + request).to(tl.int64) + step
    is_bonus = row == tl.load(cu_num_logits + request + 1).to(tl.int64) - 1
    temp = tl.load(temperature + state)
    if (temp == 0.0) & (not is_bonus):
        return
    draft = tl.load(draft_sampled + row + 1, mask=not is_bonus, other=-1).to(tl.int64)
    is_residual = (draft >= 0) & (draft < vocabulary) & (step < draft_steps)

    first_id = tl.program_id(1) * BLOCK
    ids = first_id + tl.arange(0, BLOCK)
    mask = ids < vocabulary
    weights = load_logits(target_logits + row * target_stride_0, target_stride_1, ids, mask)
    if is_residual:
        if HAS_DRAFT_LOGITS:
            draft_row = draft_logits + state * draft_stride_0 + step * draft_stride_1
            log_q = log_prob(
                load_logits(draft_row, draft_stride_2, ids, mask) * (1.0 / temp), tl.load(draft_logsumexp + request)
            )
            log_p = log_prob(weights, tl.load(target_logsumexp + request))
            if HAS_PREFIX_RATIO:
                log_p += tl.load(log_prefix_ratio + request)
            weights = log_residual(log_p, log_q)
        else:
            weights = tl.where(ids == draft, float("-inf"), weights)
    if temp != 0.0:
        weights = noisy(weights, tl.load(seed + state), tl.load(pos + row), step, TARGET, first_id, BLOCK)
    store_block_winner(best_score, best_id, request, weights, BLOCK)


@triton.jit
def _settle_kernel(
    sampled,
    sampled_stride_0,
    sampled_stride_1,
    num_sampled,
    num_sampled_stride,
    best_score,
    best_id,
    num_accepted,
    num_accepted_stride,
    target_logits,
    target_stride_0,
    target_stride_1,
    cu_num_logits,
    pos,
    idx_mapping,
    temperature,
    seed,
    blocks,
    vocabulary,
    BLOCK: tl.constexpr,
    PADDED: tl.constexpr,
):
    request = tl.program_id(0).to(tl.int64)
    state = tl.load(idx_mapping + request).to(tl.int64)
    if state < 0:
        return
    step = tl.load(num_accepted + request * num_accepted_stride).to(tl.int64)
    tl.store(num_sampled + request * num_sampled_stride, step + 1)
    row = tl.load(cu_num_logits + request).to(tl.int64) + step
    is_bonus = row == tl.load(cu_num_logits + request + 1).to(tl.int64) - 1
    temp = tl.load(temperature + state)
    if (temp == 0.0) & (not is_bonus):
        return
    score, token = row_winner(best_score, best_id, request, blocks, PADDED)
    if (score == float("-inf")) & (temp != 0.0):
        request_seed = tl.load(seed + state)
        row_pos = tl.load(pos + row)
        token = tl.zeros((), tl.int64)
        for first_id in range(0, vocabulary, BLOCK):
            ids = first_id + tl.arange(0, BLOCK)
            target = load_logits(target_logits + row * target_stride_0, target_stride_1, ids, ids < vocabulary)
            scores = noisy(target, request_seed, row_pos, step, TARGET, first_id, BLOCK)
            block_score, index = tl.max(scores, axis=0, return_indices=True)
            token = tl.where(block_score > score, first_id + index.to(tl.int64), token)
            score = tl.maximum(score, block_score)
    tl.store(sampled + request * sampled_stride_0 + step * sampled_stride_1, token)


def residual_resample(
    *,
    sampled: Any,
    num_sampled: Any,
    num_accepted: Any,
    target_logsumexp: Any,
    draft_logsumexp: Any,
    log_prefix_ratio: Any,
    target_logits: Any,
    draft_logits: Any,
    draft_sampled: Any,
    cu_num_logits: Any,
    pos: Any,
    idx_mapping: Any,
    temperature: Any,
    seed: Any,
) -> None:
    requests = idx_mapping.shape[0]
    if requests == 0:
        return
    vocabulary = shared_vocabulary(target_logits, draft_logits)
    race = Race(requests, vocabulary, target_logits.device)
    cu_num_logits, pos, idx_mapping = cu_num_logits.contiguous(), pos.contiguous(), idx_mapping.contiguous()
    temperature, seed = temperature.contiguous(), seed.contiguous()
    _race_kernel[(requests, race.blocks)](
        race.best_score,
        race.best_id,
        num_accepted,
        num_accepted.stride(0),
        target_logsumexp.contiguous(),
        draft_logsumexp.contiguous(),
        None if log_prefix_ratio is None else log_prefix_ratio.contiguous(),
        target_logits,
        *target_logits.stride(),
        draft_logits,
        *draft_strides(draft_logits),
        stored_steps(draft_logits),
        draft_sampled.contiguous(),
        cu_num_logits,
        pos,
        idx_mapping,
        temperature,
        seed,
        vocabulary,
        HAS_DRAFT_LOGITS=draft_logits is not None,
        HAS_PREFIX_RATIO=log_prefix_ratio is not None,
        BLOCK=RACE_BLOCK,
    )
    _settle_kernel[(requests,)](
        sampled,
        *sampled.stride(),
        num_sampled,
        num_sampled.stride(0),
        race.best_score,
        race.best_id,
        num_accepted,
        num_accepted.stride(0),
        target_logits,
        *target_logits.stride(),
        cu_num_logits,
        pos,
        idx_mapping,
        temperature,
        seed,
        race.blocks,
        vocabulary,
        BLOCK=RACE_BLOCK,
        PADDED=race.padded,
    )
