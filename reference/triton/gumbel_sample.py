"""gumbel_sample: the token of a row is

    argmax(logits / temperature + g)           or, at temperature 0, argmax(logits)

Two launches: one program per block of the vocabulary finds the block's winner and stores a drafter's logits; one
program per row then picks the best block.

Source: the Gumbel-max trick (Maddison et al. 2014, arXiv 1411.0030).
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from verispec.reference.triton._gumbel_argmax import WINNER_BLOCK, BlockWinners, noisy, row_winner, store_block_winner

from ._logits import nan_as_lowest
from .philox import DRAFT, TARGET


@triton.jit
def _block_winner_kernel(
    best_score,
    best_id,
    logits,
    logits_stride_0,
    logits_stride_1,
    expanded_idx_mapping,
    temperature,
    seed,
    pos,
    logits_cache,
    cache_stride_0,
    cache_stride_1,
    cache_stride_2,
    logits_cache_col,
    vocabulary,
    APPLY_TEMPERATURE: tl.constexpr,
    IS_DRAFTING: tl.constexpr,
    HAS_CACHE: tl.constexpr,
    HAS_COL: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    state = tl.load(expanded_idx_mapping + row).to(tl.int64)
    if state < 0:
        return
    first_id = tl.program_id(1) * BLOCK
    ids = first_id + tl.arange(0, BLOCK)
    mask = ids < vocabulary
    weights = tl.load(
        logits + row * logits_stride_0 + ids.to(tl.int64) * logits_stride_1, mask=mask, other=float("-inf")
    )
    step = tl.zeros((), tl.int64)
    if HAS_COL:
        step = tl.load(logits_cache_col + row).to(tl.int64)
    if HAS_CACHE:
        weights = weights.to(logits_cache.dtype.element_ty)
        cache_row = logits_cache + state * cache_stride_0 + step * cache_stride_1
        tl.store(cache_row + ids.to(tl.int64) * cache_stride_2, weights, mask=mask)
    weights = nan_as_lowest(weights.to(tl.float32))
    temp = tl.load(temperature + state)
    if temp != 0.0:
        if APPLY_TEMPERATURE:
            weights = weights / temp
        request_seed = tl.load(seed + state)
        row_pos = tl.load(pos + row)
        if IS_DRAFTING:
            weights = noisy(weights, request_seed, row_pos, step, DRAFT, first_id, BLOCK)
        else:
            weights = noisy(weights, request_seed, row_pos, step * 0, TARGET, first_id, BLOCK)
    store_block_winner(best_score, best_id, row, weights, BLOCK)


@triton.jit
def _settle_kernel(sampled, sampled_stride, best_score, best_id, expanded_idx_mapping, blocks, PADDED: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    if tl.load(expanded_idx_mapping + row) >= 0:
        _, token = row_winner(best_score, best_id, row, blocks, PADDED)
        tl.store(sampled + row * sampled_stride, token)


def gumbel_sample(
    *,
    sampled: Any,
    logits: Any,
    expanded_idx_mapping: Any,
    temperature: Any,
    seed: Any,
    pos: Any,
    apply_temperature: bool,
    is_drafting: bool,
    logits_cache: Any = None,
    logits_cache_col: Any = None,
) -> None:
    rows, vocabulary = logits.shape
    if rows == 0:
        return
    winners = BlockWinners(rows, vocabulary, logits.device)
    expanded_idx_mapping = expanded_idx_mapping.contiguous()
    _block_winner_kernel[(rows, winners.blocks)](
        winners.best_score,
        winners.best_id,
        logits,
        *logits.stride(),
        expanded_idx_mapping,
        temperature.contiguous(),
        seed.contiguous(),
        pos.contiguous(),
        logits_cache,
        *((0, 0, 0) if logits_cache is None else logits_cache.stride()),
        None if logits_cache_col is None else logits_cache_col.contiguous(),
        vocabulary,
        APPLY_TEMPERATURE=apply_temperature,
        IS_DRAFTING=is_drafting,
        HAS_CACHE=logits_cache is not None,
        HAS_COL=logits_cache_col is not None,
        BLOCK=WINNER_BLOCK,
    )
    _settle_kernel[(rows,)](
        sampled,
        sampled.stride(0),
        winners.best_score,
        winners.best_id,
        expanded_idx_mapping,
        winners.blocks,
        PADDED=winners.padded,
        num_warps=1,
    )
