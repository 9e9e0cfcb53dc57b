"""Several ranks: tensor parallelism changes no text, and every rank has the same one (contract GEN)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from verispec import fixtures
from verispec.cases import case
from verispec.engines import UnsupportedCall
from verispec.engines.protocol.generation import GenerationRequest, GenerationResult
from verispec.judge import Failure, Inconclusive, Kind, Mismatch
from verispec.suites.e2e._reference_model import greedy_text, greedy_texts, reference_model
from verispec.suites.e2e._setups import METHODS, Load, greedy, require, require_accepted
from verispec.suites.e2e._tiny import UNEVEN, VOCAB, save_biased, save_twins, save_uneven
from verispec.suites.e2e.test_bad_configurations import REQUESTS, check_refused

TARGET = fixtures.model("target")
LENGTH = 24
RANKS = 2
LATER = 10
"""Batches after the first one, each of two tokens."""
REACH = "tensor_parallel_size=2"
ROUNDED = 3
"""Texts of four that float32 may change. Logits that move by r change a draw with a probability of at most r / T. For
these texts r is at most 1.5e-4 and each takes 192 draws: one in 30 changes, and all four in one run of a million."""


@case("GEN-40", draft=METHODS, sampling="greedy", reach=REACH)
def test_ranks_change_no_greedy_text(load: Load, prompts: Any, draft: str) -> None:
    """Rounding differs from that of one rank: every token is the target's, up to it."""
    generator = load(draft, tensor_parallel_size=RANKS)
    for n, result in enumerate(generator.generate(greedy(prompts[:4], LENGTH))):
        own = greedy_text(TARGET, tuple(prompts[n]), LENGTH)
        reference_model(TARGET).judge_equal(prompts[n], own, result.token_ids, f"prompt {n} on {RANKS} ranks")


@case("GEN-38", draft="none", ranks=RANKS, request_="prompt of unknown tokens", reach=REACH)
def test_a_request_that_all_ranks_refuse_ends_nothing(load: Load, prompts: Any) -> None:
    bad = REQUESTS["prompt of unknown tokens"]
    check_refused(load("none", tensor_parallel_size=RANKS), prompts, bad, "a prompt of unknown tokens")


@pytest.fixture(scope="session")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a target with a tie in every row of logits."""
    return save_twins(tmp_path_factory.mktemp("twins"))


@case("GEN-40", draft=METHODS[:2], sampling="greedy", ties="all", reach=f"{REACH}, and equal logits of a low-bit head")
def test_ranks_take_the_same_token_of_a_tie(load: Load, twins: Path, draft: str) -> None:
    """A rank that takes the other token of a tie has another text in its cache, which shows in the logits after it.

    Batches that follow are right, too.
    """
    generator = load(draft, target=twins, tensor_parallel_size=RANKS)
    asked = [[(n + i) * (i + 1) % VOCAB for i in range(8)] for n in range(4)]
    for n, result in enumerate(generator.generate(greedy(asked, LENGTH))):
        reference_model(twins).judge_greedy(asked[n], result.token_ids, f"prompt {n} on {RANKS} ranks")
    for n in range(LATER):
        [result] = generator.generate(greedy(asked[:1], 2))
        reference_model(twins).judge_greedy(asked[0], result.token_ids, f"batch {n} after the first on {RANKS} ranks")


@pytest.fixture(scope="session")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a target whose vocabulary three ranks do not divide."""
    return save_uneven(tmp_path_factory.mktemp("uneven"))


