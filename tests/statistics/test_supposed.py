"""The mistake that a failed test of a distribution names: the one that fits, where all others are excluded."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from verispec.judge import Inconclusive, Mismatch
from verispec.judge.statistics.supposed import Sample, assert_law
from verispec.run.record import FAULT

RIGHT = [0.4, 0.3, 0.2, 0.1]
LAWS = {"it were flat": [0.25] * 4, "it were turned": [0.1, 0.2, 0.3, 0.4], "it were right": RIGHT}


def drawn(law: list[float], laws: Mapping[str, list[float]] = LAWS, draws: int = 4000, seed: int = 1) -> Sample:
    counts = np.random.default_rng(seed).multinomial(draws, law)
    return Sample(counts.tolist(), RIGHT, lambda: laws)


def failure(sample: Sample, further: Callable[[], Sample] | None = None) -> tuple[str, str]:
    with pytest.raises(Mismatch) as caught:
        assert_law(sample, "draws", [f"token {n}" for n in range(4)], further)
    return caught.value.failure.message, caught.value.failure.details.get(FAULT, "")


@pytest.mark.parametrize("seed", range(20))
def test_right_draws_pass_and_ask_for_no_mistake(seed: int) -> None:
    counts = np.random.default_rng(seed).multinomial(4000, RIGHT).tolist()
    assert_law(Sample(counts, RIGHT, lambda: pytest.fail("no failure")), "draws")


def test_the_mistake_that_fits_is_named_with_its_p_value() -> None:
    message, fault = failure(drawn(LAWS["it were flat"]))
    assert message.startswith("draws come as if it were flat (p = ")
    assert "; p < 1e-06 for 1 other mistake); G = " in message
    assert "token 3 came" in message
    assert fault == "it were flat"


def test_draws_that_no_mistake_fits_have_no_name() -> None:
    message, fault = failure(drawn([0.7, 0.1, 0.1, 0.1]))
    assert (message.partition(":")[0], fault) == ("draws", "")


def test_a_share_of_wrong_draws_is_no_mistake() -> None:
    """A law between two has no name, though a part of it does."""
    half = [(a + b) / 2 for a, b in zip(RIGHT, LAWS["it were turned"], strict=True)]
    laws = {"it were turned": LAWS["it were turned"]}
    assert failure(drawn(half, laws))[1] == ""


def test_mistakes_that_one_sample_cannot_tell_apart_are_told_apart_by_another() -> None:
    flat, turned = LAWS["it were flat"], LAWS["it were turned"]
    sample = drawn(flat, {"one": flat, "two": flat})
    assert failure(sample)[1] == "one, or two"
    assert failure(sample, lambda: drawn(turned, {"one": flat, "two": turned}))[1] == "two"


def test_three_mistakes_of_one_law_have_no_name() -> None:
    flat = LAWS["it were flat"]
    assert failure(drawn(flat, dict.fromkeys("abc", flat)))[1] == ""


def test_a_further_sample_that_fails_leaves_the_failure() -> None:
    def refuse() -> Sample:
        raise Inconclusive("none")

    flat = LAWS["it were flat"]
    assert failure(drawn(flat, {"one": flat, "two": flat}), refuse)[1] == ""


def test_an_impossible_outcome_is_no_less_a_failure() -> None:
    sample = Sample([50, 50, 0, 10], [0.5, 0.5, 0.0, 0.0], lambda: {"it were wide": [0.45, 0.45, 0.0, 0.1]})
    message, fault = failure(sample)
    assert fault == "it were wide"
    assert message.endswith("token 3 has probability 0 and came 10 times")
