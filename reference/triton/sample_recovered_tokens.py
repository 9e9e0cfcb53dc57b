"""sample_recovered_tokens: argmax over the vocabulary of max(p - q, 0) * inv_q, for every draft token.

An exponential variable with rate w is E / w for a unit exponential E. The smallest of several belongs to token i
with probability w_i / sum(w). The argmax of w_i * inv_q_i, with inv_q = 1 / E, therefore samples from w without a
normalisation or a cumulative sum.

Without draft probabilities w is p without the draft token. If no residual is positive w is p, and the token is 0 if no
p is positive either.

Many draft tokens fill the device with one program each. For few draft tokens several programs share the vocabulary, and
a second launch picks the best of their winners. Masked lanes and NaN score minus infinity, so that neither wins.

Source: Leviathan et al. 2023 (arXiv 2211.17192), algorithm 1; vLLM 0.33.0, sample_recovered_tokens_kernel.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

_BLOCK = 2048
_PROGRAMS = 512
"""Number of programs that fills the device."""


@triton.jit
def request_of(cu_num_draft_tokens, requests, token, PADDED_REQUESTS: tl.constexpr):
    """Return the request of a token; `requests` for a token past the last count."""
    lanes = tl.arange(0, PADDED_REQUESTS)
    ends = tl.load(cu_num_draft_tokens + lanes, mask=lanes < requests, other=0).to(tl.int64)
    return tl.sum(((ends <= token) & (lanes < requests)).to(tl.int64), axis=0)


@triton.jit
def load_probs(probs, stride, ids, mask):
    # Probabilities are read once and evicted first, so that the noise of a request stays in the cache for its tokens.
    x = tl.load(probs + ids.to(tl.int64) * stride, mask=mask, other=0.0, eviction_policy="evict_first")
    return x.to(tl.float32)


@triton.jit
def winner(
    draft_token,
    draft,
    draft_stride,
    target,
    target_stride,
    noise,
    noise_stride,
    vocab_size,
    share,
    RESIDUAL: tl.constexpr,
    SHARES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Return the best score in every `SHARES`-th block from `share` on and its id, the lowest for equal scores.

    Without `RESIDUAL` the weight is p.
    """
    lane = tl.arange(0, BLOCK)
    best = tl.full((BLOCK,), float("-inf"), noise.dtype.element_ty)
    best_first = tl.zeros((BLOCK,), tl.int32)
    for first in range(share * BLOCK, vocab_size, SHARES * BLOCK):
        ids = first + lane
        mask = ids < vocab_size
        mass = load_probs(target, target_stride, ids, mask)
        if RESIDUAL:
            if draft is None:
                mass = tl.where(ids == draft_token, 0.0, mass)
            else:
                mass = mass - load_probs(draft, draft_stride, ids, mask)
        inv_q = tl.load(noise + ids.to(tl.int64) * noise_stride, mask=mask, other=0.0)
        scores = tl.where(mass > 0.0, mass.to(inv_q.dtype) * inv_q, float("-inf"))
        is_better = scores > best
        best = tl.where(is_better, scores, best)
        best_first = tl.where(is_better, first, best_first)
    score = tl.max(best, axis=0)
    return score, tl.min(tl.where(best == score, best_first + lane, vocab_size), axis=0)


