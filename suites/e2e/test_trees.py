"""Draft trees: the text is the target's, whatever branches were drafted beside it (contract GEN)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from verispec import fixtures
from verispec.cases import case
from verispec.cases.request_parameters import distribution
from verispec.engines.protocol.generation import GenerationRequest, GenerationResult
from verispec.judge import Failure, Inconclusive, Kind, Mismatch
from verispec.judge.statistics import fits
from verispec.judge.statistics.supposed import Sample, assert_law
from verispec.run.record import FAULT
from verispec.suites.e2e._again import Again
from verispec.suites.e2e._explained_texts import explained_texts
from verispec.suites.e2e._reference_model import greedy_texts, reference_model
from verispec.suites.e2e._sequences import mistaken_sequences, sequence_names
from verispec.suites.e2e._setups import (
    FORKS,
    LAYOUTS,
    LIMIT,
    MANY,
    Load,
    greedy,
    layout_of,
    require,
    require_accepted_drafts,
    sampled_in_parts,
    with_steps,
)
from verispec.suites.e2e._texts import check_texts
from verispec.suites.e2e._tiny import VOCAB
from verispec.suites.e2e._tree_texts import DRAFTER_MISTAKES, TreeTexts, accepted_with, drafted_with, mistaken_tree_laws
from verispec.suites.e2e.test_draft_schedules import ARRIVING
from verispec.suites.e2e.test_sampled import HEAT, PROMPT, SEQUENCES, sequence_counts, sequence_law

TREES: dict[str, tuple[tuple[int, ...], ...]] = {
    "wide": ((0,), (1,), (2,)),
    "forks": FORKS,
    "skipped ranks": ((1,), (3,), (1, 0), (3, 1), (1, 0, 2)),
    "chain": ((0,), (0, 0), (0, 0, 0)),
}
"""Shapes by name. Ranks may be skipped: a node's siblings need not be in the tree."""
BRAIDS = (
    *((0,), (1,), (2,)),
    *((0, 0), (0, 1), (1, 0), (2, 0), (2, 1)),
    *((0, 1, 0), (1, 0, 0), (2, 0, 0), (2, 1, 0), (2, 1, 1)),
)
"""A tree whose levels are wider than those above them: few nodes have the place of their parent in its level."""
STEERED = {"forks": FORKS, "braids": BRAIDS}
TARGET = fixtures.model("target")
LENGTH = 24
CLOSE = 1e-3
"""Distance of two logits of about 1 below which rounding may exchange their ranks."""
REACH = "speculative_token_tree is an accepted option"


def of_tree(tree: str) -> tuple[str, dict[str, Any]]:
    """Return the drafter and the options of a tree by its name."""
    paths = TREES[tree]
    return f"draft_model k={len(paths)}", {"speculative_token_tree": paths, "draft_sample_method": "greedy"}


@case("GEN-44", tree=list(TREES), reach=REACH, quick=False)
def test_every_token_is_the_targets(load: Load, prompts: Any, tree: str, memory: str = "") -> None:
    """Requests of other lengths share a batch, so that trees of a step have other places."""
    draft, options = of_tree(tree)
    chosen = [prompt[: 64 - 9 * n] for n, prompt in enumerate(prompts[:4])]
    generator, asked = load(draft, memory, **options), greedy(chosen, LENGTH)
    results = generator.generate(asked)

    def check(n: int, result: GenerationResult) -> None:
        tokens = result.token_ids
        require(len(tokens) == LENGTH, f"prompt {n}: {len(tokens)} tokens, expected {LENGTH}")
        reference_model(TARGET).judge_greedy(chosen[n], tokens, f"prompt {n}")

    layout = replace(layout_of(memory), has_forks=True)
    try:
        check_texts(asked, results, check, layout, Again(generator, asked))
    except Mismatch as mismatch:
        raise explained_trees(mismatch, tree, list(zip(chosen, results, strict=True))) from None
    require_accepted_drafts(results)


