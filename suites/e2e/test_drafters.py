"""Drafters beyond prompt lookup and chains of a draft model: suffix decoding, parallel drafting, MTP layers (GEN)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from verispec import fixtures
from verispec.cases import case
from verispec.engines.protocol.generation import Generator, LoadOptions
from verispec.judge import Failure, Inconclusive, Kind, Mismatch
from verispec.run.record import FAULT
from verispec.suites.e2e._again import Again
from verispec.suites.e2e._drafts import judge_chains
from verispec.suites.e2e._reference_model import greedy_text
from verispec.suites.e2e._setups import (
    LAYOUTS,
    MTP,
    PARALLEL,
    RESUMED,
    SUFFIX,
    Load,
    NotTold,
    greedy,
    layout_of,
    options_of,
    require,
    stepped,
)
from verispec.suites.e2e._suffix import Counts, SuffixRule, Texts, Tokens, mistakes, possible_counts

TARGET = fixtures.model("target")
PROMPTS, LENGTH = 6, 40
FURTHER_PROMPTS = 40
"""Number of the last prompt of those that tell mistakes apart after a failure."""
SUFFIX_LIMITS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "depth of 6": {"suffix_decoding_max_tree_depth": 6, "suffix_decoding_max_spec_factor": 4.0},
    "factor of 2.5": {"suffix_decoding_max_spec_factor": 2.5},
    "factor of 0.5": {"suffix_decoding_max_spec_factor": 0.5},
    "probability of 0.5": {"suffix_decoding_min_token_prob": 0.5},
    "one output": {"suffix_decoding_max_cached_requests": 1},
    "no outputs": {"suffix_decoding_max_cached_requests": 0, "suffix_decoding_max_tree_depth": 2},
    "two outputs": {"suffix_decoding_max_cached_requests": 2},
}
"""A token that follows in one place of two has the smallest allowed probability of 0.5."""
REACH = "the method is an accepted option"


@case("GEN-46", limits=list(SUFFIX_LIMITS), reach=REACH)
def test_suffix_drafts_follow_their_rules(load: Load, prompts: Any, limits: str) -> None:
    """One request after another, each of which may draft from the outputs before it.

    Prompts repeat a phrase, and each comes twice, the first one after four others. An engine may draft past the end of
    an output; it then keeps what the last step emitted there too.
    """
    phrases = [(*prompt[:7], *prompt[:7], *prompt[:3]) for prompt in prompts[20:23]]
    asked = [phrases[n] for n in (2, 0, 1, 0, 1, 2)]
    # A seed of its own gives this case a generator that has no outputs yet.
    options = {"seed": 46 + list(SUFFIX_LIMITS).index(limits), **SUFFIX_LIMITS[limits]}
    generator, wanted = load(SUFFIX, **options), LoadOptions(**{**options_of(SUFFIX), **options})
    told: list[Told] = []
    for n, prompt in enumerate(asked):
        counts, output = one_request(generator, prompt)
        text = greedy_text(TARGET, prompt, LENGTH + wanted.max_drafts)
        if output != text[:LENGTH]:
            raise Inconclusive(f"the output of prompt {n} is not the float64 target's, as after a tie within rounding")
        told.append((prompt, text, counts))
    if wrong := first_wrong(told, SuffixRule(wanted)):
        n, possible = wrong
        counts = told[n][2]
        nearest = sorted(possible, key=lambda other: sum(abs(a - b) for a, b in zip(counts, other, strict=True)))
        more = f", the nearest of {len(nearest)}" if len(nearest) > 1 else ""
        message = (
            f"prompt {n}: verifications, drafts and accepted drafts are {counts}; the texts before it give "
            f"{nearest[0]}{more}"
        )
        found = [words for words, rule in mistakes(wanted).items() if first_wrong(told, rule) is None]
        details = {FAULT: found[0]} if len(found) == 1 else {}
        if details:
            message += f"; the counts of all prompts are as if {found[0]}"
        raise Mismatch(Failure(Kind.RELATION, message, details=details))
    require(sum(counts[0] for *_, counts in told) > 0, "no step had a draft")


Told = tuple[Tokens, Tokens, Counts]
"""A prompt, the target's text behind it, and the counts of the engine."""


