"""Wrong orders of a request's parameters: each is one that matters, and the right one is the documented one."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, permutations

import numpy as np
import pytest

from verispec.cases.orders import MASKS, OFF, commute, in_order, law_in_order, mistaken, one_sign, steps_of
from verispec.cases.request_parameters import distribution, processed
from verispec.engines.protocol.generation import GenerationRequest

EVERYTHING = GenerationRequest(
    (1, 2, 3),
    temperature=1.3,
    top_k=4,
    top_p=0.85,
    min_p=0.3,
    min_tokens=9,
    stop_token_ids=(6,),
    logit_bias={3: 2.0, 5: -1.0},
    repetition_penalty=1.7,
    presence_penalty=1.0,
    frequency_penalty=0.5,
    allowed_token_ids=tuple(range(1, 12)),
    bad_words=((4,),),
)
OUTPUT = (3, 3, 5)
ROWS = np.random.default_rng(3).normal(0, 2, (300, 16))


def test_the_steps_in_their_order_are_the_definition() -> None:
    steps = steps_of(EVERYTHING)
    assert steps[:3] == MASKS[1:]
    for row in ROWS:
        right = distribution(processed(row, EVERYTHING, OUTPUT, (6,)), EVERYTHING)
        assert np.allclose(law_in_order(row, EVERYTHING, OUTPUT, (6,), steps), right)


@pytest.mark.filterwarnings("ignore:invalid value")
def test_steps_commute_where_their_order_changes_nothing() -> None:
    for pair in combinations(steps_of(EVERYTHING), 2):
        same = [
            np.array_equal(
                *(law_in_order(row, EVERYTHING, OUTPUT, (6,), order) > 0 for order in permutations(pair)),
            )
            and np.allclose(*(in_order(row, EVERYTHING, OUTPUT, (6,), order) for order in permutations(pair)))
            for row in ROWS
        ]
        assert all(same) == commute(*pair), pair


@pytest.mark.filterwarnings("ignore:invalid value")  # a mask after the limits may leave a row no token
def test_each_mistake_changes_the_law_and_no_two_are_one() -> None:
    steps = steps_of(EVERYTHING)
    wrong = dict(mistaken(steps))
    assert len(wrong) == len(list(mistaken(steps))), "each has words of its own"
    strengths = [replace(EVERYTHING, top_k=k, top_p=p, min_p=m) for k, p, m in ((4, 0.7, 0.08), (5, 0.9, 0.3))]
    laws = {
        words: np.array([law_in_order(row, each, OUTPUT, (6,), order) for each in strengths for row in ROWS])
        for words, order in [*wrong.items(), ("", steps)]
    }
    for one, other in combinations(laws, 2):
        assert not np.allclose(laws[one], laws[other], atol=1e-3), (one, other)


@pytest.mark.parametrize(
    "words",
    [
        "min-p came before the temperature",
        "top-p came before top-k",
        "the temperature came before presence and frequency penalties",
        "the repetition penalty came before the logit bias",
        "presence and frequency penalties came before the repetition penalty",
    ],
)
def test_neighbours_in_the_other_order_are_among_the_mistakes(words: str) -> None:
    assert words in dict(mistaken(steps_of(EVERYTHING)))


def test_a_greedy_request_has_no_limits() -> None:
    assert steps_of(GenerationRequest((1,), top_k=3, presence_penalty=1.0)) == ("the presence penalty",)
    assert list(mistaken(("the presence penalty",))) == [("the presence penalty was missing", ())]


def test_every_parameter_has_its_fields() -> None:
    fields = [name for each in OFF.values() for name in each]
    assert len(fields) == len({*fields})
    assert {*fields} <= {*GenerationRequest.__dataclass_fields__}


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("presence_penalty", 0.5, ("a presence penalty above 0", "one below")),
        ("frequency_penalty", -0.5, ("a frequency penalty below 0", "one above")),
        ("repetition_penalty", 1.2, ("a repetition penalty above 1", "one below")),
        ("repetition_penalty", 0.6, ("a repetition penalty below 1", "one above")),
    ],
)
def test_the_signs_of_a_penalty_are_said_in_words(field: str, value: float, words: tuple[str, str]) -> None:
    assert one_sign(field, value) == words