def judge_one(
    number: int, what: str, prompts: Sequence[tuple[int, ...]], results: Sequence[GenerationResult], tree: str
) -> None:
    """Check one of several greedy texts; a failure names the mistake that gives all of them, if it knows it."""
    try:
        reference_model(TARGET).judge_greedy(prompts[number], results[number].token_ids, what)
    except Mismatch as mismatch:
        raise explained_trees(mismatch, tree, list(zip(prompts, results, strict=True))) from None


def explained_trees(
    mismatch: Mismatch, tree: str, texts: Sequence[tuple[tuple[int, ...], GenerationResult]]
) -> Mismatch:
    """Return the mismatch with the mistake in trees that gives all texts, else with the paths before wrong tokens."""
    with suppress(Exception):  # the failure that is known tells more
        right, trees = reference_model(TARGET), TreeTexts(TARGET, fixtures.model("draft"), TREES[tree], texts)
        told = explained_texts(mismatch, right, trees.mistaken(), [(prompt, own.token_ids) for prompt, own in texts])
        if told is not mismatch:
            return told
        wrong = {}
        for prompt, result in texts:
            try:
                right.judge_greedy(prompt, result.token_ids, "a text")
            except Mismatch as own:
                wrong[prompt, result.token_ids] = int(own.failure.details["position"])
        failure = mismatch.failure
        return Mismatch(replace(failure, message=failure.message + trees.behind(wrong)))
    return mismatch


@case("GEN-44", memory=[*LAYOUTS, "budget of 10"], tree="forks", reach=REACH, quick=False)
def test_every_token_is_the_targets_in_any_layout(load: Load, prompts: Any, memory: str) -> None:
    test_every_token_is_the_targets(load, prompts, "forks", memory)


@case("GEN-44", tree=["forks"], check="end of the sequence", reach=REACH, quick=False)
def test_trees_at_the_longest_sequence(load: Load, prompts: Any, tree: str) -> None:
    """The last trees have more nodes than the sequence has places left."""
    draft, options = of_tree(tree)
    generator = load(draft, "blocks of 32, chunks of 24", **options)
    chosen = [(*prompt, *prompt[: 24 + n]) for n, prompt in enumerate(prompts[:3])]
    results = generator.generate(greedy(chosen, LIMIT))
    for n, (prompt, result) in enumerate(zip(chosen, results, strict=True)):
        room = LIMIT - len(prompt)
        require(len(result.token_ids) == room, f"{len(result.token_ids)} tokens, max_model_len leaves room for {room}")
        judge_one(n, "a sequence of the maximum length", chosen, results, tree)


@case("GEN-44", tree=["forks"], check="ends apart", reach=REACH, quick=False)
def test_trees_at_the_longest_sequence_beside_others(load: Load, prompts: Any, tree: str) -> None:
    """One request reaches the limit, which ends a block, while the others have room for whole trees."""
    limit, (draft, options) = 96, of_tree(tree)
    generator = load(draft, block_size=32, max_model_len=limit, max_num_seqs=4, **options)
    chosen = [(*prompt, *prompt)[: 80 - 12 * n] for n, prompt in enumerate(prompts[:4])]
    results = with_steps(generator.generate(greedy(chosen, limit)))
    for n, (prompt, result) in enumerate(zip(chosen, results, strict=True)):
        room = limit - len(prompt)
        require(len(result.token_ids) == room, f"{len(result.token_ids)} tokens, max_model_len leaves room for {room}")
        judge_one(n, f"a sequence of the maximum length, prompt {n}", chosen, results, tree)
        require_whole_trees(result, len(TREES[tree]), room, f"prompt {n}")


def require_whole_trees(result: GenerationResult, nodes: int, room: int, what: str) -> None:
    """Require that steps have all nodes of the tree where the tokens that are left have room for them.

    The first steps are left out, as in an engine whose requests start apart.
    """
    emitted = 0
    for place, step in enumerate(result.steps):
        if place >= ARRIVING and room - emitted > nodes:
            require(step.drafted == nodes, f"{what}: step {place} has {step.drafted} nodes, the tree {nodes}")
        emitted += step.accepted + 1


