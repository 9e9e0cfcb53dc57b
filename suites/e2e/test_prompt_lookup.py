"""Prompt lookup: a request drafts what followed its own last token, whatever runs beside it (contract GEN)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from verispec import fixtures
from verispec.cases import case
from verispec.engines.protocol.generation import GenerationRequest, GenerationResult
from verispec.judge import Inconclusive, Kind
from verispec.suites.e2e._again import Again
from verispec.suites.e2e._lookup import FOLLOWING, LONGEST, SHORTEST, judge_lookups, judge_rules, lookup_prompts
from verispec.suites.e2e._reference_model import reference_model
from verispec.suites.e2e._setups import SUFFIX, Load, greedy, require, with_steps
from verispec.suites.e2e._texts import check_texts
from verispec.suites.e2e._tiny import VOCAB, save_following, save_long
from verispec.suites.e2e._where import MemoryLayout

TARGET = fixtures.model("target")


@case(
    "GEN-49", draft=["ngram k=3", "ngram k=8", SUFFIX], requests="that come and go", reach="several requests at a time"
)
def test_a_request_drafts_what_followed_its_own_token(load: Load, prompts: Any, draft: str) -> None:
    """Prompts with a repeated phrase beside prompts without one, four of twelve requests at a time.

    They end apart, so that some read their prompt and some have no draft while others have one. A seed of its own gives
    this case a generator that has no texts yet.
    """
    chosen = [(*p[:9], *p[:9], *p[:4]) if n % 3 else p[: 40 - 2 * n] for n, p in enumerate(prompts[:12])]
    asked = [GenerationRequest(p, max_tokens=6 + 7 * n % 30, ignore_eos=True) for n, p in enumerate(chosen)]
    generator = load(draft, max_num_seqs=4, seed=49)
    results = with_steps(generator.generate(asked))

    def check(n: int, result: GenerationResult) -> None:
        reference_model(TARGET).judge_greedy(chosen[n], result.token_ids, f"prompt {n}")

    check_texts(asked, results, check, MemoryLayout(batch=4), Again(generator, asked))
    require(judge_lookups(list(zip(chosen, results, strict=True))) > 0, "no step had a draft")


@case("GEN-49", draft=["ngram k=3", "ngram k=8", SUFFIX], requests="after longer ones", reach="a request after another")
def test_a_request_is_looked_up_in_its_own_text(load: Load, prompts: Any, draft: str) -> None:
    """Prompts that repeat a phrase, twice: first of all, and after longer prompts that have none of their tokens.

    A table of all texts may stay, and has nothing for these. A place in the batch that keeps the text of its earlier
    request finds their phrases no more. Two steps of a request may have padding tokens for drafts (vllm#46533), and a
    near-tie may change a text. Seeds of their own give the case two generators that have no texts yet.
    """
    asked = greedy([(*p[:9], *p[:9], *p[:4]) for p in prompts[20:24]], 40)
    alone = with_steps(load(draft, max_num_seqs=4, seed=50).generate(asked))
    texts = {token for request in asked for token in request.prompt_token_ids}
    texts |= {token for result in alone for token in result.token_ids}
    others = [token for token in range(16, 2048) if token not in texts]
    generator = load(draft, max_num_seqs=4, seed=51)
    generator.generate(greedy([others[n : 600 + 5 * n : 5] for n in range(4)], 4))
    after = with_steps(generator.generate(asked))
    pairs = [pair for pair in zip(alone, after, strict=True) if pair[0].token_ids == pair[1].token_ids]
    if sum(step.accepted for own, _ in pairs for step in own.steps) < 8 * len(asked):
        raise Inconclusive("too few drafts of the repeated phrases were accepted")
    (many, early), (few, late) = (steps_of([pair[place] for pair in pairs]) for place in (0, 1))
    message = f"{many} of {early} steps had drafts, and after longer requests of other tokens {few} of {late}"
    require(few >= many - 2 * len(asked) and late <= early + 2 * len(asked), message, Kind.RELATION)


def steps_of(results: Sequence[GenerationResult]) -> tuple[int, int]:
    """Return the number of steps with drafts, and of all steps."""
    steps = [step for result in results for step in result.steps]
    return sum(step.drafted > 0 for step in steps), len(steps)


@pytest.fixture(scope="session")
def following(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a target whose texts follow from their last token."""
    return save_following(tmp_path_factory.mktemp("following"), FOLLOWING)


@case(
    "GEN-50",
    target="following",
    draft="ngram k=3",
    sampler=["flat", "request_state"],
    reach="texts in which suffixes of several lengths occur, or that repeat",
)
def test_the_longest_suffix_is_looked_up(load: Load, following: Path, sampler: str) -> None:
    """Shorter suffixes have other continuations at the first place and at the last; texts end in runs and periods.

    Engines take the first place or the last, copy the drafts or look up each, and a step may have none. What one
    engine does has to be the same in all steps.
    """
    judge_suffixes(load, following, lookup_prompts(), sampler=sampler)


@case("GEN-50", target="following", draft="ngram k=3", prompts="long", reach="texts of hundreds of tokens")
def test_the_longest_suffix_of_a_long_text(load: Load, following: Path, tmp_path: Path) -> None:
    """The same prompts, alone and behind 64 to 512 tokens, among which most suffixes occur at several places."""
    rng, prompts = np.random.default_rng(1), lookup_prompts()
    before = [tuple(rng.integers(1, VOCAB, 64 << n % 4).tolist()) for n in range(12)]
    behind = [(*many, *prompt) for many, prompt in zip(before, prompts[-12:], strict=True)]
    judge_suffixes(load, save_long(following, tmp_path / "long"), prompts + behind)


def judge_suffixes(load: Load, target: Path, prompts: Sequence[tuple[int, ...]], **options: Any) -> None:
    generator = load("ngram k=3", target=target, ngram_min=SHORTEST, ngram_max=LONGEST, **options)
    results = with_steps(generator.generate(greedy(prompts, 16)))
    for n, (prompt, result) in enumerate(zip(prompts, results, strict=True)):
        reference_model(target).judge_greedy(prompt, result.token_ids, f"prompt {n}")
    require(judge_rules(list(zip(prompts, results, strict=True))) > 0, "no step had a draft")
