"""Prompts of every length up to twice a step with all drafts, and last chunks of these lengths.

A step that reads such a prompt may have as many tokens as one that verifies drafts, and must not be taken for one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from verispec.engines.protocol.generation import GenerationRequest, GenerationResult, Generator
from verispec.judge import Failure, Mismatch
from verispec.suites.e2e._setups import MEMORY, greedy

DRAFTS = 3
"""K of the cases: a step with all drafts has one token more."""
LENGTHS = range(1, 2 * (DRAFTS + 1) + 1)
LENGTH = 6
"""Tokens of each text: behind the first one, drafts are verified once or more."""
IN_CHUNKS = "blocks of 32, chunks of 24"
LAYOUTS = [None, IN_CHUNKS]
HOW = ("alone", "beside one as long", "beside one as long", "beside those of all lengths")
"""Companies of the four prompts of each length."""

Judge = Callable[[GenerationRequest, GenerationResult, str], None]


def requests_of_lengths(prompts: Sequence[Sequence[int]], memory: str | None) -> list[GenerationRequest]:
    """Return greedy requests with four prompts of each of `LENGTHS`; a layout of chunks puts one chunk before them.

    No two prompts are equal, so that no cache of prefixes has one.
    """
    before = MEMORY[IN_CHUNKS]["max_num_batched_tokens"] if memory == IN_CHUNKS else 0
    parts = [prompt[half:] for prompt in prompts for half in (0, 1)]
    count = len(LENGTHS) * len(HOW)
    return greedy([parts[n][: before + LENGTHS[n // len(HOW)]] for n in range(count)], LENGTH)


def judge_lengths(generator: Generator, asked: Sequence[GenerationRequest], judge: Judge) -> None:
    """Judge `requests_of_lengths`: one of each length alone, two together, and one of each length all together.

    Raises:
        Mismatch: with the lengths of the prompts that are wrong, and how these were asked.
    """
    lengths = [len(request.prompt_token_ids) for request in asked[:: len(HOW)]]
    groups = [asked[n : n + len(HOW)] for n in range(0, len(asked), len(HOW))]
    batches = [part for own in groups for part in (own[:1], own[1:3])] + [[own[3] for own in groups]]
    wrong: dict[str, dict[int, Failure]] = {how: {} for how in HOW}
    for batch in batches:
        how = HOW[0] if len(batch) == 1 else HOW[1] if len(batch) == 2 else HOW[3]
        for request, result in zip(batch, generator.generate(batch), strict=True):
            length = len(request.prompt_token_ids)
            try:
                judge(request, result, f"a prompt of {length} tokens {how}")
            except Mismatch as mismatch:
                wrong[how].setdefault(length, mismatch.failure)
    if any(wrong.values()):
        told = ", and of ".join(f"{listed(list(found))} {how}" for how, found in wrong.items() if found)
        first = next(failure for found in wrong.values() for failure in found.values())
        message = (
            f"of prompts of {listed(lengths)} tokens with K = {DRAFTS}, wrong are those of {told}: {first.message}"
        )
        raise Mismatch(replace(first, message=message))


def listed(lengths: Sequence[int]) -> str:
    """Return numbers as text, runs of them as ranges."""
    found: list[list[int]] = []
    for length in lengths:
        if found and found[-1][-1] == length - 1:
            found[-1].append(length)
        else:
            found.append([length])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 1 else str(run[0]) for run in found) or "none"