OF_TREES = 3 * SEQUENCES // 2
"""Sequences of a law: of `SEQUENCES`, one seed in four misses a random number that the drafts of a level share."""


@case("GEN-44", mode="law", tree=["forks", "wide"], limits=["none", "top_k"], reach=REACH, p_values=1, quick=False)
def test_sequences_follow_the_law(load: Load, tiny: dict[str, Path], seed: int, tree: str, limits: str) -> None:
    """Equal prompts, three tokens each, over 8 tokens: 512 sequences, each with its exact probability."""
    draft, options = of_tree(tree)
    asked = [
        GenerationRequest(
            PROMPT, max_tokens=3, ignore_eos=True, temperature=HEAT, top_k=5 if limits == "top_k" else 0, seed=seed + n
        )
        for n in range(OF_TREES)
    ]
    generator = load(draft, target=tiny["target"], drafter=tiny["draft"], max_num_seqs=MANY, **options)
    exact = sequence_law(tiny["target"], asked[0]).ravel()
    results = sampled_in_parts(generator, asked, lambda results, part: fits(sequence_counts(results), exact, part))
    sample = Sample(sequence_counts(results).tolist(), exact, lambda: mistaken_laws(tiny, TREES[tree], asked[0]))
    assert_law(sample, "sequences of three tokens", sequence_names())
    require_accepted_drafts(results)


def mistaken_laws(
    tiny: dict[str, Path], paths: Sequence[tuple[int, ...]], request: GenerationRequest
) -> dict[str, Any]:
    """Return the laws of three tokens that mistakes in the verification of trees give, by the mistake in words."""

    @cache
    def rows(tokens: tuple[int, ...]) -> Any:
        row = reference_model(tiny["target"]).logits(PROMPT, (*tokens, 0))[len(tokens)]
        return distribution(row, request)

    return mistaken_tree_laws(rows, tiny["draft"], PROMPT, paths)


UNLIKE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "temperature": ({"temperature": 0.4}, {"temperature": 2.0}),
    "top_k": ({"top_k": 2}, {}),
    "top_p": ({"top_p": 0.4}, {}),
    "min_p": ({"min_p": 0.5}, {}),
}
"""Fields of the requests of a batch, in turn."""


@case(
    "GEN-44", mode="law", tree=["forks"], limits=list(UNLIKE), batch="mixed", reach=REACH, p_values=2, quick=False
)  # fmt: skip
def test_each_request_has_its_own_law(load: Load, tiny: dict[str, Path], seed: int, tree: str, limits: str) -> None:
    """Neighbours have another temperature, or no limit."""
    draft, options = of_tree(tree)
    kinds = [
        GenerationRequest(PROMPT, max_tokens=3, ignore_eos=True, **{"temperature": HEAT, **own})
        for own in UNLIKE[limits]
    ]
    asked = [replace(kinds[n % 2], seed=seed + n) for n in range(SEQUENCES)]
    generator = load(draft, target=tiny["target"], drafter=tiny["draft"], max_num_seqs=MANY, **options)
    exact = [sequence_law(tiny["target"], kind).ravel() for kind in kinds]

    def fit(results: Sequence[GenerationResult], part: float) -> bool:
        return all(fits(sequence_counts(results[n::2]), law, part) for n, law in enumerate(exact))

    results = sampled_in_parts(generator, asked, fit)
    model = reference_model(tiny["target"])
    for n, (kind, law) in enumerate(zip(kinds, exact, strict=True)):
        counts = sequence_counts(results[n::2])
        what = f"sequences of every second request, from {n},"
        sample = Sample(counts.tolist(), law, lambda kind=kind: mistaken_sequences(model, kind))  # type: ignore[misc]
        assert_law(sample, what, sequence_names())
    require_accepted_drafts(results)


