"""The Gumbel-max argmax of a row: block winners in parallel, then one program per row that picks the best.

The token is argmax(log weight + g) with Gumbel noise g (Maddison et al. 2014, arXiv 1411.0030). No softmax is needed,
since a constant offset of the row changes no argmax.

1. One program per block of the vocabulary adds the noise and stores its best score and id.
2. One program per row takes the best block. Equal scores resolve to the lowest id, in both steps.

The noise depends on seed, position, step and token id only, never on the block size or the grid.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from ._logits import block_argmax
from .philox import gumbel_block

WINNER_BLOCK = 1024


@triton.jit
def store_block_winner(best_score, best_id, row, scores, BLOCK: tl.constexpr):
    """Store the best score of a block and its id; `scores` contains no NaN."""
    block = tl.program_id(1)
    score, index = block_argmax(scores, BLOCK)
    out = row * tl.num_programs(1) + block
    tl.store(best_score + out, score)
    tl.store(best_id + out, block * BLOCK + index)


@triton.jit
def noisy(log_weights, seed, pos, step, draw: tl.constexpr, first_id, BLOCK: tl.constexpr):
    """Return log weights plus Gumbel noise for a block of tokens."""
    return log_weights + gumbel_block(seed, pos, step, draw, first_id, BLOCK)


@triton.jit
def row_winner(best_score, best_id, row, blocks, PADDED: tl.constexpr):
    """Return the best score of a row and its id."""
    offsets = tl.arange(0, PADDED)
    scores = tl.load(best_score + row * blocks + offsets, mask=offsets < blocks, other=float("-inf"))
    score, block = tl.max(scores, axis=0, return_indices=True)
    return score, tl.load(best_id + row * blocks + block).to(tl.int64)


class BlockWinners:
    """Scratch for the block winners of `rows` rows over `vocabulary` tokens."""

    def __init__(self, rows: int, vocabulary: int, device: Any) -> None:
        self.blocks = triton.cdiv(vocabulary, WINNER_BLOCK)
        self.padded = triton.next_power_of_2(self.blocks)
        self.best_score = torch.empty((rows, self.blocks), dtype=torch.float32, device=device)
        self.best_id = torch.empty((rows, self.blocks), dtype=torch.int32, device=device)
