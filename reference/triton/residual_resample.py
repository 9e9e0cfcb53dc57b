"""residual_resample: the token after the accepted draft tokens,

    rejected draft:     argmax(log(p - q) + g),   log(p - q) = log p + log1p(-q / p)
    rejected one-hot:   argmax(log p + g) without the draft token
    bonus, padding:     argmax(log p + g)

Two launches: block winners over the vocabulary, then one program per request that picks the best block. Only if no
token of the residual has mass does that program sample from p itself.

Source: Leviathan et al. 2023 (arXiv 2211.17192), algorithm 1; Sun et al. 2024 (arXiv 2403.10444) for the prefix ratio.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from verispec.reference.triton._gumbel_argmax import WINNER_BLOCK, BlockWinners, noisy, row_winner, store_block_winner

from ._logits import block_argmax, exp
from ._request_state import (
    batch_of,
    draft_of,
    load_draft,
    load_target,
    log_prob,
    shared_vocabulary,
    target_of,
)
from .philox import TARGET, log1m


@triton.jit
def log_residual(log_p, log_q):
    """Return log(max(p - q, 0)), minus infinity where q >= p."""
    ratio = exp(tl.minimum(log_q - log_p, 0.0))
    has_mass = (log_p > log_q) & (ratio < 1.0)
    ratio = tl.where(has_mass, ratio, 0.0)
    return tl.where(has_mass, log_p + log1m(ratio, 1.0 - ratio), float("-inf"))


@triton.jit
def drawn_row(batch, num_accepted, num_accepted_stride, request, state):
    """Return the row that a request's token is sampled from.

    The result is its step, its row, a flag for the bonus row, the temperature, and a flag for sampling. A greedy
    request already has its argmax from verification, unless its token is the bonus token.
    """
    step = tl.load(num_accepted + request * num_accepted_stride).to(tl.int64)
    row = tl.load(batch.cu_num_logits + request).to(tl.int64) + step
    is_bonus = row == tl.load(batch.cu_num_logits + request + 1).to(tl.int64) - 1
    temp = tl.load(batch.temperature + state)
    return step, row, is_bonus, temp, is_bonus | (temp != 0.0)


@triton.jit
def _block_winner_kernel(
    best_score,
    best_id,
    num_accepted,
    num_accepted_stride,
    target_logsumexp,
    draft_logsumexp,
    log_prefix_ratio,
    target,
    draft,
    batch,
    vocabulary,
    BLOCK: tl.constexpr,
):
    request = tl.program_id(0).to(tl.int64)
    state = tl.load(batch.idx_mapping + request).to(tl.int64)
    if state < 0:
        return
    step, row, is_bonus, temp, is_drawn = drawn_row(batch, num_accepted, num_accepted_stride, request, state)
    if not is_drawn:
        return
    token = tl.load(batch.draft_sampled + row + 1, mask=not is_bonus, other=-1).to(tl.int64)
    is_residual = (token >= 0) & (token < vocabulary) & (step < draft.steps)

    first_id = tl.program_id(1) * BLOCK
    ids = first_id + tl.arange(0, BLOCK)
    mask = ids < vocabulary
    weights = load_target(target, row, ids, mask)
    if is_residual:
        if draft.logits is None:
            weights = tl.where(ids == token, float("-inf"), weights)
        else:
            log_q = log_prob(load_draft(draft, state, step, ids, mask, temp), tl.load(draft_logsumexp + request))
            log_p = log_prob(weights, tl.load(target_logsumexp + request))
            if log_prefix_ratio is not None:
                log_p += tl.load(log_prefix_ratio + request)
            weights = log_residual(log_p, log_q)
    if temp != 0.0:
        seed = tl.load(batch.seed + state)
        weights = noisy(weights, seed, tl.load(batch.pos + row), step, TARGET, first_id, BLOCK)
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
    target,
    batch,
    blocks,
    vocabulary,
    BLOCK: tl.constexpr,
    PADDED: tl.constexpr,
):
    request = tl.program_id(0).to(tl.int64)
    state = tl.load(batch.idx_mapping + request).to(tl.int64)
    if state < 0:
        return
    step, row, _is_bonus, temp, is_drawn = drawn_row(batch, num_accepted, num_accepted_stride, request, state)
    tl.store(num_sampled + request * num_sampled_stride, step + 1)
    if not is_drawn:
        return
    score, token = row_winner(best_score, best_id, request, blocks, PADDED)
    if (score == float("-inf")) & (temp != 0.0):
        seed = tl.load(batch.seed + state)
        pos = tl.load(batch.pos + row)
        token = tl.zeros((), tl.int64)
        for first_id in range(0, vocabulary, BLOCK):
            ids = first_id + tl.arange(0, BLOCK)
            weights = load_target(target, row, ids, ids < vocabulary)
            scores = noisy(weights, seed, pos, step, TARGET, first_id, BLOCK)
            block_score, index = block_argmax(scores, BLOCK)
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
    target, draft = target_of(target_logits), draft_of(draft_logits)
    batch = batch_of(draft_sampled, cu_num_logits, pos, idx_mapping, temperature, seed)
    vocabulary = shared_vocabulary(target_logits, draft_logits)
    winners = BlockWinners(requests, vocabulary, target_logits.device)
    _block_winner_kernel[(requests, winners.blocks)](
        winners.best_score,
        winners.best_id,
        num_accepted,
        num_accepted.stride(0),
        target_logsumexp.contiguous(),
        draft_logsumexp.contiguous(),
        None if log_prefix_ratio is None else log_prefix_ratio.contiguous(),
        target,
        draft,
        batch,
        vocabulary,
        BLOCK=WINNER_BLOCK,
    )
    _settle_kernel[(requests,)](
        sampled,
        *sampled.stride(),
        num_sampled,
        num_sampled.stride(0),
        winners.best_score,
        winners.best_id,
        num_accepted,
        num_accepted.stride(0),
        target,
        batch,
        winners.blocks,
        vocabulary,
        BLOCK=WINNER_BLOCK,
        PADDED=winners.padded,
    )
