"""Each logits processor against what its definition says, on rows that follow drafts."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from verispec.engines.protocol.generation import GenerationRequest
from verispec.reference.sampler.processors import TokenHistory, needs_processing, process_logits

NEVER = float("-inf")
PROMPT = (3, 4)
VOCAB = 10


def process(drafts: list[int], output: list[int], stop: tuple[int, ...] = (), **fields: Any) -> torch.Tensor:
    """Rows of one request behind an untouched one, so that a processor that forgets whose row it has is found."""
    logits = torch.linspace(-2, 2, VOCAB).repeat(len(drafts) + 3, 1)
    other = TokenHistory(GenerationRequest(PROMPT), [5], ())
    own = TokenHistory(GenerationRequest(PROMPT, **fields), output, stop)
    process_logits(logits, [other, own], [[6], drafts])
    assert torch.equal(logits[:2], torch.linspace(-2, 2, VOCAB).repeat(2, 1))
    return logits[2:]


def masked(row: torch.Tensor) -> set[int]:
    return set((row == NEVER).nonzero().flatten().tolist())


def test_nothing_to_do() -> None:
    assert not needs_processing(GenerationRequest(PROMPT, temperature=0.7, top_k=3, top_p=0.5, min_p=0.1))


def test_allowed_token_ids() -> None:
    for row in process([1, 2], [], allowed_token_ids=(2, 7)):
        assert masked(row) == set(range(VOCAB)) - {2, 7}


@pytest.mark.parametrize(
    ("output", "drafts", "expected"),
    [
        ([], [], [set()]),
        ([1, 2], [], [{9}]),
        ([1], [2, 5], [set(), {9}, set()]),
        ([], [1, 2], [set(), set(), {9}]),
        ([1], [1, 2], [set(), set(), {9}]),
        ([2], [1], [set(), set()]),
    ],
)
def test_bad_words_whose_prefix_reaches_into_the_drafts(
    output: list[int], drafts: list[int], expected: list[set[int]]
) -> None:
    rows = process(drafts, output, bad_words=((1, 2, 9),))
    assert [masked(row) for row in rows] == expected


def test_a_bad_word_of_one_token_is_never_allowed() -> None:
    assert all(masked(row) == {8} for row in process([1], [8, 8], bad_words=((8,),)))


def test_the_prompt_is_no_prefix_of_a_bad_word() -> None:
    assert masked(process([], [], bad_words=((4, 9),))[0]) == set()


def test_min_tokens_counts_drafts() -> None:
    rows = process([1, 1, 1], [1], stop=(0, 9), min_tokens=3)
    assert [masked(row) for row in rows] == [{0, 9}, {0, 9}, set(), set()]


def test_logit_bias_is_added_once() -> None:
    plain = torch.linspace(-2, 2, VOCAB)
    for row in process([1], [], logit_bias={2: 1.5, 7: -100.0}):
        assert row[2] == plain[2] + 1.5
        assert row[7] == plain[7] - 100.0


def test_repetition_penalty_divides_positive_and_multiplies_negative_logits() -> None:
    plain = torch.linspace(-2, 2, VOCAB)
    rows = process([9, 1], [8], repetition_penalty=2.0)
    for row, seen in zip(rows, [{3, 4, 8}, {3, 4, 8, 9}, {1, 3, 4, 8, 9}], strict=True):
        for token in range(VOCAB):
            changed = plain[token] / 2 if plain[token] > 0 else plain[token] * 2
            assert row[token] == (changed if token in seen else plain[token])


def test_presence_and_frequency_count_the_output_and_the_drafts_before() -> None:
    plain = torch.linspace(-2, 2, VOCAB)
    rows = process([8, 8], [8, 1], presence_penalty=0.5, frequency_penalty=0.25)
    for row, eights in zip(rows, (1, 2, 3), strict=True):
        assert row[8] == pytest.approx(float(plain[8]) - 0.5 - 0.25 * eights, rel=1e-6)
        assert row[1] == pytest.approx(float(plain[1]) - 0.75, rel=1e-6)
        assert row[3] == plain[3], "the prompt does not count"


def test_order_a_penalty_sees_the_bias() -> None:
    row = process([], [], logit_bias={3: 4.0}, repetition_penalty=2.0)[0]
    assert row[3] == (torch.linspace(-2, 2, VOCAB)[3] + 4.0) / 2
