"""Suffix decoding with one limit that is off, or of each token alone: its counts have the name of the mistake."""

from __future__ import annotations

from typing import Any

import pytest

from verispec.engines.protocol.generation import LoadOptions
from verispec.suites.e2e._suffix import SuffixRule, Texts, Tokens, allowed_drafts, mistakes

OPTIONS = LoadOptions(method="suffix", suffix_decoding_min_token_prob=0.4, num_speculative_tokens=8)
KNOWN = (1, 2, 3, 9, 1, 2, 4, 9, 1, 2, 3, 5, 9, 1, 2)
"""Behind 1, 2 comes 3 in two of three places, and then 5 in one of two."""


def drafts(rule: SuffixRule) -> set[Tokens]:
    return set(allowed_drafts(Texts((7,), ()), KNOWN, 8, rule))


def of(**options: Any) -> SuffixRule:
    fields = {"suffix_decoding_min_token_prob": 0.4, "suffix_decoding_max_spec_factor": 4.0, **options}
    return SuffixRule(LoadOptions(method="suffix", num_speculative_tokens=8, **fields))


def test_the_least_probability_is_one_of_the_whole_draft() -> None:
    right = of()
    assert drafts(right) == {(3,)}, "two of three; the next ones have one of three"
    [alone] = [rule for words, rule in mistakes(right.options).items() if "each token alone" in words]
    assert {draft[:2] for draft in drafts(alone)} == {(3, 5), (3, 9)}


def named(words: str, right: SuffixRule) -> set[Tokens]:
    [rule] = [rule for name, rule in mistakes(right.options).items() if words in name]
    return drafts(rule)


def test_the_least_probability_itself_is_enough() -> None:
    right = of(suffix_decoding_min_token_prob=0.5)
    assert drafts(right) == {(3,)}
    assert named("likelier", right) == {()}


def test_the_most_frequent_token_is_drafted() -> None:
    known = (1, 3, 1, 3, 1, 4, 9, 1)
    right = of(suffix_decoding_max_spec_factor=1.0)
    assert set(allowed_drafts(Texts((7,), ()), known, 8, right)) == {(3,)}
    [latest] = [rule for words, rule in mistakes(right.options).items() if "latest" in words]
    assert set(allowed_drafts(Texts((7,), ()), known, 8, latest)) == {()}, "it followed once in three places"


def test_occurrences_at_the_end_of_a_text_count() -> None:
    """Behind 1 comes 3 in one of two places, and nothing in the other."""
    right = of(suffix_decoding_min_token_prob=0.6)
    assert set(allowed_drafts(Texts((7,), ()), (1, 3, 9, 1), 8, right)) == {()}
    [continued] = [rule for words, rule in mistakes(right.options).items() if "end of a text" in words]
    assert set(allowed_drafts(Texts((7,), ()), (1, 3, 9, 1), 8, continued)) == {(3, 9, 1)}


def test_tokens_past_k_count_for_no_choice() -> None:
    """Behind 1, 2 comes 5 in nine of ten outputs; behind 2 come 4, 6 and 8 in two of three places of the text."""
    right, known = of(), (2, 4, 6, 8, 2, 4, 6, 8, 1, 2)
    texts = Texts((7,), ((1, 2, 5),) * 9)
    assert set(allowed_drafts(texts, known, 1, right)) == {(5,)}
    [past] = [rule for words, rule in mistakes(right.options).items() if "past K" in words]
    assert set(allowed_drafts(texts, known, 1, past)) == {(4,)}


def test_the_oldest_output_goes_first() -> None:
    right, texts = of(suffix_decoding_max_cached_requests=2), Texts((7,), ((1, 2, 5), (1, 2, 6)))
    assert set(allowed_drafts(texts, (9, 1, 2), 8, right)) == {(6,)}
    [newest] = [rule for words, rule in mistakes(right.options).items() if "newest" in words]
    assert set(allowed_drafts(texts, (9, 1, 2), 8, newest)) == {(5,)}


@pytest.mark.parametrize("words", list(mistakes(OPTIONS)))
def test_each_mistake_is_another_rule(words: str) -> None:
    assert mistakes(OPTIONS)[words] != SuffixRule(OPTIONS)


def test_a_limit_that_is_off_already_is_no_mistake() -> None:
    off = LoadOptions(method="suffix", suffix_decoding_max_cached_requests=0)
    assert "suffix_decoding_max_cached_requests was 0" not in mistakes(off)
    assert "suffix_decoding_max_cached_requests was 0" in mistakes(OPTIONS)
