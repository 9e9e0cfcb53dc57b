"""Checks of greedy texts and of their drafts, which cases of several clauses share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from verispec import fixtures
from verispec.engines.protocol.generation import GenerationRequest, GenerationResult, Generator
from verispec.judge import Mismatch
from verispec.suites.e2e._again import Again
from verispec.suites.e2e._drafts import Drafter, Text, chain_mistakes, enough, explained, judge_texts
from verispec.suites.e2e._head import MISREAD, save_misread
from verispec.suites.e2e._reference_model import ReferenceModel, greedy_texts, reference_head, reference_model
from verispec.suites.e2e._setups import greedy, layout_of, require, stepped
from verispec.suites.e2e._texts import check_texts

LENGTH = 40
PROMPTS = 8
TARGET = fixtures.model("target")


def own_texts(prompts: Any) -> list[tuple[int, ...]]:
    return greedy_texts(TARGET, prompts, LENGTH)


def check_own(
    asked: Sequence[GenerationRequest], results: Sequence[GenerationResult], named: str, generator: Generator
) -> None:
    """Check that all tokens are the target's; `named` with a text's number is its name."""
    model = reference_model(TARGET)

    def check(n: int, result: GenerationResult) -> None:
        model.judge_greedy(asked[n].prompt_token_ids, result.token_ids, named.format(n))

    check_texts(asked, results, check, again=Again(generator, asked))


def check_equal(generator: Generator, prompts: Any, named: str, memory: str = "") -> None:
    """Check that texts are those of the target without drafts; `named` with a text's number is its name."""
    own, model, asked = own_texts(prompts), reference_model(TARGET), greedy(prompts, LENGTH)

    def check(n: int, result: GenerationResult) -> None:
        model.judge_equal(prompts[n], own[n], result.token_ids, named.format(n))

    check_texts(asked, generator.generate(asked), check, layout_of(memory), Again(generator, asked))


def longer(prompts: Any) -> list[tuple[int, ...]]:
    """Return prompts of eight tokens and more, each eight longer than the one before it."""
    return [p[: 8 * (n + 1)] for n, p in enumerate(prompts[:PROMPTS])]


def further(prompts: Any) -> list[GenerationRequest]:
    """Return requests that run after a failure alone."""
    return greedy([prompt[:30] for prompt in prompts[PROMPTS:40]], LENGTH)


def check_drafts(
    generator: Generator,
    prompts: Any,
    judge: ReferenceModel,
    depth: int,
    memory: str = "",
    more: Sequence[GenerationRequest] = (),
    mistakes: Mapping[str, ReferenceModel] | None = None,
) -> None:
    """Compare the first `depth` drafts of every step with the drafter's own; `more` requests run after a failure.

    The failure names the one of `mistakes` whose drafter agrees with all drafts.
    """
    asked = greedy(prompts, LENGTH)
    texts: Sequence[Text] = list(zip(prompts, stepped(generator, asked), strict=True))
    again = Again(generator, asked, more=more)
    try:
        judged = judge_texts(judge, texts, depth, layout_of(memory), again, TARGET)
    except Mismatch as mismatch:
        right = [(judge, depth)]
        others = {told: partial(lambda other: [(other, depth)], other) for told, other in (mistakes or {}).items()}
        raise explained(mismatch, right, others, enough(right, texts, again) if others else texts) from None
    require(judged > 0, "no step had a draft")


def check_head(generator: Generator, prompts: Any, head: Path, folder: Path) -> None:
    """Compare the first of three drafts of every step with the head's own; a failure names the mistake, if it knows it.

    A mistake of chains has to agree with all three drafts.
    """
    asked = greedy(longer(prompts), LENGTH)
    again = Again(generator, asked, more=further(prompts))
    texts: Sequence[Text] = [(r.prompt_token_ids, own) for r, own in zip(asked, stepped(generator, asked), strict=True)]

    def misread(mistake: str) -> list[Drafter]:
        return [(reference_head(save_misread(head, folder / str(list(MISREAD).index(mistake)), mistake), TARGET), 1)]

    right = reference_head(head, TARGET)
    try:
        judged = judge_texts(right, texts, 1, again=again, target=TARGET)
    except Mismatch as mismatch:
        texts = enough([(right, 1)], texts, again)
        mistakes = chain_mistakes("eagle3", head, TARGET, 3, texts) | {told: partial(misread, told) for told in MISREAD}
        raise explained(mismatch, [(right, 1)], mistakes, texts) from mismatch
    require(judged > 0, "no step had a draft")
