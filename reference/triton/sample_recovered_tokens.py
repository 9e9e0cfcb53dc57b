"""sample_recovered_tokens: argmax over the vocabulary of max(p - q, 0) * inv_q, for every draft token.

Without draft probabilities the score is p * inv_q without the draft token. If no residual is positive it
is p * inv_q, and 0 if that is not positive either.

Two launches: a winner for each token and block of the vocabulary, then one program a token that takes
the best. A masked lane scores minus infinity, and so does a NaN: neither can win.

Source: Leviathan et al. 2023 (arXiv 2211.17192), algorithm 1; vLLM 0.33.0, sample_recovered_tokens_kernel.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

_BLOCK = 8192


@triton.jit
def request_of(cu_num_draft_tokens, requests, token, PADDED_REQUESTS: tl.constexpr):
    """The request of a token; `requests` for a token past the last count."""
    lanes = tl.arange(0, PADDED_REQUESTS)
    ends = tl.load(cu_num_draft_tokens + lanes, mask=lanes < requests, other=0).to(tl.int64)
    return tl.sum(((ends <= token) & (lanes < requests)).to(tl.int64), axis=0)


@triton.jit
def race(mass, inv_q):
    """Scores of the tokens with mass, minus infinity for all others and for NaN."""
    scores = mass.to(inv_q.dtype) * inv_q
    return tl.where((mass > 0.0) & (scores == scores), scores, float("-inf"))  # noqa: PLR0124


@triton.jit
def load_probs(probs, stride, ids, mask):
    return tl.load(probs + ids.to(tl.int64) * stride, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def _race_kernel(
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
    NO_DRAFT_PROBS: tl.constexpr,
    PADDED_REQUESTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    ids = block * BLOCK + tl.arange(0, BLOCK)
    mask = ids < vocab_size
    # Under way while the request is looked up.
    mass = load_probs(target_probs + token * target_stride_0, target_stride_1, ids, mask)
    if NO_DRAFT_PROBS:
        mass = tl.where(ids == tl.load(draft_token_ids + token), 0.0, mass)
    else:
        mass = mass - load_probs(draft_probs + token * draft_stride_0, draft_stride_1, ids, mask)
    request = request_of(cu_num_draft_tokens, requests, token, PADDED_REQUESTS)
    if request >= requests:
        return
    noise = tl.load(inv_q + request * inv_q_stride_0 + ids.to(tl.int64) * inv_q_stride_1, mask=mask, other=0.0)
    score, index = tl.max(race(tl.where(mask, mass, 0.0), noise), axis=0, return_indices=True)
    out = token * tl.num_programs(1) + block
    tl.store(best_score + out, score)
    tl.store(best_id + out, block * BLOCK + index)


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
    blocks,
    PADDED_REQUESTS: tl.constexpr,
    PADDED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    if token >= tl.load(cu_num_draft_tokens + requests - 1).to(tl.int64):
        return
    lanes = tl.arange(0, PADDED)
    scores = tl.load(best_score + token * blocks + lanes, mask=lanes < blocks, other=float("-inf"))
    score, block = tl.max(scores, axis=0, return_indices=True)
    winner = tl.load(best_id + token * blocks + block)
    if score == float("-inf"):
        request = request_of(cu_num_draft_tokens, requests, token, PADDED_REQUESTS)
        winner = tl.zeros((), tl.int32)
        for first in range(0, vocab_size, BLOCK):
            ids = first + tl.arange(0, BLOCK)
            mask = ids < vocab_size
            mass = load_probs(target_probs + token * target_stride_0, target_stride_1, ids, mask)
            noise = tl.load(inv_q + request * inv_q_stride_0 + ids.to(tl.int64) * inv_q_stride_1, mask=mask, other=0.0)
            block_score, index = tl.max(race(mass, noise), axis=0, return_indices=True)
            winner = tl.where(block_score > score, first + index, winner)
            score = tl.maximum(score, block_score)
    tl.store(output + token * output_stride, winner)


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
    blocks = triton.cdiv(vocab_size, _BLOCK)
    padded_requests = triton.next_power_of_2(requests)
    device = output_token_ids_ptr.device
    best_score = torch.empty((tokens, blocks), dtype=inv_q_ptr.dtype, device=device)
    best_id = torch.empty((tokens, blocks), dtype=torch.int32, device=device)
    cu_num_draft_tokens = cu_num_draft_tokens_ptr.contiguous()
    _race_kernel[(tokens, blocks)](
        best_score,
        best_id,
        cu_num_draft_tokens,
        draft_token_ids_ptr.contiguous(),
        None if NO_DRAFT_PROBS else draft_probs_ptr,
        *((0, 0) if NO_DRAFT_PROBS else draft_probs_ptr.stride()),
        target_probs_ptr,
        *target_probs_ptr.stride(),
        inv_q_ptr,
        *inv_q_ptr.stride(),
        requests,
        vocab_size,
        NO_DRAFT_PROBS=NO_DRAFT_PROBS,
        PADDED_REQUESTS=padded_requests,
        BLOCK=_BLOCK,
        num_warps=8,
    )
    _settle_kernel[(tokens,)](
        output_token_ids_ptr,
        output_token_ids_ptr.stride(0),
        best_score,
        best_id,
        cu_num_draft_tokens,
        target_probs_ptr,
        *target_probs_ptr.stride(),
        inv_q_ptr,
        *inv_q_ptr.stride(),
        requests,
        vocab_size,
        blocks,
        PADDED_REQUESTS=padded_requests,
        PADDED=triton.next_power_of_2(blocks),
        BLOCK=1024,
    )
