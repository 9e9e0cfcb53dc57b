"""Philox4x32-10, and the random samples of draws.

    (c0, c1, c2, c3) -> (hi(M1 c2) ^ c1 ^ k0, lo(M1 c2), hi(M0 c0) ^ c3 ^ k1, lo(M0 c0)), ten times

Source: Salmon et al. 2011, Parallel random numbers: as easy as 1, 2, 3. The contract defines the counter's layout
(``verispec.reference.contracts.philox``).
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

TARGET: tl.constexpr = tl.constexpr(0)
DRAFT: tl.constexpr = tl.constexpr(1)
ACCEPT: tl.constexpr = tl.constexpr(2)


@triton.jit
def philox4x32(c0, c1, c2, c3, k0, k1):
    """Return four random words (uint32) from counters and a key (uint32)."""
    for _ in tl.static_range(10):
        product0 = c0.to(tl.uint64) * 0xD2511F53
        product1 = c2.to(tl.uint64) * 0xCD9E8D57
        c0 = (product1 >> 32).to(tl.uint32) ^ c1 ^ k0
        c1 = product1.to(tl.uint32)
        c2 = (product0 >> 32).to(tl.uint32) ^ c3 ^ k1
        c3 = product0.to(tl.uint32)
        k0 = (k0.to(tl.uint64) + 0x9E3779B9).to(tl.uint32)
        k1 = (k1.to(tl.uint64) + 0xBB67AE85).to(tl.uint32)
    return c0, c1, c2, c3


@triton.jit
def draw_words(seed, pos, step, draw: tl.constexpr, blocks):
    """Return the words of lanes 4 * blocks to 4 * blocks + 3 of a draw."""
    seed = seed.to(tl.int64)
    pos = pos.to(tl.int64)
    zero = tl.zeros((), tl.int32)  # blocks and step may be constants, which the interpreter cannot convert
    return philox4x32(
        (zero + blocks).to(tl.uint32),
        (zero + step * 256 + draw).to(tl.uint32),
        pos.to(tl.uint32),
        (pos >> 32).to(tl.uint32),
        seed.to(tl.uint32),
        (seed >> 32).to(tl.uint32),
    )


@triton.jit
def acceptance_number(seed, pos, step):
    """Return u of an acceptance test as float64, exact: (word + 1/2) * 2^-32."""
    word, _, _, _ = draw_words(seed, pos, step, ACCEPT, step * 0)
    return (word.to(tl.float64) + 0.5) * 2.3283064365386963e-10


@triton.jit
def log1p_reduced(f):
    """Return log(1 + f) for f from sqrt(1/2) - 1 to sqrt(2) - 1, with a relative error of at most 1.1 * 2^-23.

    The formula is f - f^2 / 2 + f^3 Q(f), where Q is the degree-6 polynomial of minimum relative error.
    """
    q = 0.08700430393218994
    q = q * f - 0.14267486333847046
    q = q * f + 0.14914768934249878
    q = q * f - 0.1657758504152298
    q = q * f + 0.19963063299655914
    q = q * f - 0.2500133812427521
    q = q * f + 0.3333390951156616
    return f + f * f * (f * q - 0.5)


@triton.jit
def reduced(x):
    """Return exponent e and f of a positive normal number x = 2^e (1 + f), with f in the range of `log1p_reduced`."""
    bits = x.to(tl.int32, bitcast=True)
    exponent = (bits - 0x3F3504F3) >> 23  # 0x3F3504F3 is sqrt(1/2)
    return exponent, (bits - (exponent << 23)).to(tl.float32, bitcast=True) - 1.0


@triton.jit
def log_of(x):
    """Return log x of a positive normal number, without the special cases of the library function."""
    exponent, f = reduced(x)
    return exponent.to(tl.float32) * 0.6931471805599453 + log1p_reduced(f)


@triton.jit
def log1m(u, rest):
    """Return log(1 - u) for u in [0, 1); `rest` is 1 - u rounded, not 0. Exact even if 1 - u rounds to 1."""
    exponent, f = reduced(rest)
    f = tl.where(exponent == 0, -u, f)
    return exponent.to(tl.float32) * 0.6931471805599453 + log1p_reduced(f)


@triton.jit
def unit_pair(word):
    """Return u = (word + 1/2) * 2^-32 and 1 - u, from the word's complement: both in float32, and neither 0."""
    u = (word.to(tl.float32) + 0.5) * 2.3283064365386963e-10
    rest = ((word ^ 0xFFFFFFFF).to(tl.float32) + 0.5) * 2.3283064365386963e-10
    return u, rest


@triton.jit
def log_acceptance_number(seed, pos, step):
    """Return log u of an acceptance test, to float32 precision over the whole range, and below 0.

    A float32 u would round to 1 once in 2^25 draws, and reject a draft token with p = q.
    """
    word, _, _, _ = draw_words(seed, pos, step, ACCEPT, step * 0)
    u, rest = unit_pair(word)
    return log1m(rest, u)


@triton.jit
def gumbel_of_word(word):
    """Return g = -log(-log(1 - u)) with u = (word + 1/2) * 2^-32, to float32 precision over the whole range."""
    u, rest = unit_pair(word)
    return -log_of(-log1m(u, rest))


@triton.jit
def gumbel_block(seed, pos, step, draw: tl.constexpr, first_lane, LANES: tl.constexpr):
    """Return the Gumbel samples of lanes first_lane to first_lane + LANES - 1; both are multiples of 4."""
    blocks = first_lane // 4 + tl.arange(0, LANES // 4)
    w0, w1, w2, w3 = draw_words(seed, pos, step, draw, blocks)
    words = tl.reshape(tl.join(tl.join(w0, w2), tl.join(w1, w3)), (LANES,))
    return gumbel_of_word(words)


@triton.jit
def _philox_kernel(
    words,
    words_stride_0,
    words_stride_1,
    counter,
    counter_stride_0,
    counter_stride_1,
    key,
    key_stride_0,
    key_stride_1,
    rows,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = row < rows
    counters = counter + row * counter_stride_0
    keys = key + row * key_stride_0
    # A multiple of a stride may not fit the stride's 32 bits; pointers have 64.
    w0, w1, w2, w3 = philox4x32(
        tl.load(counters, mask=mask, other=0).to(tl.uint32),
        tl.load(counters + counter_stride_1, mask=mask, other=0).to(tl.uint32),
        tl.load(counters + counter_stride_1 + counter_stride_1, mask=mask, other=0).to(tl.uint32),
        tl.load(counters + counter_stride_1 + counter_stride_1 + counter_stride_1, mask=mask, other=0).to(tl.uint32),
        tl.load(keys, mask=mask, other=0).to(tl.uint32),
        tl.load(keys + key_stride_1, mask=mask, other=0).to(tl.uint32),
    )
    out = words + row * words_stride_0
    tl.store(out, w0.to(tl.int64), mask=mask)
    tl.store(out + words_stride_1, w1.to(tl.int64), mask=mask)
    tl.store(out + words_stride_1 + words_stride_1, w2.to(tl.int64), mask=mask)
    tl.store(out + words_stride_1 + words_stride_1 + words_stride_1, w3.to(tl.int64), mask=mask)


def philox(*, words: Any, counter: Any, key: Any) -> None:
    rows = words.shape[0]
    if rows == 0:
        return
    block = 256
    _philox_kernel[(triton.cdiv(rows, block),)](
        words, *words.stride(), counter, *counter.stride(), key, *key.stride(), rows, BLOCK=block
    )