@case(
    "GEN-40",
    draft="none",
    sampling="greedy",
    ranks=3,
    check="a vocabulary that the ranks do not divide",
    reach="a vocabulary that tensor_parallel_size does not divide",
)
def test_ranks_may_have_parts_of_other_sizes(load: Load, uneven: Path) -> None:
    """Logits of a rank belong to the tokens of its own part: padding in the middle would move those after it."""
    asked = [tuple((7 * n + 31 * i) % UNEVEN for i in range(1, 9)) for n in range(4)]
    try:
        generator = load("none", target=uneven, tensor_parallel_size=3)
    except (Mismatch, UnsupportedCall):
        raise
    except Exception as error:  # Each engine refuses what it cannot split in its own way.
        raise UnsupportedCall(f"3 ranks of {UNEVEN} tokens: {' '.join(str(error).split())[:200]}") from error
    own = greedy_texts(uneven, asked, LENGTH)
    if not any(token >= UNEVEN * 2 // 3 for text in own for token in text):
        raise Inconclusive("no text has a token of the last part")
    for n, result in enumerate(generator.generate(greedy(asked, LENGTH))):
        reference_model(uneven).judge_greedy(asked[n], result.token_ids, f"prompt {n} on 3 ranks")


@pytest.fixture(scope="session")
def biased(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a target whose projections have biases."""
    return save_biased(tmp_path_factory.mktemp("biased"))


@case("GEN-40", draft="none", sampling="greedy", check="biases", reach=f"{REACH}, and a model with attention_bias")
def test_ranks_add_a_bias_once(load: Load, biased: Path) -> None:
    """A projection whose columns are divided among the ranks has one bias, which is no part of their sum."""
    asked = [[(n + i) * (i + 1) % VOCAB for i in range(8)] for n in range(4)]
    for n, result in enumerate(load("none", target=biased, tensor_parallel_size=RANKS).generate(greedy(asked, LENGTH))):
        own = greedy_text(biased, tuple(asked[n]), LENGTH)
        what = f"prompt {n} of a model whose projections have biases, on {RANKS} ranks"
        reference_model(biased).judge_equal(asked[n], own, result.token_ids, what)


@case("GEN-40", draft=METHODS, sampling="seeded", reach=REACH)
def test_ranks_change_no_seeded_text(load: Load, prompts: Any, draft: str) -> None:
    """In float64 no rounding of a sum reaches a threshold, so that texts and accepted drafts are equal.

    An engine without float64 may differ in `ROUNDED` of the four requests.
    """
    asked = [
        GenerationRequest(prompt, max_tokens=LENGTH, ignore_eos=True, temperature=0.9, seed=n, top_p=1 - 0.05 * n)
        for n, prompt in enumerate(prompts[:4])
    ]
    dtype, rounded = "float64", 0
    try:
        generator = load(draft, tensor_parallel_size=RANKS, dtype=dtype)
    except UnsupportedCall:
        dtype, rounded = "float32", ROUNDED
        generator = load(draft, tensor_parallel_size=RANKS, dtype=dtype)
    before = generator.metrics()
    several, again = generator.generate(asked), generator.generate(asked)
    drafts = generator.metrics().since(before)
    alone = load(draft, dtype=dtype)
    one = alone.generate(asked)
    for found, what in ((again, f"again on {RANKS} ranks"), (one, "on one rank")):
        differing = _differing(several, found)
        if len(differing) > rounded:
            if len(_differing(one, alone.generate(asked))) > rounded:
                raise Inconclusive("one rank alone does not repeat its text with the same seed (GEN-12)")
            n = differing[0]
            text, other = several[n].token_ids, found[n].token_ids
            raise Mismatch(
                Failure(Kind.RELATION, f"request {n}: {text} on {RANKS} ranks, {other} {what} with the same seed")
            )
    for n, (result, wanted) in enumerate(zip(several, one, strict=True)):
        counts = [[step.accepted for step in found.steps] for found in (result, wanted)]
        require(
            result.token_ids != wanted.token_ids or not all(counts) or counts[0] == counts[1],
            f"request {n}: accepted drafts per step {counts[0]} on {RANKS} ranks, {counts[1]} on one",
        )
    require_accepted(drafts)


def _differing(first: Sequence[GenerationResult], second: Sequence[GenerationResult]) -> list[int]:
    """Return the places of the requests whose texts differ."""
    return [n for n, (one, other) in enumerate(zip(first, second, strict=True)) if one.token_ids != other.token_ids]
