"""Oracle of philox: Philox4x32-10, and the words of each draw (see the contract)."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
WORD = 0xFFFFFFFF
_FEW = 128
"""Lanes up to which words are faster one block after the other than all at once."""


class Draw(IntEnum):
    """Purpose of a random sample."""

    TARGET = 0
    DRAFT = 1
    ACCEPT = 2


def philox4x32(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Return four random words from a counter and a key (Salmon et al. 2011, figure 2)."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        product0 = MULTIPLIERS[0] * c0
        product1 = MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (product1 >> 32) ^ c1 ^ k0, product1 & WORD, (product0 >> 32) ^ c3 ^ k1, product0 & WORD
        k0 = (k0 + KEY_STEPS[0]) & WORD
        k1 = (k1 + KEY_STEPS[1]) & WORD
    return c0, c1, c2, c3


def word(seed: int, pos: int, step: int, draw: Draw, lane: int = 0) -> int:
    """Return the random word of one lane of a draw."""
    counter = (lane // 4, (step << 8 | draw) & WORD, pos & WORD, (pos >> 32) & WORD)
    return philox4x32(counter, (seed & WORD, (seed >> 32) & WORD))[lane % 4]


def uniform(seed: int, pos: int, step: int, draw: Draw, lane: int = 0) -> float:
    """Return the uniform sample of one lane of a draw, exact, above 0 and below 1."""
    return (word(seed, pos, step, draw, lane) + 0.5) * 2.0**-32


def gumbel(seed: int, pos: int, step: int, draw: Draw, lanes: int) -> Array:
    """Return one Gumbel sample per lane: g = -log(-log(1 - u))."""
    if lanes > _FEW:
        numbers: Array = gumbel_rows(np.array([seed]), np.array([pos]), np.array([step]), draw, lanes)[0]
        return numbers
    words = np.empty(4 * -(-lanes // 4), dtype=np.float64)
    key = (seed & WORD, (seed >> 32) & WORD)
    for block in range(len(words) // 4):
        counter = (block, (step << 8 | draw) & WORD, pos & WORD, (pos >> 32) & WORD)
        words[4 * block : 4 * block + 4] = philox4x32(counter, key)
    u = (words[:lanes] + 0.5) * 2.0**-32
    return -np.log(-np.log1p(-u))


def uniform_rows(seeds: Array, positions: Array, steps: Array, draw: Draw, lanes: int) -> Array:
    """Return the uniform samples of many rows at once, [rows, lanes]: `uniform` of each seed, position and step.

    Args:
        seeds: [rows] int64.
        positions: [rows] int64.
        steps: [rows] int64.
        draw: purpose of the numbers.
        lanes: numbers per row.
    """
    mask, half = np.uint64(WORD), np.uint64(32)
    blocks = -(-lanes // 4)
    key = seeds.astype(np.int64).view(np.uint64)[:, None]
    place = positions.astype(np.int64).view(np.uint64)[:, None]
    c0 = np.broadcast_to(np.arange(blocks, dtype=np.uint64), (len(seeds), blocks))
    c1 = ((steps.astype(np.uint64) << np.uint64(8) | np.uint64(draw)) & mask)[:, None]
    c2, c3 = place & mask, place >> half
    k0, k1 = key & mask, key >> half
    for _ in range(ROUNDS):
        product0, product1 = np.uint64(MULTIPLIERS[0]) * c0, np.uint64(MULTIPLIERS[1]) * c2
        c0, c1, c2, c3 = (product1 >> half) ^ c1 ^ k0, product1 & mask, (product0 >> half) ^ c3 ^ k1, product0 & mask
        k0, k1 = (k0 + np.uint64(KEY_STEPS[0])) & mask, (k1 + np.uint64(KEY_STEPS[1])) & mask
    words = np.stack(np.broadcast_arrays(c0, c1, c2, c3), axis=-1).reshape(len(seeds), 4 * blocks)[:, :lanes]
    numbers: Array = (words.astype(np.float64) + 0.5) * 2.0**-32
    return numbers


def gumbel_rows(seeds: Array, positions: Array, steps: Array, draw: Draw, lanes: int) -> Array:
    """Return the Gumbel samples of many rows at once, [rows, lanes]; see `uniform_rows` for the arguments."""
    numbers: Array = -np.log(-np.log1p(-uniform_rows(seeds, positions, steps, draw, lanes)))
    return numbers


def philox(*, words: Array, counter: Array, key: Array) -> dict[str, Array]:
    out = words.copy()
    for n in range(len(counter)):
        c0, c1, c2, c3 = (int(c) for c in counter[n])
        k0, k1 = (int(k) for k in key[n])
        out[n] = philox4x32((c0, c1, c2, c3), (k0, k1))
    return {"words": out}
