"""Suffix decoding in plain loops: every draft that its rules allow, where equal counts leave a choice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from verispec.engines.protocol.generation import LoadOptions

Tokens = tuple[int, ...]
Counts = tuple[int, int, int]
"""Verifications, drafts and accepted drafts."""

SAME_SCORE = 1e-5
"""Scores that are sums of float32 probabilities may differ by so much and be equal."""


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts that an engine knows when a request begins.

    Attributes:
        prompt: prompt of the request.
        earlier: outputs of the requests before it, in their order.
    """

    prompt: Tokens
    earlier: tuple[Tokens, ...]


@dataclass(frozen=True)
class SuffixRule:
    """Limits of suffix decoding, as an engine applies them.

    Attributes:
        options: options of suffix decoding, and K.
        is_of_tokens: True if the smallest probability bounds each token after those before it, which is wrong, and not
            the draft up to it.
        is_longest: True if the draft is that of the longest suffix, which is wrong, and not the one with most expected
            accepted tokens.
        is_above: True if a draft has to be likelier than the smallest probability, which is wrong.
        is_latest: True if the token behind the latest occurrence is drafted, which is wrong, and not the most frequent
            one.
        is_of_continued: True if a probability is that among the occurrences that go on, which is wrong, and not among
            all, the end of a text included.
        is_past_k: True if tokens behind the K that a step can verify count for the choice of a draft, which is wrong.
        is_newest: True if of too many outputs the newest earlier one goes, which is wrong, and not the oldest one.
    """

    options: LoadOptions
    is_of_tokens: bool = False
    is_longest: bool = False
    is_above: bool = False
    is_latest: bool = False
    is_of_continued: bool = False
    is_past_k: bool = False
    is_newest: bool = False


NO_LIMIT = 10_000
"""Above all numbers of tokens and outputs of a case."""


def mistakes(options: LoadOptions) -> dict[str, SuffixRule]:
    """Return rules with one limit that is off or means something else, by words that follow "as if"."""
    changed: dict[str, dict[str, Any]] = {
        "suffix_decoding_min_token_prob was 0": {"suffix_decoding_min_token_prob": 0.0},
        "suffix_decoding_max_tree_depth was endless": {"suffix_decoding_max_tree_depth": NO_LIMIT},
        "suffix_decoding_max_spec_factor was endless": {"suffix_decoding_max_spec_factor": float(NO_LIMIT)},
        "suffix_decoding_max_spec_factor was 1": {"suffix_decoding_max_spec_factor": 1.0},
        "suffix_decoding_max_cached_requests was endless": {"suffix_decoding_max_cached_requests": NO_LIMIT},
        "suffix_decoding_max_cached_requests was 0": {"suffix_decoding_max_cached_requests": 0},
    }
    rules = {words: SuffixRule(replace(options, **fields)) for words, fields in changed.items()}
    rules["suffix_decoding_min_token_prob bounded each token alone"] = SuffixRule(options, is_of_tokens=True)
    rules["the draft of the longest suffix was taken"] = SuffixRule(options, is_longest=True)
    rules["a draft had to be likelier than suffix_decoding_min_token_prob"] = SuffixRule(options, is_above=True)
    rules["the token behind the latest occurrence was drafted"] = SuffixRule(options, is_latest=True)
    rules["occurrences at the end of a text did not count"] = SuffixRule(options, is_of_continued=True)
    rules["tokens past K counted for the choice of a draft"] = SuffixRule(options, is_past_k=True)
    rules["the newest of too many outputs was dropped, and not the oldest"] = SuffixRule(options, is_newest=True)
    return {words: rule for words, rule in rules.items() if rule != SuffixRule(options)}


