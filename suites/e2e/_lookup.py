"""Prompt lookup in plain loops, and prompts in which only a suffix of several tokens finds the right continuation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from verispec.engines.protocol.generation import GenerationResult, SpeculativeStep
from verispec.judge import Failure, Kind, Mismatch
from verispec.run.record import FAULT
from verispec.suites.e2e._reference_model import greedy_text
from verispec.suites.e2e._setups import require
from verispec.suites.e2e._tiny import VOCAB

COUNT = 4
DRAFTS = 3
_TRIES = 400


def looked_up(sequence: Sequence[int], shortest: int, longest: int, most: int) -> list[int]:
    """Return the tokens that followed the latest earlier occurrence of the longest suffix that occurs earlier.

    Written apart from the reference's proposer, so that a fault there is not expected here too.

    Args:
        sequence: prompt and output.
        shortest: minimum length of the suffix in tokens.
        longest: maximum length of the suffix in tokens.
        most: maximum number of drafts.

    Returns:
        Draft tokens; none if no suffix occurs earlier.
    """
    tokens = list(sequence)
    for length in range(longest, shortest - 1, -1):
        for start in range(len(tokens) - length - 1, -1, -1):
            if tokens[start : start + length] == tokens[len(tokens) - length :]:
                return tokens[start + length : start + length + most]
    return []


def ambiguous_prompts(target: Path) -> list[tuple[int, ...]]:
    """Return up to `COUNT` prompts whose greedy text starts with a token t and three tokens b.

    The prompt has t three times. At its first and last place another token than b follows. In the middle b follows,
    and the three tokens before it are those at the end of the prompt. A match of t alone drafts what is rejected,
    whether the earliest or the latest one counts; a match of two tokens or more drafts b.

    Args:
        target: folder of the model over eight tokens.
    """
    rng = np.random.default_rng(0)
    found: list[tuple[int, ...]] = []
    for _ in range(_TRIES):
        context, filler = tuple(rng.integers(1, VOCAB, 3).tolist()), int(rng.integers(1, VOCAB))
        text = tuple(rng.integers(1, VOCAB, 1 + DRAFTS).tolist())
        for _ in range(4):
            prompt = _prompt(text, context, filler)
            own = greedy_text(target, prompt, 1 + DRAFTS)
            if own == text and _only_by_context(text, context, filler):
                found.append(prompt)
                break
            text = own
        if len(found) == COUNT:
            break
    return found


def _prompt(text: tuple[int, ...], context: tuple[int, ...], filler: int) -> tuple[int, ...]:
    wrong = (text[0], *(filler,) * DRAFTS)
    return (*wrong, *context, *text, *wrong, *context)


def _only_by_context(text: tuple[int, ...], context: tuple[int, ...], filler: int) -> bool:
    """Return True if t stands only where it was put, and b cannot be drafted without the tokens before t."""
    first, *rest = text
    return first not in (*rest, *context, filler) and filler != rest[0] and context[-1] != rest[-1]


def judge_lookups(texts: Sequence[tuple[Sequence[int], GenerationResult]]) -> int:
    """Check that every draft of prompt lookup is a token that followed the token before it in some text.

    The accepted drafts show what was drafted. Engines take other occurrences, and some have the texts of all requests
    in one table. So a draft may come from any text, but it is one for the request's own last token.

    Args:
        texts: prompts and results of all requests that the generator has had at a time.

    Returns:
        How many steps had drafts.

    Raises:
        Mismatch: a step accepted a draft that nothing can have drafted, or rejected one where nothing else can be.
    """
    whole = [(*prompt, *result.token_ids) for prompt, result in texts]
    judged = 0
    for n, (prompt, result) in enumerate(texts):
        others = _followers([*whole[:n], *whole[n + 1 :]])
        known = list(prompt)
        for number, step in enumerate(result.steps):
            rest = result.token_ids[len(known) - len(prompt) :]
            is_padding = number < 2 and not step.accepted  # Placeholders, as after a prefix-cache hit (vllm#46533).
            # Without a token behind the accepted ones, what decided the last draft is not known.
            if step.drafted and len(rest) > step.accepted and not is_padding:
                _judge_step(known, rest, step, others, f"prompt {n}, step {number}")
                judged += 1
            known += rest[: step.accepted + 1]
    return judged


def _judge_step(
    known: Sequence[int], rest: Sequence[int], step: SpeculativeStep, others: dict[int, set[int]], what: str
) -> None:
    own = list(known)
    for place, token in enumerate(rest[: step.accepted + 1]):
        followed = others.get(own[-1], set()) | _followers([own]).get(own[-1], set())
        accepted = place < step.accepted
        if not accepted and step.accepted == step.drafted:
            return
        told = f"{what}: draft {place} after token {own[-1]} is {'' if accepted else 'not '}{token}"
        good = token in followed if accepted else bool(followed - {token})
        require(good, f"{told}, which {sorted(followed) or 'nothing'} has followed before", Kind.RELATION)
        own.append(token)


def _followers(texts: Sequence[Sequence[int]]) -> dict[int, set[int]]:
    """Return the tokens that follow each token in some text."""
    found: dict[int, set[int]] = {}
    for text in texts:
        for token, following in pairwise(text):
            found.setdefault(token, set()).add(following)
    return found


FOLLOWING = (2, 1, 3, 5, 6, 7, 4)
"""Tokens after 1 to 7 in the texts of `lookup_prompts`: two in turn, a run, and a period of four."""
SHORTEST, LONGEST = 1, 3
"""Lengths of suffixes that may be looked up."""


@dataclass(frozen=True)
class LookupRule:
    """A choice among the places of a suffix, and the ways to go wrong about it.

    Attributes:
        is_earliest: True for the earliest place of the suffix, False for the latest.
        may_overlap: True if a place that overlaps the suffix counts.
        is_chained: True if each further draft is looked up behind the one before it, and not copied.
        longest: maximum length of the suffix.
    """

    is_earliest: bool = False
    may_overlap: bool = True
    is_chained: bool = False
    longest: int = LONGEST

    def drafts(self, sequence: Sequence[int], most: int) -> list[int]:
        """Return up to `most` drafts behind `sequence`."""
        if not self.is_chained:
            return self._copied(list(sequence), most)
        known = list(sequence)
        while len(known) < len(sequence) + most and (found := self._copied(known, 1)):
            known += found
        return known[len(sequence) :]

    def _copied(self, tokens: list[int], most: int) -> list[int]:
        end = len(tokens)
        for length in range(min(self.longest, end - 1), SHORTEST - 1, -1):
            starts = range(end - length if self.may_overlap else end - 2 * length + 1)
            places = [start for start in starts if tokens[start : start + length] == tokens[end - length :]]
            if places:
                follows = places[0 if self.is_earliest else -1] + length
                return tokens[follows : follows + most]
        return []


class WrongStep(NamedTuple):
    """A step that does not follow a rule: the number of tokens before it, and a description of its drafts."""

    length: int
    words: str


RULES = {
    "its last place": LookupRule(),
    "its first place": LookupRule(is_earliest=True),
    "its first place apart from it": LookupRule(is_earliest=True, may_overlap=False),
    "its last place, draft by draft": LookupRule(is_chained=True),
    "its first place, draft by draft": LookupRule(is_earliest=True, is_chained=True),
}
"""Rules of engines, by the place of the longest suffix whose continuation is drafted.

