"""The first drafts of short requests: where the keys and states of a drafter first go wrong (contract GEN)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from verispec import fixtures
from verispec.cases import case
from verispec.engines.protocol.generation import GenerationResult, Generator
from verispec.judge import Failure, Inconclusive, Kind, Mismatch
from verispec.run.record import LOCATED
from verispec.suites.e2e._drafts import announce, judge_drafts, judge_of
from verispec.suites.e2e._lengths import listed
from verispec.suites.e2e._reference_model import ReferenceModel, reference_model
from verispec.suites.e2e._setups import FORKS, MODELS, TREE, Load, greedy, require, stepped, with_steps

TARGET = fixtures.model("target")
MOST = 3
"""K."""
REACHING = "reach the next block"
ENDS = (*range(9, 22), *range(28, 37))
"""Lengths of prompts around the ends of blocks of 16 and of 32 tokens."""


@case("GEN-14", draft=MODELS, check="ends of blocks", reach="drafts that reach another KV block than their prompt")
def test_drafts_reach_the_next_block(load: Load, prompts: Any, draft: str) -> None:
    """The first drafts behind eight prompts of each length of `ENDS`, in a batch; a failure lists the wrong lengths.

    A drafter writes the keys of its drafts into places that no token has yet. Where these are in the next block, the
    request has to have it already.
    """
    check_ends(load(draft), prompts, draft)


@case("GEN-14", draft="draft_model k=3", rate=1, check="ends of blocks", reach="drafts that reach another KV block")
def test_all_drafts_reach_the_next_block(load: Load, prompts: Any) -> None:
    """As above, with all three drafts: synthetic rates of 1 accept them, so that the text shows each."""
    draft, rates = "draft_model k=3", (1.0,) * MOST
    options: dict[str, Any] = {"rejection_sample_method": "synthetic", "synthetic_acceptance_rates": rates}
    check_ends(load(draft, **options), prompts, draft)


def check_ends(generator: Generator, prompts: Any, draft: str) -> None:
    """Check the first drafts behind prompts of the lengths `ENDS`."""
    (judge, depth), wrong = judge_of(draft, TARGET), []
    for length in ENDS:
        chosen = [prompt[:length] for prompt in prompts[:8]]
        texts = list(zip(chosen, with_steps(generator.generate(greedy(chosen, MOST + 2))), strict=True))
        announce(judge, texts)
        if not all(is_right(judge, *text, 1, depth) for text in texts):
            wrong.append(length)
    if wrong:
        where = told(wrong, MOST)
        message = f"drafts {where} are not the drafter's own"
        raise Mismatch(Failure(Kind.RELATION, message, details={LOCATED: REACHING in where}))


@case("GEN-44", tree="forks", check="ends of blocks", reach="a tree that reaches another KV block than its root")
def test_trees_reach_the_next_block(load: Load, prompts: Any) -> None:
    """The first tokens behind eight prompts of each length of `ENDS`, in a batch; a failure lists the wrong lengths.

    The keys of accepted nodes move to the places of their tokens. The blocks of several requests are not in a row.
    """
    generator, wrong, first = load(TREE), [], ""
    for length in ENDS:
        chosen = [prompt[:length] for prompt in prompts[:8]]
        for n, result in enumerate(generator.generate(greedy(chosen, 6))):
            try:
                reference_model(TARGET).judge_greedy(chosen[n], result.token_ids, f"prompt {n} of {length} tokens")
            except Mismatch as mismatch:
                first = first or mismatch.failure.message
                wrong.append(length)
                break
    require(not wrong, f"texts {told(wrong, len(FORKS) + 4)} are wrong: {first}")


@case("GEN-14", draft=MODELS, check="second step", reach="drafts behind accepted ones")
def test_drafts_behind_accepted_ones(load: Load, prompts: Any, draft: str) -> None:
    """The drafts of a request's first two verifications: behind its prompt, and behind accepted drafts or others.

    The keys of accepted drafts are those of the drafting passes, until a pass over the target's states replaces them.
    """
    judge, depth = judge_of(draft, TARGET)
    chosen = [prompt[: 5 + n % 9] for n, prompt in enumerate(prompts[:64])]
    results = stepped(load(draft), greedy(chosen, 3 + 2 * MOST))
    announce(judge, list(zip(chosen, results, strict=True)))
    wrong, all_of = dict.fromkeys(PLACES, 0), dict.fromkeys(PLACES, 0)
    for prompt, result in zip(chosen, results, strict=True):
        verified = [n for n, step in enumerate(result.steps) if step.drafted][:2]
        for n in verified:
            where = PLACES[0] if n == verified[0] else PLACES[1 if result.steps[verified[0]].accepted else 2]
            is_own = is_right(judge, prompt, result, n, depth)
            all_of[where] += 1
            wrong[where] += not is_own
            if not is_own:
                break
    if not all_of[PLACES[1]]:
        raise Inconclusive("no second verification followed accepted drafts")
    told = ", ".join(f"in {wrong[where]} of {all_of[where]} steps {where}" for where in PLACES)
    if any(wrong.values()):
        is_one = sum(map(bool, wrong.values())) == 1 and sum(all_of[where] for where in PLACES if not wrong[where]) > 0
        message = f"drafts are not the drafter's own {told}"
        raise Mismatch(Failure(Kind.RELATION, message, details={LOCATED: is_one}))


PLACES = ("behind a prompt", "behind accepted drafts", "behind rejected ones")


def is_right(judge: ReferenceModel, prompt: Sequence[int], result: GenerationResult, number: int, depth: int) -> bool:
    """Return True if the drafts of one step are the drafter's own."""
    steps = tuple(step if n == number else replace(step, drafted=0) for n, step in enumerate(result.steps))
    try:
        judge_drafts(judge, prompt, replace(result, steps=steps), depth)
    except Mismatch:
        return False
    return True


def told(wrong: Sequence[int], most: int) -> str:
    """Return the lengths of prompts as text, with the blocks that all wrong ones reach and not all right ones.

    Args:
        wrong: lengths of `ENDS` behind which something is wrong.
        most: places behind a prompt that its first steps write.
    """
    right = [length for length in ENDS if length not in wrong]
    if not right:
        return f"behind prompts of all of {len(ENDS)} lengths"
    found = f"behind prompts of {listed(wrong)} tokens, which {{}}, and not behind those of {listed(right)},"
    for block in (16, 32):
        reaching = {length for length in ENDS if -length % block < most}
        if reaching >= set(wrong) and not reaching >= set(right):
            return found.format(f"{REACHING} of {block}")
    return found.replace(", which {}", "")
