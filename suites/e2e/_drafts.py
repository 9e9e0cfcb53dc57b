"""Drafts of greedy requests against the drafter's own: the accepted ones show what was drafted."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from verispec import fixtures
from verispec.engines.protocol.generation import GenerationResult, LoadOptions
from verispec.judge import Failure, Kind, Mismatch
from verispec.run.record import FAULT
from verispec.suites.e2e._reference_model import (
    CHAIN_MISTAKES,
    ReferenceModel,
    reference_chain,
    reference_head,
    reference_masked,
    reference_model,
)
from verispec.suites.e2e._setups import DRAFTERS, options_of


def judge_of(draft: str, target: Path) -> tuple[ReferenceModel, int]:
    """Return the float64 drafter of a set-up, and how many drafts of a step it answers for.

    Those of a draft model or an MTP layer are all K; of an Eagle3 head it is the first, since the next ones read its
    own states.
    """
    name, depth = draft.partition(" k=")[0], LoadOptions(**options_of(draft)).max_drafts
    folder = fixtures.model(DRAFTERS[name])
    if name == "draft_model parallel":
        return reference_masked(folder, depth), depth
    if name == "mtp":
        return reference_chain(folder, target, depth), depth
    if name.startswith("draft_model"):
        return reference_model(folder), depth
    return reference_head(folder, target), 1


def judge_drafts(judge: ReferenceModel, prompt: Sequence[int], result: GenerationResult, depth: int) -> int:
    """Check that the first `depth` drafts of every step are the drafter's own.

    The rows of a drafter are those of the text's places, or one chain of rows per place.

    Returns:
        How many steps had drafts.

    Raises:
        Mismatch: a step accepted more or fewer drafts than the drafter agrees to, beyond its rounding.
    """
    tokens = result.token_ids
    rows, place, judged = judge.logits(tuple(prompt), tokens), 0, 0
    for step in result.steps:
        window = tokens[place : place + min(step.drafted, depth)]
        own = rows[place : place + len(window)] if rows.ndim == 2 else rows[min(place, len(rows) - 1)]
        agreed = next((n for n, token in enumerate(window) if own[n].argmax() != token), len(window))
        accepted = min(step.accepted, len(window))
        if agreed != accepted:
            row, token = own[min(agreed, accepted)], window[min(agreed, accepted)]
            first, second = _two_largest(row)
            margin = first - (row[token] if agreed < accepted else second)
            bound = judge.rounding(tuple(prompt), tokens)
            if not margin <= bound:
                message = (
                    f"at token {place} {step.accepted} drafts were accepted; the drafter's own would be {agreed} "
                    f"of {len(window)}, by a margin of {margin:.3g} where rounding explains {bound:.2g}"
                )
                details = {"position": place, "margin": float(margin), "bound": bound}
                raise Mismatch(Failure(Kind.RELATION, message, details=details))
        judged += step.drafted > 0
        place += step.accepted + 1
    return judged


def judge_chains(draft: str, target: Path, texts: Sequence[tuple[Sequence[int], GenerationResult]]) -> None:
    """Check that all drafts of the texts are the drafter's own.

    Engines run an MTP layer with an embedding at position 0 or without one; one of the two must agree with all texts.

    Raises:
        Mismatch: as `judge_drafts`, with the mistake of a head that agrees with all texts if there is one.
    """
    name, depth = draft.partition(" k=")[0], LoadOptions(**options_of(draft)).max_drafts
    folder = fixtures.model(DRAFTERS[name])
    if name not in ("eagle3", "mtp"):
        judge_by_any([(judge_of(draft, target)[0], depth)], texts)
        return
    firsts = (False, True) if name == "mtp" else (False,)
    try:
        judge_by_any([(reference_chain(folder, target, depth, first), depth) for first in firsts], texts)
    except Mismatch as mismatch:
        for told, mistake in CHAIN_MISTAKES.items():
            with suppress(Mismatch):
                judge_by_any(
                    [(reference_chain(folder, target, depth, first, mistake), depth) for first in firsts], texts
                )
                message = f"{mismatch.failure.message}; all drafts are as if {told}"
                details = {**mismatch.failure.details, FAULT: told}
                break
        else:
            raise
        raise Mismatch(replace(mismatch.failure, message=message, details=details)) from None


def judge_by_any(
    judges: Sequence[tuple[ReferenceModel, int]], texts: Sequence[tuple[Sequence[int], GenerationResult]]
) -> None:
    """Check that one of several drafters, each with its depth, agrees with all texts.

    Raises:
        Mismatch: as `judge_drafts`, for the first drafter.
    """
    found: list[Mismatch] = []
    for judge, depth in judges:
        try:
            for prompt, result in texts:
                judge_drafts(judge, prompt, result, depth)
            return
        except Mismatch as mismatch:
            found.append(mismatch)
    raise found[0]


def _two_largest(row: Any) -> tuple[float, float]:
    """Return the two largest entries of each row, the larger one first."""
    second, first = sorted(row)[-2:]
    return float(first), float(second)
