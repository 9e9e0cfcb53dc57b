"""Requirements of philox (contract PHX).

This suite checks the words of a counter and a key. GUM-1 and GUM-4 check that draws use them by the layout of PHX-3.
"""

from __future__ import annotations

import numpy as np

from verispec.cases import case
from verispec.cases.strategies import DrawnCall, explore, structures
from verispec.judge import OpUnderTest, assert_same
from verispec.reference import contracts
from verispec.reference.oracle.philox import Draw, word
from verispec.suites.sampler._request_state import layouts
from verispec.suites.sampler._sampling import counter_arguments as random_words

CONTRACT = contracts.load("philox")
REACH = "every draw of the request-state family"
WORD = 0xFFFFFFFF

KNOWN = {
    "zeros": ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    "ones": ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    "pi": (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
}
"""Counter, key and words, from Random123's kat_vectors for philox4x32-10."""

EXTREMES = {"smallest": (48643752, 0, 0x15), "largest": (38471471, 0, 0xFFFFFFEC)}
"""First word of a counter whose other words and key are 0, lane and word: the extremes of 2^26 such counters."""

SEEDS = {"32 bits": 0x89ABCDEF, "64 bits": 0x0123456789ABCDEF, "negative": -0x0123456789ABCDEF}
POSITIONS = [9, 2**32 + 9, 2**35 + 7, 2**40 - 1]


def counter_of(draw: Draw, step: int, pos: int, block: int = 0) -> tuple[int, int, int, int]:
    return block, step << 8 | draw, pos & WORD, pos >> 32


def key_of(seed: int) -> tuple[int, int]:
    return seed & WORD, seed >> 32 & WORD


@case("PHX-1", counters=[1, 255, 1000, 17_000], reach=REACH)
def test_random_counters(op: OpUnderTest, seed: int, counters: int) -> None:
    op.check_outputs(random_words(seed, counters))


@case("PHX-1", check="every bit of counter and key", reach=REACH)
def test_every_bit_counts(op: OpUnderTest, seed: int) -> None:
    values = random_words(seed, 1)
    counter, key = np.repeat(values["counter"], 193, axis=0), np.repeat(values["key"], 193, axis=0)
    for bit in range(192):
        words, column = (counter, bit // 32) if bit < 128 else (key, bit // 32 - 4)
        words[bit, column] ^= 1 << bit % 32
    got = op.check_outputs({"counter": counter, "key": key})["words"]
    assert_same("a flipped bit gives other words", 193, len(np.unique(got, axis=0)))


@case("PHX-2", vector=list(KNOWN), reach=REACH)
def test_known_answers(op: OpUnderTest, vector: str) -> None:
    counter, key, answer = KNOWN[vector]
    got = op.call({"counter": [counter], "key": [key]})[1]["words"]
    assert_same("the published answer", [list(answer)], got)


@case("PHX-3", draw=["target", "draft", "accept"], width=list(SEEDS), reach=REACH)
def test_the_layout_of_a_draw(op: OpUnderTest, draw: str, width: str) -> None:
    """The words of the first and last lanes of a vocabulary of 151,936, at every kind of position and step."""
    kind, key = Draw[draw.upper()], SEEDS[width]
    places = [(step, pos, block) for step in (0, 3, 2**24 - 1) for pos in POSITIONS for block in (0, 1, 37_983)]
    counters = [counter_of(kind, step, pos, block) for step, pos, block in places]
    got = op.call({"counter": counters, "key": [key_of(key)] * len(counters)})[1]["words"]
    expected = [[word(key, pos, step, kind, 4 * block + lane) for lane in range(4)] for step, pos, block in places]
    assert_same("word lane % 4 of counter lane // 4", expected, got)


@case("PHX-4", width=list(SEEDS), reach=REACH)
def test_draws_never_meet(op: OpUnderTest, width: str) -> None:
    """Draws, steps, positions and blocks of lanes all have different words."""
    counters = [
        counter_of(draw, step, pos, block)
        for draw in Draw
        for step in (*range(8), 2**24 - 1)
        for pos in POSITIONS
        for block in (0, 1, 37_983)
    ]
    got = op.check_outputs({"counter": counters, "key": [key_of(SEEDS[width])] * len(counters)})["words"]
    assert_same("every counter has words of its own", len(counters), len(np.unique(got, axis=0)))


@case("PHX-5", end=list(EXTREMES), reach=REACH)
def test_the_ends_of_the_range(op: OpUnderTest, end: str) -> None:
    """Words so close to 0 and 2^32 that 24 of their bits, or a sign, would give 0, 1 or less."""
    first, lane, expected = EXTREMES[end]
    words = op.check_outputs({"counter": [(first, 0, 0, 0)], "key": [(0, 0)]})["words"]
    assert_same("the whole word", expected, words[0, lane])
    uniform = (words + 0.5) * 2.0**-32
    assert_same("above 0 and below 1", True, bool(np.all((uniform > 0) & (uniform < 1))))


@case("PHX-6", layout=["gapped", "padded", "transposed"])
def test_strides(op: OpUnderTest, seed: int, layout: str) -> None:
    op.check_outputs(random_words(seed, 33), layouts=layouts(op, layout))


@case("PHX-6", counters=0)
def test_no_counters(op: OpUnderTest) -> None:
    op.check_outputs({"counter": np.zeros((0, 4)), "key": np.zeros((0, 2))})


@case("PHX-6", mode="generated")
def test_generated(op: OpUnderTest, seed: int) -> None:
    @explore(structures(CONTRACT), 150, seed)
    def check_drawn(drawn: DrawnCall) -> None:
        op.check_outputs(random_words(drawn.seed, sum(drawn.counts)), layouts=drawn.layouts)
