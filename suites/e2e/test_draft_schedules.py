"""Drafting with a K that changes: pauses and changes leave texts and drafts as they are (contract GEN)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from verispec import fixtures
from verispec.cases import case
from verispec.engines.protocol.generation import GenerationResult
from verispec.judge import Inconclusive, Mismatch
from verispec.suites.e2e._again import Again
from verispec.suites.e2e._drafts import judge_drafts, judge_of
from verispec.suites.e2e._reference_model import reference_model
from verispec.suites.e2e._setups import (
    MODELS,
    MTP,
    PARALLEL,
    SPECULATIVE,
    Load,
    counted,
    greedy,
    require,
    stepped,
    with_steps,
)
from verispec.suites.e2e._texts import check_texts
from verispec.suites.e2e._tiny import save_cycle

TARGET = fixtures.model("target")
SCHEDULE = ((1, 2, 3), (3, 5, 2), (6, 16, 0))
LENGTH = 32
LONG = 56
"""Tokens after a prompt of three; the tiny models have room for 64."""
DEEP = 8
"""Drafts of a step that need not grow."""
ARRIVING = 3
"""Steps of a request in which the others of its batch may not all have arrived yet."""
REACH = "num_speculative_tokens_per_batch_size is an accepted option"
CHOSEN = "num_speculative_tokens='auto' is an accepted option"


def expected_drafts(batch_size: int) -> int:
    """Return the K that the schedule has for a batch."""
    return next(k for first, last, k in SCHEDULE if first <= batch_size <= last)


@case("GEN-42", batch=[2, 3, 5, 6], draft=SPECULATIVE, reach=REACH)
def test_each_batch_size_has_its_drafts(load: Load, prompts: Any, draft: str, batch: int) -> None:
    """Requests of equal length, counted from when all have arrived until the first one ends.

    Prompt lookup may find fewer drafts, and an engine may cut those that no longer fit into a request.
    """
    generator = load(draft, num_speculative_tokens_per_batch_size=SCHEDULE)
    chosen = [(*prompt[:12], *prompt[:12]) for prompt in prompts[:batch]]
    wanted = expected_drafts(batch)
    results, metrics = counted(generator, greedy(chosen, LENGTH))

    def check(n: int, result: GenerationResult) -> None:
        reference_model(TARGET).judge_greedy(chosen[n], result.token_ids, f"prompt {n} of {batch}")

    check_texts(greedy(chosen, LENGTH), results, check)
    if not wanted:
        most = batch * (ARRIVING - 1)
        times = metrics.num_drafts
        require(times <= most, f"a batch of {batch}, whose K is 0, verified drafts {times} times")
        return
    together = min(len(result.steps) for result in with_steps(results))
    for n, result in enumerate(results):
        for place, step in enumerate(result.steps[ARRIVING:together], ARRIVING):
            room = LENGTH - 1 - sum(before.accepted + 1 for before in result.steps[:place])
            least = 0 if draft.startswith("ngram") else min(wanted, room)
            seen = f"step {place} of prompt {n} had {step.drafted} drafts"
            require(least <= step.drafted <= wanted, f"{seen}, in a batch of {batch}, whose K is {wanted}")


@case("GEN-42", batch="shrinks", draft=MODELS, reach=f"{REACH}, and requests end")
def test_drafting_goes_on_after_a_pause(load: Load, prompts: Any, draft: str, pause: int = 6) -> None:
    """Six requests have no drafts, the last one of them has three: the drafter has read the tokens meanwhile."""
    chosen = draft.endswith("auto")
    generator = load(draft) if chosen else load(draft, num_speculative_tokens_per_batch_size=SCHEDULE)
    asked = [replace(request, max_tokens=pause) for request in greedy([p[:20] for p in prompts[:5]], LENGTH)]
    prompt = prompts[5][:20]
    going_on = greedy([prompt], LENGTH - 6 + pause)
    results, metrics = counted(generator, [*asked, *going_on])
    last = results[-1]
    for request, result in zip(asked, results, strict=False):
        reference_model(TARGET).judge_greedy(request.prompt_token_ids, result.token_ids, "a request that ends early")
    reference_model(TARGET).judge_greedy(prompt, last.token_ids, "the request that goes on alone")
    require(metrics.num_drafts > 0, "no step had drafts after the other requests had ended")
    judge, depth = judge_of(draft, TARGET)
    [last] = with_steps([last])
    again = Again(generator, going_on, "alone and without a pause")
    try:
        judged = judge_drafts(judge, prompt, last, depth, again)
    except Mismatch as mismatch:
        waited = next(n for n, step in enumerate(last.steps) if step.drafted)
        message = f"behind a pause of {waited} steps without drafts, {mismatch.failure.message}"
        raise Mismatch(replace(mismatch.failure, message=message)) from None
    require(judged > 0, "no step had drafts after the other requests had ended")
    deepest = max(step.drafted for step in last.steps)
    require(chosen or deepest == 3, f"a step alone had at most {deepest} drafts, expected 3")


@case("GEN-42", batch="shrinks", pause=24, draft=[*MODELS, PARALLEL, MTP], reach=f"{REACH}, and requests end")
def test_drafting_goes_on_after_a_long_pause(load: Load, prompts: Any, draft: str) -> None:
    test_drafting_goes_on_after_a_pause(load, prompts, draft, pause=24)


@case("GEN-42", batch="shrinks", draft=["draft_model k=auto", "eagle3 k=auto"], reach=f"{CHOSEN}, and requests end")
def test_a_chosen_k_returns_after_a_pause(load: Load, prompts: Any, draft: str) -> None:
    """An engine may draft in the batch of six too."""
    test_drafting_goes_on_after_a_pause(load, prompts, draft)


@case("GEN-42", accepted=["all", "few", "none"], batch=[1, 3], draft="draft_model k=auto", target="tiny", reach=CHOSEN)
def test_a_chosen_k_follows_acceptance(load: Load, tiny: dict[str, Path], accepted: str, batch: int) -> None:
    """The drafter is the target itself, or agrees with it seldom or nowhere, and costs as much.

    Of the second one a third of the drafts are accepted: more than a few per step cost more than they save.
    """
    drafter = tiny[{"all": "target", "few": "close", "none": "opposite"}[accepted]]
    prompts = [(1, 5, 2 + n) for n in range(batch)]
    results = load("draft_model k=auto", target=tiny["target"], drafter=drafter).generate(greedy(prompts, LONG))
    for n, (prompt, result) in enumerate(zip(prompts, with_steps(results), strict=True)):
        reference_model(tiny["target"]).judge_greedy(prompt, result.token_ids, f"prompt {n}")
        drafted = [step.drafted for step in result.steps]
        late = drafted[len(drafted) // 2 :]
        if accepted == "none":
            share = sum(map(bool, late)) / len(late)
            require(share <= 0.25, f"no draft was accepted, and {share:.0%} of the later steps have some: {drafted}")
            continue
        if accepted == "few":
            mean = sum(late) / len(late)
            require(mean <= DEEP / 2, f"few drafts were accepted, and later steps have {mean:.1f} each: {drafted}")
            continue
        if not any(drafted):
            raise Inconclusive(f"the engine drafts nothing for {batch} requests of a model as small as its drafter")
        first = next(filter(None, drafted))
        grew = max(drafted) > first or first >= DEEP
        require(grew, f"every draft was accepted, and no step has more than the first {first}: {drafted}")
        require(any(late), f"every draft was accepted, and no later step has any: {drafted}")


@pytest.fixture(scope="session")
def cycle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a target that repeats seven tokens."""
    return save_cycle(tmp_path_factory.mktemp("cycle"))