In this order: of the reference, of vLLM and transformers, of OpenVINO GenAI, and two of tables of n-grams.
"""
MISTAKES = {
    "only the shortest suffix was looked up": LookupRule(longest=SHORTEST),
    "suffixes of the longest length were not looked up": LookupRule(longest=LONGEST - 1),
    "no place that overlaps the suffix was found": LookupRule(may_overlap=False),
}
"""Rules of no engine in words, to follow "as if"."""


def lookup_prompts() -> list[tuple[int, ...]]:
    """Return prompts in which the longest suffix alone has the right continuation, and prompts that end in runs.

    Behind one and two tokens of the suffix, other tokens follow at the first place and at the last one.
    """
    rng = np.random.default_rng(0)
    found: list[tuple[int, ...]] = []
    while len(found) < 3 * COUNT:
        first, second, other, third, wrong, worse = rng.integers(1, VOCAB, 6).tolist()
        text = told_text(second, 4)
        right, near, far = (first, second, *text), (third, second, text[0], worse), (other, text[0], wrong)
        prompt = (*far, *near, *right, *far, *near, first, second)
        suffix = (first, second, text[0])
        occurs = sum(prompt[n : n + 3] == suffix for n in range(len(prompt)))
        if other != second and third != first and text[1] not in (wrong, worse) and occurs == 1:
            found.append(prompt)
    return found + [tuple(rng.integers(1, VOCAB, 12 + n % 12).tolist()) for n in range(6 * COUNT)]


def told_text(last: int, length: int) -> tuple[int, ...]:
    """Return the text of `FOLLOWING` behind a token."""
    text = [last]
    for _ in range(length):
        text.append(FOLLOWING[text[-1] - 1])
    return tuple(text[1:])


def judge_rules(texts: Sequence[tuple[Sequence[int], GenerationResult]]) -> int:
    """Check that one of `RULES` gives the accepted drafts of all texts.

    Args:
        texts: prompts and results.

    Returns:
        How many steps had drafts.

    Raises:
        Mismatch: no rule agrees with all steps. The message tells the first step where the best one does not, and the
            mistake that agrees with all of them if there is one.
    """
    judged, wrong = 0, dict[str, list[WrongStep]]()
    for place, rule in RULES.items():
        judged, wrong[place] = _judge_rule(texts, rule)
        if not wrong[place]:
            return judged
    place = min(wrong, key=lambda place: len(wrong[place]))
    best, details = wrong[place], dict[str, str]()
    message = f"{len(best)} of {judged} steps do not draft what followed the longest suffix at {place}: {best[0].words}"
    mistake = next((told for told, rule in MISTAKES.items() if not _judge_rule(texts, rule)[1]), "")
    if mistake:
        message, details = f"{message}; all drafts are as if {mistake}", {FAULT: mistake}
    elif switch := switched(place, wrong):
        message = f"{message}; all drafts are as if {switch}"
    raise Mismatch(Failure(Kind.RELATION, message, wrong=len(best), total=judged, details=details))


def switched(place: str, wrong: dict[str, list[WrongStep]]) -> str:
    """Return words for a rule that explains the wrong steps of another, if those are the shortest or the longest."""
    shortest, longest = (end(step.length for step in wrong[place]) for end in (min, max))
    for other, steps in wrong.items():
        lengths = [step.length for step in steps]
        if min(lengths) > longest:
            return f"{other} counted in texts of up to {longest} tokens"
        if max(lengths) < shortest:
            return f"{other} counted in texts of {shortest} tokens or more"
    return ""


def _judge_rule(
    texts: Sequence[tuple[Sequence[int], GenerationResult]], rule: LookupRule
) -> tuple[int, list[WrongStep]]:
    """Return the number of steps with drafts, and the wrong ones."""
    judged, wrong = 0, list[WrongStep]()
    for n, (prompt, result) in enumerate(texts):
        emitted = 0
        for number, step in enumerate(result.steps):
            rest = result.token_ids[emitted:]
            is_padding = number < 2 and not step.accepted  # Placeholders, as in `judge_lookups`.
            # Without a token behind the accepted ones, what decided the last draft is not known.
            if step.drafted and len(rest) > step.accepted and not is_padding:
                known = (*prompt, *result.token_ids[:emitted])
                drafts = rule.drafts(known, step.drafted)
                pairs = enumerate(zip(drafts, rest, strict=False))
                right = next((place for place, (draft, token) in pairs if draft != token), len(drafts))
                judged += 1
                if min(right, len(rest)) != step.accepted:
                    words = (
                        f"prompt {n}, step {number}: {step.accepted} drafts of {step.drafted} were accepted behind "
                        f"{list(known[-LONGEST:])}, expected {right} of {drafts}"
                    )
                    wrong.append(WrongStep(len(known), words))
            emitted += step.accepted + 1
    return judged, wrong