@case("GEN-44", tree=["forks"], batch="mixed", reach=REACH, quick=False)
def test_greedy_requests_among_sampled_ones(load: Load, prompts: Any, tree: str, length: int = 72) -> None:
    draft, options = of_tree(tree)
    chosen = [prompt[:16] for prompt in prompts[:4]]
    asked = greedy(chosen, length)
    for n in (0, 2):
        asked[n] = GenerationRequest(chosen[n], max_tokens=length, ignore_eos=True, temperature=0.8, seed=n)
    generator = load(draft, **options)
    results = generator.generate(asked)

    def judge(own: Sequence[GenerationResult]) -> None:
        for n, result in zip((1, 3), own, strict=True):
            reference_model(TARGET).judge_greedy(
                chosen[n], result.token_ids, f"prompt {n}, greedy beside sampled ones,"
            )

    try:
        judge(results[1::2])
    except Mismatch as mismatch:
        with suppress(Exception):  # the failure that is known tells more
            judge(generator.generate(asked[1::2]))
            message = f"{mismatch.failure.message}; without sampled requests beside them, the greedy ones are right"
            mismatch = Mismatch(replace(mismatch.failure, message=message))
        raise mismatch from None
    require_accepted_drafts(results)


@case("GEN-14", target="tiny", tree=["forks", "skipped ranks", "chain"], reach=REACH, quick=False)
def test_tree_drafts_are_the_most_likely_tokens(load: Load, tiny: dict[str, Path], tree: str) -> None:
    """The target drafts for itself: the path of ranks 0 is accepted whole, and no path of another rank.

    Rounding may change one step in ten.
    """
    draft, options = of_tree(tree)
    depth = max((len(path) for path in TREES[tree] if not any(path)), default=0)
    prompts = [(first, second, 1) for first in (1, 3, 6) for second in (2, 5)]
    generator = load(draft, target=tiny["target"], drafter=tiny["target"], **options)
    results = with_steps(generator.generate(greedy(prompts, LENGTH)))
    for prompt, result in zip(prompts, results, strict=True):
        require_whole_trees(result, len(TREES[tree]), LENGTH, f"prompt {prompt}")
    whole = [step.accepted for result in results for step in result.steps[:-1] if step.drafted == len(TREES[tree])]
    if len(whole) < 20:
        raise Inconclusive(f"only {len(whole)} steps verified a whole tree")
    right = whole.count(depth)
    require(right >= 0.9 * len(whole), f"{right} of {len(whole)} steps accept {depth} drafts, the path of ranks 0")


@case("GEN-14", target="tiny", tree=["wide", "forks", "skipped ranks"], check="ranks", reach=REACH, quick=False)
def test_each_rank_is_drafted(load: Load, tiny: dict[str, Path], tree: str) -> None:
    """A step accepts as long a path as the tree has of the ranks that the target's tokens have for the drafter.

    A path's tokens are the text's, so that the drafter's rows are those of the text. Whatever a node sees of other
    branches changes the ranks of its children.
    """
    draft, options = of_tree(tree)
    prompts = [(first, second, third) for first in (1, 3, 6) for second in (2, 5) for third in (1, 4)]
    generator = load(draft, target=tiny["target"], drafter=tiny["draft"], **options)
    asked = greedy(prompts, LENGTH)
    results = with_steps(generator.generate(asked))
    seen = judge_paths(TREES[tree], prompts, results, tiny["draft"], Again(generator, asked))
    wanted = {path for path in TREES[tree] if len(path) < 3 and max(path) < 3}
    missing = wanted - {path[:n] for path in seen for n in range(3)}
    if missing:
        raise Inconclusive(f"the target's tokens have no ranks {sorted(missing)} for the drafter")


TIMES = 8
"""Prompts behind which each path of a tree is accepted."""


