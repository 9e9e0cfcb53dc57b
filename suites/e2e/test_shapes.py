"""Greedy texts of targets whose layers have another shape than the fixtures' (contract GEN)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from random import Random

import pytest

from verispec.cases import case
from verispec.engines.protocol.generation import GenerationResult
from verispec.judge import Mismatch
from verispec.suites.e2e._again import Again
from verispec.suites.e2e._explained_texts import explained_texts
from verispec.suites.e2e._reference_model import ReferenceModel, reference_model
from verispec.suites.e2e._setups import Load, greedy
from verispec.suites.e2e._shapes import SHAPES, VOCAB, save_mistake, save_shape
from verispec.suites.e2e._texts import check_texts

LENGTH = 24
SIZES = (1, 7, 18, 33, 64, 100)
MANY, WORDS = 72, 6
"""Requests of a step, and tokens of each text."""
MANY_SIZES = tuple(20 + 5 * n % 17 for n in range(MANY))
"""Lengths of their prompts, which the default of 2,048 tokens per step has room for."""


def prompts_of(sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """Return prompts of random tokens, one of each size."""
    numbers = Random(5)
    return [tuple(numbers.randrange(1, VOCAB) for _ in range(size)) for size in sizes]


@case(
    "GEN-1",
    target=list(SHAPES),
    draft=["none", "draft_model k=3"],
    reach="a model with norms or biases, groups or other sizes of heads, scaled rotations, steep scores or wide rows",
)
def test_layers_may_have_any_shape(
    load: Load, tmp_path_factory: pytest.TempPathFactory, target: str, draft: str
) -> None:
    """Prompts of `SIZES` tokens together; as its own draft model the target also verifies several rows per request."""
    folder = tmp_path_factory.mktemp("shape")
    model = save_shape(target, folder / "target")
    prompts = prompts_of(SIZES)
    generator = load(draft, target=model, drafter=None if draft == "none" else model)
    asked, right = greedy(prompts, LENGTH), reference_model(model)
    results = generator.generate(asked)

    def check(n: int, result: GenerationResult) -> None:
        right.judge_greedy(prompts[n], result.token_ids, f"a prompt of {SIZES[n]} tokens")

    def mistaken(mistake: str) -> list[ReferenceModel]:
        return [reference_model(save_mistake(target, mistake, model, folder / mistake))]

    try:
        check_texts(asked, results, check, again=Again(generator, asked))
    except Mismatch as mismatch:
        mistakes = {told: partial(mistaken, told) for told in SHAPES[target].mistakes}
        texts = list(zip(prompts, (result.token_ids for result in results), strict=True))
        raise explained_texts(mismatch, right, mistakes, texts) from None


@case("GEN-1", draft=["none", "draft_model k=3"], requests=[MANY], reach="more than 64 requests in a step")
def test_many_requests_share_a_step(
    load: Load, tmp_path_factory: pytest.TempPathFactory, draft: str, requests: int
) -> None:
    """Prompts of all requests fit one step, and their rows and keys are work enough for several threads."""
    model = save_shape("groups of three heads", tmp_path_factory.mktemp("many") / "target")
    prompts = prompts_of(MANY_SIZES)
    generator = load(draft, target=model, drafter=None if draft == "none" else model, max_num_seqs=requests)
    asked, right = greedy(prompts, WORDS), reference_model(model)

    def check(n: int, result: GenerationResult) -> None:
        right.judge_greedy(prompts[n], result.token_ids, f"request {n} of {requests}")

    check_texts(asked, generator.generate(asked), check, again=Again(generator, asked))
