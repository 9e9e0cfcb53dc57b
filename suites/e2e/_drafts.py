"""Drafts of greedy requests against the drafter's own: the accepted ones show what was drafted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from verispec import fixtures
from verispec.engines.protocol.generation import GenerationRequest, GenerationResult, LoadOptions
from verispec.judge import Failure, Kind, Mismatch
from verispec.run.record import ALTERNATIVELY, FAULT, LOCATED
from verispec.suites.e2e._again import Again
from verispec.suites.e2e._reference_model import (
    CHAIN_MISTAKES,
    STATE_MISTAKES,
    ReferenceModel,
    reference_chain,
    reference_head,
    reference_masked,
    reference_model,
)
from verispec.suites.e2e._setups import DRAFTERS, options_of
from verispec.suites.e2e._stale_keys import STALE, reference_stale
from verispec.suites.e2e._where import (
    DRAFTS,
    PLAIN,
    STEPS,
    MemoryLayout,
    TokenPlace,
    chosen,
    separations,
    separations_of_requests,
    steps_of,
)

Text = tuple[Sequence[int], GenerationResult]
"""Prompt and result."""
Drafter = tuple[ReferenceModel, int]
"""A reference model, and how many drafts of a step it answers for."""

ENOUGH = 5
"""Wrong steps from which on a mistake that gives all of them is named."""


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


@dataclass(frozen=True)
class JudgedStep:
    """A step with drafts beside what the drafter agrees to.

    Attributes:
        place: place of the step.
        right: drafts from the first one on that the step accepted and the drafter agrees to.
        failure: None if the step is right.
    """

    place: TokenPlace
    right: int
    failure: Failure | None


def judged_steps(
    judge: ReferenceModel,
    prompt: Sequence[int],
    result: GenerationResult,
    depth: int,
    request: int = 0,
    layout: MemoryLayout = PLAIN,
) -> Iterator[JudgedStep]:
    """Compare the first `depth` drafts of every step with the drafter's own.

    The rows of a drafter are those of the text's places, or one chain of rows per place.
    """
    tokens = result.token_ids
    rows = judge.logits(tuple(prompt), tokens)
    for step in steps_of(request, prompt, result, layout):
        place = step.known - len(prompt)
        window = tokens[place : place + min(step.drafted, depth)]
        own = rows[place : place + len(window)] if rows.ndim == 2 else rows[min(place, len(rows) - 1)]
        agreed = next((n for n, token in enumerate(window) if own[n].argmax() != token), len(window))
        accepted = min(step.accepted, len(window))
        failure = None
        if agreed != accepted:
            row, token = own[min(agreed, accepted)], window[min(agreed, accepted)]
            first, second = _two_largest(row)
            margin = first - (row[token] if agreed < accepted else second)
            bound = judge.rounding(tuple(prompt), tokens)
            if not margin <= bound:
                message = (
                    f"at token {place}, {step.accepted} drafts were accepted; the drafter's own would be {agreed} "
                    f"of {len(window)}, by a margin of {margin:.3g} where rounding explains {bound:.2g}"
                )
                details = {"position": place, "margin": float(margin), "bound": bound}
                failure = Failure(Kind.RELATION, message, details=details)
        if step.drafted:
            yield JudgedStep(step, min(agreed, accepted), failure)


def announce(judge: ReferenceModel, texts: Sequence[Text]) -> None:
    """Have the drafter read texts of equal lengths together."""
    judge.announce((prompt, result.token_ids) for prompt, result in texts)


def judge_drafts(
    judge: ReferenceModel, prompt: Sequence[int], result: GenerationResult, depth: int, again: Again | None = None
) -> int:
    """Check the drafts of one text, as `judge_texts`."""
    return judge_texts(judge, [(prompt, result)], depth, again=again)


def judge_texts(
    judge: ReferenceModel,
    texts: Sequence[Text],
    depth: int,
    layout: MemoryLayout = PLAIN,
    again: Again | None = None,
    target: Path | None = None,
) -> int:
    """Check that the first `depth` drafts of every step of the texts are the drafter's own.

    Args:
        judge: the drafter.
        texts: prompts and results.
        depth: number of drafts of a step for which the drafter answers.
        layout: memory of the engine.
        again: the engine, where requests may run again after a failure.
        target: folder of the target whose greedy texts these must be. A failure first says if one of them is not.

    Returns:
        How many steps had drafts.

    Raises:
        Mismatch: a step accepted more or fewer drafts than the drafter agrees to, beyond its rounding. The message has
            the feature that separates wrong steps from right ones, and the results of wrong requests alone.
    """
    judged = 0
    announce(judge, texts)
    for prompt, result in texts:
        for step in judged_steps(judge, prompt, result, depth):
            if step.failure is not None:
                where, behaves = _where_wrong(judge, texts, depth, layout, again)
                details = step.failure.details | ({LOCATED: True} if where else {})
                message = f"{_wrong_text(target, texts)}{step.failure.message}{where}{behaves}"
                raise Mismatch(replace(step.failure, message=message, details=details))
            judged += 1
    return judged


def _wrong_text(target: Path | None, texts: Sequence[Text]) -> str:
    """Return words for the first text that is not the target's, before a message about drafts; empty if all are.

    A drafter reads the text, so that drafts may be wrong because of it.
    """
    for n, (prompt, result) in enumerate(texts if target else ()):
        try:
            reference_model(target).judge_greedy(tuple(prompt), result.token_ids, f"prompt {n}")
        except Mismatch as mismatch:
            return f"the text itself is wrong: {mismatch.failure.message}; its drafts too: "
    return ""


def _where_wrong(
    judge: ReferenceModel, texts: Sequence[Text], depth: int, layout: MemoryLayout, again: Again | None
) -> tuple[str, str]:
    """Return two texts to follow a message: where all wrong steps and drafts lie, and how requests do again.

    Both are empty if nothing tells. A right step that accepted no draft might have had others just as well, and does
    not count.
    """
    steps = [
        step
        for request, (prompt, result) in enumerate(texts)
        for step in judged_steps(judge, prompt, result, depth, request, layout)
    ]
    wrong = [step for step in steps if step.failure is not None]
    right = [step.place for step in steps if step.failure is None and step.right]
    wrong_drafts = [replace(step.place, index=step.right) for step in wrong]
    right_drafts = [replace(step.place, index=index) for step in steps for index in range(step.right)]
    told = ""
    where = chosen(
        separations([step.place for step in wrong], right, "all {} wrong steps", STEPS)
        + separations(wrong_drafts, right_drafts, "all {} wrong drafts", DRAFTS)
        + separations_of_requests(wrong_drafts, right)
    )
    if again is None:
        return where, told

    def count(request: GenerationRequest, result: GenerationResult) -> tuple[int, int]:
        found = list(judged_steps(judge, request.prompt_token_ids, result, depth))
        return sum(s.failure is not None for s in found), sum(s.failure is None and s.right > 0 for s in found)

    requests = sorted({step.place.request for step in wrong})
    beside = sum(place.request in requests for place in right)
    if layout.batch > 1:
        share = len(wrong) / (len(wrong) + beside + 1)
        told += again.told(requests, share, lambda n, result: count(again.asked[n], result))
    if all(step.place.prompt > layout.chunk for step in wrong):
        told += again.in_pieces(layout.chunk, len(wrong) / (len(wrong) + len(right) + 1), count)
    return where, told


def judge_chains(
    draft: str,
    target: Path,
    texts: Sequence[Text],
    layout: MemoryLayout = PLAIN,
    again: Again | None = None,
    *,
    are_targets: bool = True,
) -> None:
    """Check that all drafts of the texts are the drafter's own.

    Engines run an MTP layer with an embedding at position 0 or without one; one of the two must agree with all texts.

    Args:
        draft: name of the drafter.
        target: folder of the target.
        texts: prompts and results.
        layout: memory of the engine.
        again: the engine, where requests may run again after a failure; its further ones run if the texts are too few
            to tell one mistake of a head from another.
        are_targets: True if the texts must be the target's greedy ones.

    Raises:
        Mismatch: as `judge_texts`, with the mistake of a head that agrees with all texts if there is one.
    """
    name, depth = draft.partition(" k=")[0], LoadOptions(**options_of(draft)).max_drafts
    read = target if are_targets else None
    if name not in ("eagle3", "mtp"):
        judge_by_any([(judge_of(draft, target)[0], depth)], texts, layout, again, read)
        return
    folder, firsts = fixtures.model(DRAFTERS[name]), (False, True) if name == "mtp" else (False,)
    right = [(reference_chain(folder, target, depth, first), depth) for first in firsts]
    try:
        judge_by_any(right, texts, layout, again, read)
    except Mismatch as mismatch:
        texts = enough(right, texts, again)
        if are_apart(right, texts):
            told = f"{mismatch.failure.message}; all drafts are as if {SOME_FIRST}"
            details = {**mismatch.failure.details, FAULT: SOME_FIRST}
            raise Mismatch(replace(mismatch.failure, message=told, details=details)) from None
        mistakes = chain_mistakes(name, folder, target, depth, texts)
        raise explained(mismatch, right, mistakes, texts) from None


SOME_FIRST = "the embedding at position 0 counted for some requests, and for others not"


def are_apart(right: Sequence[Drafter], texts: Sequence[Text]) -> bool:
    """Return True if each text is right by one of two drafters, and neither drafter is right for all."""
    if len(right) != 2:
        return False
    first, second = ([next(wrong_steps(own, [text]), None) is None for text in texts] for own in right)
    either = all(a or b for a, b in zip(first, second, strict=True))
    return either and not all(first) and not all(second)


def chain_mistakes(
    method: str, folder: Path, target: Path, depth: int, texts: Sequence[Text]
) -> dict[str, Callable[[], Sequence[Drafter]]]:
    """Return drafters by the mistakes that a head's chains may have; see `explained`.

    Args:
        method: "eagle3" or "mtp".
        folder: the head.
        target: its target.
        depth: K.
        texts: prompts and results that are explained.
    """
    firsts = (False, True) if method == "mtp" else (False,)

    def heads(mistake: str) -> list[Drafter]:
        return [(reference_chain(folder, target, depth, first, mistake), depth) for first in firsts]

    named = CHAIN_MISTAKES | STATE_MISTAKES[method]
    mistakes: dict[str, Callable[[], Sequence[Drafter]]] = {told: partial(heads, name) for told, name in named.items()}
    mistakes[STALE] = lambda: [(reference_stale(folder, target, depth, texts, first), depth) for first in firsts]
    return mistakes


def enough(right: Sequence[Drafter], texts: Sequence[Text], again: Again | None) -> Sequence[Text]:
    """Return the texts, and those of further requests of `again` if fewer than `ENOUGH` steps are wrong."""
    if again is None or all(are_many(wrong_steps(drafter, texts)) for drafter in right):
        return texts
    with suppress(Exception):  # the failure that is known tells more
        results = again.results(again.more)
        return [*texts, *zip((request.prompt_token_ids for request in again.more), results, strict=True)]
    return texts


def judge_by_any(
    judges: Sequence[Drafter],
    texts: Sequence[Text],
    layout: MemoryLayout = PLAIN,
    again: Again | None = None,
    target: Path | None = None,
) -> None:
    """Check that one of several drafters, each with its depth, agrees with all texts.

    Raises:
        Mismatch: as `judge_texts`, for the first drafter.
    """
    if all(next(wrong_steps(drafter, texts), None) is not None for drafter in judges):
        judge_texts(judges[0][0], texts, judges[0][1], layout, again, target)


def explained(
    mismatch: Mismatch,
    right: Sequence[Drafter],
    mistakes: Mapping[str, Callable[[], Sequence[Drafter]]],
    texts: Sequence[Text],
) -> Mismatch:
    """Return the mismatch with the mistake, or one of two, that gives all drafts of the texts.

    Name nothing if fewer than `ENOUGH` steps are wrong, since a mistake may then fit by chance. So may one whose drafts
    are hardly ever accepted, since no draft shows then. Name nothing if more than two mistakes fit.

    Args:
        mismatch: failure by the right drafters.
        right: drafters without a mistake.
        mistakes: drafters by the mistake that they make, to follow "as if".
        texts: prompts and results.
    """
    if not all(are_many(wrong_steps(drafter, texts)) for drafter in right):
        return mismatch
    fitting = [told for told, drafters in mistakes.items() if any(_fits(drafter, texts) for drafter in drafters())]
    if not 0 < len(fitting) <= 2:
        return mismatch
    told, failure = ALTERNATIVELY.join(fitting), mismatch.failure
    message = f"{failure.message}; all drafts are as if {told}"
    return Mismatch(replace(failure, message=message, details={**failure.details, FAULT: told}))


def _fits(drafter: Drafter, texts: Sequence[Text]) -> bool:
    """Return True if all steps of the texts are those of a drafter, which drafted accepted tokens in enough of them."""
    judge, depth = drafter
    right = 0
    announce(judge, texts)
    for prompt, result in texts:
        for step in judged_steps(judge, prompt, result, depth):
            if step.failure is not None:
                return False
            right += step.right > 0
    return right >= ENOUGH


def wrong_steps(drafter: Drafter, texts: Sequence[Text]) -> Iterator[JudgedStep]:
    """Yield the steps of the texts that are not those of a drafter."""
    judge, depth = drafter
    announce(judge, texts)
    for prompt, result in texts:
        yield from (step for step in judged_steps(judge, prompt, result, depth) if step.failure is not None)


def are_many(wrong: Iterator[JudgedStep]) -> bool:
    """Return True if there are `ENOUGH` wrong steps; the rest is not looked at."""
    return len(list(islice(wrong, ENOUGH))) == ENOUGH


def _two_largest(row: Any) -> tuple[float, float]:
    """Return the two largest entries of each row, the larger one first."""
    second, first = sorted(row)[-2:]
    return float(first), float(second)