@case("GEN-14", target="tiny", drafter="close", tree=list(STEERED), check="every path", reach=REACH, quick=False)
def test_every_path_is_drafted(load: Load, tiny: dict[str, Path], tree: str) -> None:
    """The first drafts behind `TIMES` prompts for each path of the tree, whose target's tokens are that path.

    The float64 models choose the prompts. So the drafts of each node are seen, also those at the end of the longest
    paths. A node that sees another one's ancestors may leave all shorter paths as they are.
    """
    paths = STEERED[tree]
    prompts = [prompt for own in steered_prompts(tiny["target"], tiny["close"], paths).values() for prompt in own]
    options: dict[str, Any] = {"speculative_token_tree": paths, "draft_sample_method": "greedy"}
    generator = load(f"draft_model k={len(paths)}", target=tiny["target"], drafter=tiny["close"], **options)
    asked = greedy(prompts, STEERED_LENGTH)
    results = with_steps(generator.generate(asked))
    seen = judge_paths(paths, prompts, results, tiny["close"], Again(generator, asked))
    missing = {path: TIMES - seen[path] for path in paths if seen[path] < TIMES / 2}
    if missing:
        raise Inconclusive(f"of {TIMES} prompts for each path the engine drafted elsewhere behind {missing}")


STEERED_LENGTH = 6
"""The first token, a path of three, and the token behind it; the last step has room for all levels."""


def steered_prompts(
    target: Path, drafter: Path, paths: tuple[tuple[int, ...], ...]
) -> dict[tuple[int, ...], list[tuple[int, ...]]]:
    """Return `TIMES` prompts for each path: the target's tokens after the first one have its ranks for the drafter."""
    drawn = np.random.default_rng(0).integers(1, VOCAB, (SEARCHED, 4)).tolist()
    prompts = list(dict.fromkeys(map(tuple, drawn)))
    texts = greedy_texts(target, prompts, STEERED_LENGTH)
    model = reference_model(drafter)
    model.announce(zip(prompts, texts, strict=True))
    found: dict[tuple[int, ...], list[tuple[int, ...]]] = {path: [] for path in paths}
    for prompt, text in zip(prompts, texts, strict=True):
        path = accepted_path(paths, model.logits(prompt, text)[1:], text[1:])
        if path in found and len(found[path]) < TIMES:
            found[path].append(prompt)
    return found


SEARCHED = 2000
"""Prompts among which eleven or more have each path of a tree."""


def judge_paths(
    paths: tuple[tuple[int, ...], ...],
    prompts: Sequence[tuple[int, ...]],
    results: Sequence[GenerationResult],
    drafter: Path,
    again: Again | None = None,
) -> Counter[tuple[int, ...]]:
    """Check that each step with all nodes accepts the path that the drafter's ranks of the text's tokens give.

    Returns:
        How often each path was accepted.

    Raises:
        Mismatch: a step accepted another number of drafts, with the paths for which steps do. The message has the
            mistake that explains them, or else what the wrong requests do alone, by `again`.
    """
    reference_model(drafter).announce(
        (prompt, result.token_ids) for prompt, result in zip(prompts, results, strict=True)
    )
    judged = [judged_trees(paths, prompt, result, drafter) for prompt, result in zip(prompts, results, strict=True)]
    steps = [step for own in judged for step in own]
    seen = Counter(step.path for step in steps)
    wrong = Counter(step.path for step in steps if step.is_wrong)
    if wrong:
        n, first = next((n, step) for n, own in enumerate(judged) for step in own if step.is_wrong)
        place = len(first.known) - len(prompts[n])
        told = ", ".join(f"{path} in {count} of {seen[path]} steps" for path, count in sorted(wrong.items()))
        message = (
            f"prompt {prompts[n]}, token {place}: {first.accepted} drafts accepted, expected {len(first.path)} for the "
            f"ranks {first.path}; children of the tree are not the most likely tokens after their own path: {told}"
        )
        details: dict[str, Any] = {}
        if mistake := mistake_of(drafter, paths, steps):
            message, details = f"{message}; all steps are as if {mistake}", {FAULT: mistake}
        elif again is not None:
            requests = [n for n, own in enumerate(judged) if any(step.is_wrong for step in own)]
            share = wrong.total() / sum(len(judged[n]) for n in requests)

            def count(request: int, result: GenerationResult) -> tuple[int, int]:
                own = judged_trees(paths, prompts[request], result, drafter)
                bad = sum(step.is_wrong for step in own)
                return bad, len(own) - bad

            message += again.told(requests, share, count)
        raise Mismatch(Failure(Kind.VALUE, message, details=details))
    return seen


