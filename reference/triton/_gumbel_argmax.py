"""The Gumbel-max race of a row in blocks, and the program that settles it.

The token is argmax(log weight + g). Blocks of the vocabulary run side by side and leave their winner's
score and id; one program a row then takes the best of them, of equal scores the lowest id.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from ._logits import block_argmax
from .philox import gumbel_block

RACE_BLOCK = 1024


@triton.jit
def store_block_winner(best_score, best_id, row, scores, BLOCK: tl.constexpr):
    """Leave a block's winner; `scores` holds no NaN."""
    block = tl.program_id(1)
    score, index = block_argmax(scores, BLOCK)
    out = row * tl.num_programs(1) + block
    tl.store(best_score + out, score)
    tl.store(best_id + out, block * BLOCK + index)


@triton.jit
def noisy(log_weights, seed, pos, step, draw: tl.constexpr, first_id, BLOCK: tl.constexpr):
    """The scores of a block of tokens."""
    return log_weights + gumbel_block(seed, pos, step, draw, first_id, BLOCK)


@triton.jit
def row_winner(best_score, best_id, row, blocks, PADDED: tl.constexpr):
    """The best score of a row and its id."""
    offsets = tl.arange(0, PADDED)
    scores = tl.load(best_score + row * blocks + offsets, mask=offsets < blocks, other=float("-inf"))
    score, block = tl.max(scores, axis=0, return_indices=True)
    return score, tl.load(best_id + row * blocks + block).to(tl.int64)


class Race:
    """The blocks' winners of `rows` rows over `vocabulary` tokens, as scratch."""

    def __init__(self, rows: int, vocabulary: int, device: Any) -> None:
        self.blocks = triton.cdiv(vocabulary, RACE_BLOCK)
        self.padded = triton.next_power_of_2(self.blocks)
        self.best_score = torch.empty((rows, self.blocks), dtype=torch.float32, device=device)
        self.best_id = torch.empty((rows, self.blocks), dtype=torch.int32, device=device)