LOOKED_UP: dict[str, tuple[list[tuple[int, ...]], int]] = {
    "ngram k=auto": ([(1 + n, 2 + n, 3 + n) for n in range(4)], LONG),
    "suffix k=auto": ([(1,), (1,)], 6),
}
"""Prompts, and the length of their outputs: the text repeats itself, or it is that of the request before it alone."""


@case("GEN-42", accepted="all", draft=list(LOOKED_UP), reach=CHOSEN)
def test_a_chosen_k_of_lookup_grows(load: Load, cycle: Path, draft: str) -> None:
    """Requests follow each other, and all drafts of the last one are right. No model drafts them."""
    prompts, length = LOOKED_UP[draft]
    generator = load(draft, target=cycle, max_num_seqs=1)
    results = with_steps(generator.generate(greedy(prompts, length)))
    for n, (prompt, result) in enumerate(zip(prompts, results, strict=True)):
        reference_model(cycle).judge_greedy(prompt, result.token_ids, f"prompt {n}")
    drafted = [step.drafted for step in results[-1].steps]
    require(max(drafted) > 1, f"the text was seen before, every draft of it is accepted, and K is {drafted}")


@case("GEN-42", batch="cut by the budget", draft="draft_model k=1", reach=f"{REACH}, and a small token budget")
def test_the_batch_is_that_of_the_step(load: Load, prompts: Any) -> None:
    """Four running requests share four tokens per step, and only a step with all four of them drafts.

    Such a step has no room for drafts that it verifies. So no request verifies drafts in two steps after each other,
    as it would if those that wait for a later step counted.
    """
    generator = load(
        "draft_model k=1",
        max_num_seqs=4,
        max_num_batched_tokens=4,
        num_speculative_tokens_per_batch_size=((1, 3, 0), (4, 16, 1)),
    )
    chosen = [prompt[:1] for prompt in prompts[:4]]
    results = stepped(generator, greedy(chosen, LENGTH))
    for n, (prompt, result) in enumerate(zip(chosen, results, strict=True)):
        reference_model(TARGET).judge_greedy(prompt, result.token_ids, f"prompt {n}")
        drafted = [step.drafted for step in result.steps]
        places = [place for place in range(1, len(drafted)) if drafted[place - 1] and drafted[place]]
        told = "a step with drafts has room for fewer than four requests, whose K is 0"
        require(not places, f"prompt {n} has drafts behind steps with drafts, at {places}: {told}")
    if not any(step.drafted for result in results for step in result.steps):
        raise Inconclusive("no step had drafts, so that none of four requests fitted the budget")
