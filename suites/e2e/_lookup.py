"""Prompt lookup in plain loops, and prompts in which only a suffix of several tokens finds the right continuation."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from verispec.engines.protocol.generation import GenerationResult, SpeculativeStep
from verispec.judge import Kind
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
