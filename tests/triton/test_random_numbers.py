"""Random numbers: Random123's published answers, one layout on every platform, draws that never meet."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from verispec.reference import cpu
from verispec.reference.oracle.philox import Draw, gumbel, philox4x32, uniform, word

# Random123 1.14.0, tests/kat_vectors, the lines "philox4x32 10": counter, key, answer.
KNOWN = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def _words(text: str) -> list[int]:
    return [int(word, 16) for word in text.split()]


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN)
def test_known_answers_of_the_oracle(counter: str, key: str, answer: str) -> None:
    assert list(philox4x32(tuple(_words(counter)), tuple(_words(key)))) == _words(answer)


def test_known_answers_of_cpp() -> None:
    counter, key, answer = (np.array([_words(row[i]) for row in KNOWN], dtype=np.int64) for i in range(3))
    words = np.zeros_like(answer)
    cpu.op("philox")(words, counter, key)
    assert np.array_equal(words, answer)


def test_known_answers_of_triton(interpreted: dict[str, dict[str, str]]) -> None:
    """The case "known" of the child process has these counters; the check is against the oracle tested above."""
    known = {case: problem for case, problem in interpreted["philox"].items() if case.startswith("known")}
    assert known
    assert not any(known.values())


def test_the_layout_of_the_counter() -> None:
    seed, pos, step, lane = -(2**62) + 12345, 2**35 + 99, 3, 4 * 7 + 2
    counter = (7, 3 << 8 | Draw.ACCEPT, 99, 2**3)
    assert word(seed, pos, step, Draw.ACCEPT, lane) == philox4x32(counter, (12345, 0xC0000000))[2]


def test_a_uniform_number_is_never_zero_and_never_one() -> None:
    assert 0 < 0.5 * 2.0**-32 < uniform(0, 0, 0, Draw.ACCEPT) < 1
    assert (0xFFFFFFFF + 0.5) * 2.0**-32 < 1


def test_draws_never_share_a_counter() -> None:
    """Draft, acceptance and target numbers differ, as do those of two steps, positions and seeds."""
    draws = itertools.product((1, 2**40), (5, 2**33 + 5), (0, 1), Draw)
    words = [word(seed, pos, step, draw) for seed, pos, step, draw in draws]
    assert len(set(words)) == len(words)


def test_gumbel_numbers_follow_their_law() -> None:
    """Mean and variance of 2^16 numbers within 6 standard errors of the Euler constant and pi^2 / 6."""
    numbers = gumbel(2024, 7, 0, Draw.TARGET, 2**16)
    assert abs(numbers.mean() - np.euler_gamma) < 6 * np.sqrt(np.pi**2 / 6 / 2**16)
    # The fourth central moment is 14.6, so that the variance has a standard error of sqrt(11.9 / n).
    assert abs(numbers.var() - np.pi**2 / 6) < 6 * np.sqrt(11.9 / 2**16)
