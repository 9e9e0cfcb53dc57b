"""Greedy texts whose tokens are those of one mistake: in what counts as output, or in the order of parameters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from verispec.cases.orders import in_order, mistaken, repetitions, steps_of
from verispec.cases.request_parameters import processed
from verispec.engines.protocol.generation import GenerationRequest, GenerationResult
from verispec.suites.e2e._lookup import looked_up
from verispec.suites.e2e._reference_model import Array
from verispec.suites.e2e._sequences import stops_of

Tokens = tuple[int, ...]
Drafts = Callable[[Tokens, int], Sequence[int]]
"""Drafts behind a text, at most so many."""
RowRule = Callable[[int], Array]
"""Processed row of logits by its place in the output."""

LAST = "only the last token of each step counted as output"
BEFORE = "the drafts before a token in its step did not count as output"
NONE = "no token counted as output"
BEHIND = "all drafts of a step counted as output, those behind a token too"
KEPT = "rejected drafts stayed counted as output"
TWICE = "accepted drafts counted twice as output"
KEPT_AND_TWICE = "rejected drafts stayed counted as output, and accepted ones counted twice"
PROMPT = "min_tokens counted the prompt too"
PART = "a bad word was forbidden behind a part of its first tokens, where the output was no longer"
WHOLE = "the logit bias lost its fraction"
ANEW = "the grammar began anew in the middle of the text"
EQUAL = "the frequency penalty were that of presence"


def offsets(result: GenerationResult) -> list[int]:
    """Return for each token the number of tokens that its step emitted before it; empty without reported steps."""
    places = [offset for step in result.steps for offset in range(step.accepted + 1)]
    return places[: len(result.token_ids)]


@dataclass(frozen=True)
class GreedyText:
    """A text with the rows that its tokens come from.

    Attributes:
        request: its request, greedy.
        result: the engine's answer.
        rows: [tokens, V] float64, logits of the target.
        slack: maximum error of a processed logit.
    """

    request: GenerationRequest
    result: GenerationResult
    rows: Array
    slack: float

    def fits(self, rule: RowRule) -> bool:
        """Return True if each token is the most likely one by `rule`, or within rounding of it."""
        for place, token in enumerate(self.result.token_ids):
            row = rule(place)
            if not float(row.max() - row[token]) <= self.slack:
                return False
        return True

    @property
    def is_right(self) -> bool:
        """True if each token is the most likely one after every parameter, or within rounding of it."""
        tokens, stops = self.result.token_ids, stops_of(self.request)
        return self.fits(lambda i: processed(self.rows[i], self.request, tokens[:i], stops))

    def rules(self, drafters: Sequence[Drafts]) -> Iterator[tuple[str, RowRule]]:
        """Yield each mistake in words with its rule, as far as the answer tells enough; some come several times."""
        request, tokens, stops = self.request, self.result.token_ids, stops_of(self.request)
        for words, order in mistaken(steps_of(request)):
            yield words, lambda i, order=order: in_order(self.rows[i], request, tokens[:i], stops, order)  # type: ignore[misc]
        if request.repetition_penalty != 1:
            for words in repetitions(request, ()):
                yield (
                    words,
                    lambda i, words=words: processed(  # type: ignore[misc]
                        self.rows[i], request, tokens[:i], stops, repetitions(request, tokens[:i])[words]
                    ),
                )
        yield from self._of_values()
        after = offsets(self.result)
        if len(after) < len(tokens) or not any(after) or not _counts(request):
            return
        starts = [i - offset for i, offset in enumerate(after)]
        ends = {start - 1 for start in starts}
        if request.repetition_penalty != 1 or request.min_tokens or len(steps_of(request)) > 1:
            yield NONE, lambda i: self._counting(i, ())
        yield LAST, lambda i: self._counting(i, [tokens[j] for j in range(i) if j in ends or j >= starts[i]])
        yield BEFORE, lambda i: self._counting(i, tokens[: starts[i]])
        for drafts in drafters:
            yield from self._of_drafts(drafts, starts)

    def _of_values(self) -> Iterator[tuple[str, RowRule]]:
        """Yield the mistakes in reading the value of one parameter."""
        changed, tokens, stops = misread(self.request), self.result.token_ids, stops_of(self.request)
        for words, request in changed.items():
            yield words, lambda i, request=request: processed(self.rows[i], request, tokens[:i], stops)  # type: ignore[misc]
        if any(len(word) > 2 for word in self.request.bad_words):
            yield PART, self._forbidden_in_part
        if self.request.grammar is not None:
            again = (partial(self._begun_again, start) for start in range(1, len(tokens)))
            yield ANEW, next(filter(self.fits, again), partial(self._begun_again, 1))

    def _forbidden_in_part(self, place: int) -> Array:
        """Return a row without the last tokens of bad words whose first tokens end with the whole output."""
        output = self.result.token_ids[:place]
        row = processed(self.rows[place], self.request, output, stops_of(self.request))
        for word in self.request.bad_words:
            if 0 < place < len(word) - 1 and tuple(word[-1 - place : -1]) == output:
                row[word[-1]] = float("-inf")
        return row

    def _begun_again(self, start: int, place: int) -> Array:
        """Return a row under the state that the grammar has if the output begins at `start`."""
        output, stops = self.result.token_ids[:place], stops_of(self.request)
        row = processed(self.rows[place], replace(self.request, grammar=None), output, stops)
        masked = GenerationRequest((0,), grammar=self.request.grammar)
        return row + processed(np.zeros(len(row)), masked, output[start:] if place >= start else output)

    def _of_drafts(self, drafts: Drafts, starts: Sequence[int]) -> Iterator[tuple[str, RowRule]]:
        """Yield the mistakes with drafts of steps; none where `drafts` are not those of the engine."""
        tokens, own = self.result.token_ids, dict[int, Sequence[int]]()
        place = 0
        for step in self.result.steps:
            if place >= len(tokens):
                break
            found = drafts((*self.request.prompt_token_ids, *tokens[:place]), step.drafted) if step.drafted else ()
            agreed, rest = found[: step.accepted], tokens[place:]
            if len(found) != step.drafted or any(a != b for a, b in zip(agreed, rest, strict=False)):
                return
            own[place] = found
            place += step.accepted + 1
        yield BEHIND, lambda i: self._counting(i, [*tokens[: starts[i]], *own[starts[i]]])
        for words, is_kept, is_twice in ((KEPT, True, False), (TWICE, False, True), (KEPT_AND_TWICE, True, True)):
            more: dict[int, list[int]] = {}
            extra: list[int] = []
            for step, start in zip(self.result.steps, own, strict=False):
                more[start] = list(extra)
                extra += own[start][step.accepted :] if is_kept else ()
                extra += own[start][: step.accepted] if is_twice else ()
            # Repetition penalties may read the output itself beside counts that are wrong.
            for of_all in (True, False):
                yield (
                    words,
                    lambda i, more=more, of_all=of_all: self._counting(  # type: ignore[misc]
                        i, [*tokens[:i], *more[starts[i]]], of_all=of_all
                    ),
                )

    def _counting(self, place: int, counted: Sequence[int], *, of_all: bool = True) -> Array:
        """Return a row in which `counted` count as output for the penalties, or for presence and frequency alone.

        Bad words and grammars follow the text itself. So does min_tokens, unless `of_all`.
        """
        request, before, stops = self.request, self.result.token_ids[:place], stops_of(self.request)
        row = processed(self.rows[place], replace(request, **_NO_COUNTS), before)
        others = replace(request, bad_words=(), grammar=None, presence_penalty=0.0, frequency_penalty=0.0)
        row = processed(row, others, counted if of_all else before, stops)
        for token, count in Counter(counted).items():
            row[token] -= request.presence_penalty + request.frequency_penalty * count
        return row


def misread(request: GenerationRequest) -> dict[str, GenerationRequest]:
    """Return the request with one value as an engine misreads it, by the mistake in words."""
    bias, prompt = request.logit_bias, len(request.prompt_token_ids)
    found = {
        WHOLE: replace(request, logit_bias={token: float(int(value)) for token, value in bias.items()}),
        PROMPT: replace(request, min_tokens=max(request.min_tokens - prompt, 0)),
        EQUAL: replace(request, frequency_penalty=request.presence_penalty),
    }
    return {words: other for words, other in found.items() if other != request}


def mistake_of(texts: Sequence[GreedyText], drafters: Sequence[Drafts] = ()) -> list[str]:
    """Return the mistakes, in words, that explain every token of all texts. Texts without parameters tell nothing."""
    told = [text for text in texts if steps_of(text.request)]
    if all(text.is_right for text in told):  # a mistake that changes few rows would explain these too
        return []
    left: list[str] | None = None
    for text in told:
        rules = [(words, rule) for words, rule in text.rules((*drafters, *LOOKUPS)) if left is None or words in left]
        left = list(dict.fromkeys(words for words, rule in rules if text.fits(rule)))
        if not left:
            return []
    return left or []


def _counts(request: GenerationRequest) -> bool:
    """Return True if a request has a parameter that counts tokens."""
    return bool({*steps_of(request)} - {"the grammar", "the allowed ids", "the bad words", "the logit bias"})


def _first_found(known: Tokens, most: int) -> Sequence[int]:
    """Return the tokens behind the first earlier place of the longest suffix of two to four tokens."""
    for length in range(4, 1, -1):
        suffix = known[len(known) - length :]
        for start in range(len(known) - length):
            if known[start : start + length] == suffix:
                return known[start + length : start + length + most]
    return ()


LOOKUPS: tuple[Drafts, ...] = (lambda known, most: looked_up(known, 2, 4, most), _first_found)
"""Drafts of prompt lookup, by its two rules."""

_NO_COUNTS: dict[str, Any] = {
    "min_tokens": 0,
    "allowed_token_ids": (),
    "logit_bias": {},
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