def possible_counts(texts: Texts, text: Tokens, length: int, rule: SuffixRule, capped: bool) -> set[tuple[Counts, int]]:
    """Return the counts that the rules allow for a greedy output, each with the place where its last step ends.

    Written apart from the reference's proposer, so that a fault there is not expected here too.

    Args:
        texts: texts known before the request.
        text: the request's tokens, and K more that would follow.
        length: maximum number of tokens of the output.
        rule: limits of the drafts.
        capped: True if the engine drafts no further than `length`.
    """
    reached: dict[int, set[Counts]] = {1: {(0, 0, 0)}}  # The first token comes from the prompt alone.
    for place in range(1, length):
        if place not in reached:
            continue
        most = min(rule.options.max_drafts, length - place - 1 if capped else len(text))
        for draft in set(allowed_drafts(texts, text[:place], most, rule)):
            accepted = _agreed(draft, text[place:])
            after = reached.setdefault(place + accepted + 1, set())
            for verified, drafted, right in reached[place]:
                after.add((verified + bool(draft), drafted + len(draft), right + accepted))
    return {(counts, place) for place, found in reached.items() if place >= length for counts in found}


def allowed_drafts(texts: Texts, known: Tokens, most: int, rule: SuffixRule) -> Iterator[Tokens]:
    """Yield the drafts with the highest score, from the text itself or from outputs, for suffixes of any length.

    Of tokens that follow equally often an engine takes one, whatever follows it: a suffix then has several drafts. The
    highest score is at least that of the worst draft of every suffix.
    """
    options = rule.options
    kept = options.suffix_decoding_max_cached_requests
    earlier = texts.earlier[: kept - 1] if rule.is_newest and kept else texts.earlier
    outputs = [*earlier, known][-kept:] if kept else []
    own = *texts.prompt, *known
    context = own[-options.suffix_decoding_max_tree_depth :]
    found: dict[Tokens, float] = {(): 0.0}
    highest = 0.0
    for searched in ([own], outputs):
        for length in range(1, len(context)):
            ends = [
                (text, end)
                for text in searched
                for end in range(length, len(text) + 1)
                if text[end - length : end] == context[-length:]
            ]
            factor = int(length * options.suffix_decoding_max_spec_factor + 1e-6)
            limit = min(NO_LIMIT if rule.is_past_k else most, factor, options.suffix_decoding_max_tree_depth - length)
            drafts = list(_continuations(ends, limit, 1.0, rule))
            if rule.is_longest:  # Lengths grow, so that the last suffix with a draft is the longest.
                drafts = [(draft, float(length) if draft else 0.0) for draft, _ in drafts]
            highest = max(highest, min(score for _, score in drafts))
            for draft, score in drafts:
                found[draft] = max(score, found.get(draft, 0.0))
    yield from (draft[:most] for draft, score in found.items() if score >= highest - SAME_SCORE)


def _continuations(
    ends: Sequence[tuple[Tokens, int]], limit: int, probability: float, rule: SuffixRule
) -> Iterator[tuple[Tokens, float]]:
    """Yield each whole draft and its score: one, unless several tokens follow equally often."""
    following = Counter(text[end] for text, end in ends if end < len(text))
    if limit <= 0 or not following:
        yield (), 0.0
        return
    least, highest = rule.options.suffix_decoding_min_token_prob, max(following.values())
    tokens = [token for token, count in following.items() if count == highest]
    if rule.is_latest:
        tokens = [next(text[end] for text, end in reversed(ends) if end < len(text))]
        highest = following[tokens[0]]
    share = highest / (following.total() if rule.is_of_continued else len(ends))
    chance = probability * share
    # A product that equals the limit may round to either side; the first ratio is exact.
    bounded = share if rule.is_of_tokens else chance
    is_open = probability < 1.0 and not rule.is_of_tokens and abs(chance - least) < SAME_SCORE
    if bounded < least or is_open or (rule.is_above and bounded == least):
        yield (), 0.0
        if not is_open:
            return
    for token in tokens:
        after = [(text, end + 1) for text, end in ends if end < len(text) and text[end] == token]
        for rest, score in _continuations(after, limit - 1, chance, rule):
            yield (token, *rest), chance + score


def _agreed(draft: Tokens, text: Tokens) -> int:
    return next((n for n, (a, b) in enumerate(zip(draft, text, strict=False)) if a != b), min(len(draft), len(text)))