def first_wrong(told: Sequence[Told], rule: SuffixRule) -> tuple[int, set[Counts]] | None:
    """Return the first prompt whose counts do not follow a rule, and those that do; None if all do."""
    # Outputs as the drafter may know them, of an engine that drafts no further than they go, and of one that does.
    known: set[tuple[bool, tuple[Tokens, ...]]] = {(True, ()), (False, ())}
    for n, (prompt, text, counts) in enumerate(told):
        possible = {
            (each, capped, (*outputs, text[: LENGTH if capped else end]))
            for capped, outputs in known
            for each, end in possible_counts(Texts(prompt, outputs), text, LENGTH, rule, capped)
        }
        known = {(capped, outputs) for each, capped, outputs in possible if each == counts}
        if not known:
            return n, {each for each, *_ in possible}
    return None


def one_request(generator: Generator, prompt: Tokens) -> tuple[Counts, Tokens]:
    """Return the counts and the tokens of one greedy request.

    Raises:
        NotTold: the engine has no counters.
    """
    before = generator.metrics()
    [result] = generator.generate(greedy([prompt], LENGTH))
    if not generator.metrics().accepted_per_position:
        raise NotTold("the engine does not count drafts")
    metrics = generator.metrics().since(before)
    return (metrics.num_drafts, metrics.num_draft_tokens, metrics.num_accepted_tokens), result.token_ids


@case("GEN-47", draft=PARALLEL, memory=LAYOUTS, reach=REACH)
def test_parallel_drafts_are_those_of_mask_tokens_in_any_layout(load: Load, prompts: Any, memory: str) -> None:
    check_drafts(load, prompts, PARALLEL, memory)


@case("GEN-47", draft=[PARALLEL, "draft_model parallel k=8"], reach=REACH)
def test_parallel_drafts_are_those_of_mask_tokens(load: Load, prompts: Any, draft: str) -> None:
    check_drafts(load, prompts, draft, None)


@case("GEN-48", draft=MTP, memory=[None, *LAYOUTS, RESUMED], reach=REACH)
def test_mtp_drafts_are_the_layers_own(load: Load, prompts: Any, memory: str | None) -> None:
    check_drafts(load, prompts, MTP, memory)


def check_drafts(load: Load, prompts: Any, draft: str, memory: str | None) -> None:
    """Check that every step accepts the drafts that the float64 drafter agrees to, whole chains of them."""
    # Without a layout that counts blocks, prompts of 8 to 48 tokens mix lengths in a batch.
    chosen = prompts[:PROMPTS] if memory else [p[: 8 * (n + 1)] for n, p in enumerate(prompts[:PROMPTS])]
    generator, asked = load(draft, memory or ""), greedy(chosen, LENGTH)
    results = stepped(generator, asked)
    texts = list(zip(chosen, results, strict=True))
    more = greedy([p[:30] for p in prompts[PROMPTS:FURTHER_PROMPTS]], LENGTH)
    judge_chains(draft, TARGET, texts, layout_of(memory or ""), Again(generator, asked, more=more))
    if not any(step.accepted > 1 for result in results for step in result.steps):
        raise Inconclusive("no step accepted two drafts, so that no later one was checked")


@case("GEN-14", draft=["draft_model k=8", "eagle3 k=5"], rate=1, reach=REACH)
def test_every_draft_is_the_drafters_own(load: Load, prompts: Any, draft: str) -> None:
    check_all_drafts(load, prompts, draft)


@case("GEN-47", draft="draft_model parallel k=8", rate=1, reach=REACH)
def test_every_parallel_draft_is_that_of_its_mask_token(load: Load, prompts: Any) -> None:
    check_all_drafts(load, prompts, "draft_model parallel k=8")


@case("GEN-48", draft=MTP, rate=1, reach=REACH)
def test_every_mtp_draft_is_the_layers_own(load: Load, prompts: Any) -> None:
    check_all_drafts(load, prompts, MTP)


def check_all_drafts(load: Load, prompts: Any, draft: str) -> None:
    """Check every draft of whole chains: synthetic rates of 1 accept all, so that the text shows them."""
    depth = LoadOptions(**options_of(draft)).max_drafts
    generator = load(draft, rejection_sample_method="synthetic", synthetic_acceptance_rates=(1.0,) * depth)
    chosen = [prompt[: 9 * (n + 1)] for n, prompt in enumerate(prompts[:5])]
    asked = greedy(chosen, 1 + 3 * (depth + 1))
    results = stepped(generator, asked)
    more = greedy([p[:30] for p in prompts[5:FURTHER_PROMPTS]], 1 + 3 * (depth + 1))
    texts, again = list(zip(chosen, results, strict=True)), Again(generator, asked, more=more)
    judge_chains(draft, TARGET, texts, again=again, are_targets=False)
    if not any(step.accepted == depth for result in results for step in result.steps):
        raise Inconclusive(f"no step accepted all of its {depth} drafts")