@triton.jit
def _block_winner_kernel(
    output,
    output_stride,
    best_score,
    best_id,
    cu_num_draft_tokens,
    draft_token_ids,
    draft_probs,
    draft_stride_0,
    draft_stride_1,
    target_probs,
    target_stride_0,
    target_stride_1,
    inv_q,
    inv_q_stride_0,
    inv_q_stride_1,
    requests,
    vocab_size,
    PADDED_REQUESTS: tl.constexpr,
    SHARES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Find the winner of a program's share of the vocabulary; a single program stores the token itself."""
    token = tl.program_id(0).to(tl.int64)
    share = tl.program_id(1)
    request = request_of(cu_num_draft_tokens, requests, token, PADDED_REQUESTS)
    if request >= requests:
        return
    draft_token = 0
    draft = None
    if draft_probs is None:
        draft_token = tl.load(draft_token_ids + token)
    else:
        draft = draft_probs + token * draft_stride_0
    target = target_probs + token * target_stride_0
    noise = inv_q + request * inv_q_stride_0
    score, token_id = winner(
        draft_token,
        draft,
        draft_stride_1,
        target,
        target_stride_1,
        noise,
        inv_q_stride_1,
        vocab_size,
        share,
        True,
        SHARES,
        BLOCK,
    )
    if SHARES > 1:
        tl.store(best_score + token * SHARES + share, score)
        tl.store(best_id + token * SHARES + share, token_id)
    else:
        if score == float("-inf"):
            _score, token_id = winner(
                0, None, 0, target, target_stride_1, noise, inv_q_stride_1, vocab_size, 0, False, 1, BLOCK
            )
        tl.store(output + token * output_stride, token_id)


@triton.jit
def _settle_kernel(
    output,
    output_stride,
    best_score,
    best_id,
    cu_num_draft_tokens,
    target_probs,
    target_stride_0,
    target_stride_1,
    inv_q,
    inv_q_stride_0,
    inv_q_stride_1,
    requests,
    vocab_size,
    PADDED_REQUESTS: tl.constexpr,
    SHARES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    if token >= tl.load(cu_num_draft_tokens + requests - 1).to(tl.int64):
        return
    at = token * SHARES + tl.arange(0, SHARES)
    scores = tl.load(best_score + at)
    score = tl.max(scores, axis=0)
    token_id = tl.min(tl.where(scores == score, tl.load(best_id + at), vocab_size), axis=0)
    if score == float("-inf"):
        request = request_of(cu_num_draft_tokens, requests, token, PADDED_REQUESTS)
        target = target_probs + token * target_stride_0
        noise = inv_q + request * inv_q_stride_0
        _score, token_id = winner(
            0, None, 0, target, target_stride_1, noise, inv_q_stride_1, vocab_size, 0, False, 1, BLOCK
        )
    tl.store(output + token * output_stride, token_id)


def sample_recovered_tokens(
    *,
    output_token_ids_ptr: Any,
    cu_num_draft_tokens_ptr: Any,
    draft_token_ids_ptr: Any,
    draft_probs_ptr: Any,
    target_probs_ptr: Any,
    inv_q_ptr: Any,
    vocab_size: int,
    NO_DRAFT_PROBS: bool,
    USE_FP64_GUMBEL: bool,
    BLOCK_SIZE: int = _BLOCK,
) -> None:
    tokens, requests = output_token_ids_ptr.shape[0], cu_num_draft_tokens_ptr.shape[0]
    if tokens == 0 or requests == 0:
        return
    # A power of two limits the number of compiled variants.
    shares = triton.next_power_of_2(min(max(_PROGRAMS // tokens, 1), triton.cdiv(vocab_size, _BLOCK)))
    device = output_token_ids_ptr.device
    best_score = torch.empty((tokens, shares), dtype=inv_q_ptr.dtype, device=device)
    best_id = torch.empty((tokens, shares), dtype=torch.int32, device=device)
    found = (output_token_ids_ptr, output_token_ids_ptr.stride(0), best_score, best_id)
    cu_num_draft_tokens = cu_num_draft_tokens_ptr.contiguous()
    weights = (target_probs_ptr, *target_probs_ptr.stride(), inv_q_ptr, *inv_q_ptr.stride(), requests, vocab_size)
    padded_requests = triton.next_power_of_2(requests)
    _block_winner_kernel[(tokens, shares)](
        *found,
        cu_num_draft_tokens,
        draft_token_ids_ptr.contiguous(),
        None if NO_DRAFT_PROBS else draft_probs_ptr,
        *((0, 0) if NO_DRAFT_PROBS else draft_probs_ptr.stride()),
        *weights,
        PADDED_REQUESTS=padded_requests,
        SHARES=shares,
        BLOCK=_BLOCK,
    )
    if shares > 1:
        _settle_kernel[(tokens,)](
            *found,
            cu_num_draft_tokens,
            *weights,
            PADDED_REQUESTS=padded_requests,
            SHARES=shares,
            BLOCK=_BLOCK,
        )
