"""philox: what every implementation must do (contract PHX)."""

from __future__ import annotations

import numpy as np

from verispec.cases import case
from verispec.judge import OpUnderTest, same
from verispec.reference.oracle.philox import Draw, philox4x32, word
from verispec.suites.sampler._request_state import layouts

REACH = "every draw of the request-state family"

KNOWN = {
    "zeros": ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    "ones": ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    "pi": (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
}
"""Counter, key and answer, from Random123's kat_vectors for philox4x32-10."""


def random_words(seed: int, counters: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {"counter": rng.integers(0, 2**32, (counters, 4)), "key": rng.integers(0, 2**32, (counters, 2))}


@case("PHX-1", counters=[1, 255, 1000], reach=REACH)
def test_random_counters(op: OpUnderTest, seed: int, counters: int) -> None:
    op.agrees(random_words(seed, counters))


@case("PHX-2", vector=list(KNOWN), reach=REACH)
def test_known_answers(op: OpUnderTest, vector: str) -> None:
    counter, key, answer = KNOWN[vector]
    got = op.call({"counter": [counter], "key": [key]})[1]["words"]
    same("the published answer", [list(answer)], got)


@case("PHX-3", draw=["target", "draft", "accept"], reach=REACH)
def test_the_layout_of_a_draw(op: OpUnderTest, seed: int, draw: str) -> None:
    """The words of some lanes, through the op and through the layout that draws use."""
    kind, pos, step = Draw[draw.upper()], 2**35 + seed, 3
    counters = [(block, step << 8 | kind, pos & 0xFFFFFFFF, pos >> 32) for block in range(5)]
    key = (seed & 0xFFFFFFFF, seed >> 32)
    got = op.call({"counter": counters, "key": [key] * 5})[1]["words"]
    same(
        "word lane % 4 of counter lane // 4", [word(seed, pos, step, kind, lane) for lane in range(20)], got.reshape(-1)
    )


@case("PHX-4", check="draws and steps of one position", reach=REACH)
def test_draws_never_meet(op: OpUnderTest, seed: int) -> None:
    counters = [(0, step << 8 | draw, 9, 0) for step in range(8) for draw in Draw]
    got = op.call({"counter": counters, "key": [(seed & 0xFFFFFFFF, 0)] * len(counters)})[1]["words"]
    same("24 draws have 24 first words", 24, len(np.unique(got[:, 0])))


@case("PHX-5", check="the ends of the range", reach=REACH)
def test_uniform_numbers_lie_inside(op: OpUnderTest, seed: int) -> None:
    words = op.agrees(random_words(seed, 4096))["words"]
    uniform = (words + 0.5) * 2.0**-32
    same("above 0 and below 1", True, bool((uniform > 0).all() and (uniform < 1).all()))
    same("words are 32 bits wide", True, bool((words >= 0).all() and (words < 2**32).all()))
    same("as the paper's function says", philox4x32((0, 0, 0, 0), (0, 0))[0], 0x6627E8D5)


@case("PHX-6", layout=["gapped", "padded", "transposed"])
def test_strides(op: OpUnderTest, seed: int, layout: str) -> None:
    op.agrees(random_words(seed, 33), layouts=layouts(op, layout))


@case("PHX-6", counters=0)
def test_no_counters(op: OpUnderTest) -> None:
    op.agrees({"counter": np.zeros((0, 4)), "key": np.zeros((0, 2))})