def judged_trees(
    paths: tuple[tuple[int, ...], ...], prompt: tuple[int, ...], result: GenerationResult, drafter: Path
) -> list[JudgedTree]:
    """Return the steps of a text with whole trees whose path is known."""
    tokens, place = result.token_ids, 0
    rows, found = reference_model(drafter).logits(prompt, tokens), []
    for step in result.steps:
        path = accepted_path(paths, rows[place:], tokens[place:])
        if step.drafted == len(paths) and path is not None:
            found.append(JudgedTree((*prompt, *tokens[:place]), tokens[place:], step.accepted, path))
        place += step.accepted + 1
    return found


class JudgedTree(NamedTuple):
    """A step with a whole tree: the text before it and behind, the drafts accepted, and the ranks that should be."""

    known: tuple[int, ...]
    following: tuple[int, ...]
    accepted: int
    path: tuple[int, ...]

    @property
    def is_wrong(self) -> bool:
        """True if the step has accepted another number of drafts."""
        return self.accepted != len(self.path)


def mistake_of(drafter: Path, paths: Sequence[tuple[int, ...]], steps: Sequence[JudgedTree]) -> str:
    """Return the mistake of a drafter that explains all steps, but for one in twenty that rounding may change.

    Of the right steps, as many as are wrong are tried. Name none where fewer than five are wrong.
    """
    wrong = [step for step in steps if step.is_wrong]
    right = [step for step in steps if not step.is_wrong][: len(wrong)]
    if len(wrong) < 5:
        return ""
    for told, mistake in DRAFTER_MISTAKES.items():
        tried = [*wrong[:40], *right[:40]]
        unlike = (
            s.accepted != accepted_with(drafted_with(drafter, s.known, paths, mistake), s.following) for s in tried
        )
        if 20 * sum(unlike) <= len(tried):
            return f"for the drafter {told}"
    return ""


def accepted_path(paths: tuple[tuple[int, ...], ...], rows: Any, tokens: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the ranks of the drafts that a step accepts; None where rounding or the end of the text may decide.

    Args:
        paths: nodes of the tree.
        rows: [tokens, V] logits of the drafter for the places from the step on.
        tokens: tokens from the step on.
    """
    path: tuple[int, ...] = ()
    for row, token in zip(rows, tokens, strict=True):
        children = [node[-1] for node in paths if node[:-1] == path]
        if not children:
            return path
        falling = row.argsort()[::-1]
        if np.diff(row[falling[: max(children) + 2]]).max() > -CLOSE:
            return None
        rank = falling.tolist().index(token)
        if rank not in children:
            return path
        path += (rank,)
    return None


def probe(load: Load, prompts: Any) -> None:
    """Check that three drafts below the root are one level: a step accepts one at most, more often than a chain does.

    Raises:
        Mismatch: two of them were accepted together, or the second and third rank never.
    """
    accepted = {}
    for tree in ("chain", "wide"):
        draft, options = of_tree(tree)
        results = with_steps(load(draft, **options).generate(greedy(prompts[:4], LENGTH)))
        accepted[tree] = [step.accepted for result in results for step in result.steps if step.drafted == 3]
    if not accepted["wide"] or not accepted["chain"]:
        raise Inconclusive("no step verified three drafts")
    require(max(accepted["wide"]) <= 1, f"{max(accepted['wide'])} drafts of one level were accepted in a step")
    wide, chain = (np.mean([count > 0 for count in accepted[tree]]) for tree in ("wide", "chain"))
    require(wide > chain, f"a draft of three ranks is accepted in {wide:.2f} of the steps, of one rank in {chain:.2f}")
