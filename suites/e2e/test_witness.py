"""Sampled generation from witness models, whose next-token distributions are chosen tables (contract GEN)."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from verispec.cases import case
from verispec.cases.request_parameters import possible
from verispec.engines.protocol.generation import GenerationRequest, GenerationResult, Generator
from verispec.fixtures.witness import WitnessTables, save_witness, witness_tables
from verispec.judge import Inconclusive
from verispec.judge.statistics.rows import Rows
from verispec.judge.statistics.text import GivenText, kinds_of
from verispec.judge.statistics.trial import Trial
from verispec.suites.e2e._setups import ARGMAX, Load, require

Array = np.ndarray[Any, Any]

VOCAB = 512
DRAFTS = ["ngram k=3", "draft_model k=1", "draft_model k=3", "draft_model k=8", ARGMAX, "eagle3 k=3"]
REQUESTS = 96
LENGTH = 24
TOKENS = 6000
OFFSET, FEW_TOKENS = 20_000.0, 2000
"""A summand of all logits of a drafter, and tokens that show it. Float32 moves a probability by 1e-3 of itself."""
SLACK = 2.0**-22 * (4 + 16)
"""Rounding of a logit of at most 16 and of its softmax in float32."""


@cache
def tables() -> WitnessTables:
    return witness_tables(VOCAB)


@pytest.fixture(scope="session")
def witness(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the folders of the witness target and its drafters."""
    return save_witness(tmp_path_factory.mktemp("witness"), tables())


@case("GEN-6", target="witness", draft=DRAFTS, sampler=["flat", "request_state"], reach="temperature above 0")
def test_every_decision_follows_the_tables(
    load: Load, witness: dict[str, Path], trial: Trial, draft: str, sampler: str
) -> None:
    """Requests share prompts, so that neighbours often stand in the same row: shared noise shows as equal tokens.

    6,000 tokens find draft and recovery that share their noise, noise that is reused from step to step or between
    requests, and recovery from the target.
    """
    drafter = witness.get({"draft_model": "draft", "eagle3": "eagle3"}.get(draft.split(maxsplit=1)[0], ""))
    generator = load(draft, target=witness["target"], drafter=drafter, sampler=sampler)
    p, q = distributions(tables().target), distributions(tables().draft)
    if draft == ARGMAX:
        q = np.eye(VOCAB)[q.argmax(axis=1)]
    model = GivenText(trial.weight, trial.seed, drafted=drafter is not None)
    collect(generator, model, Rows(p) if drafter is None else Rows(p, q), trial, TOKENS)


@case(
    "GEN-6",
    target="witness",
    draft="draft_model k=3",
    sampler=["flat", "request_state"],
    check="precision",
    reach="drafts that are sampled from large logits",
)
def test_drafts_of_large_logits_change_no_text(
    load: Load, tmp_path_factory: pytest.TempPathFactory, witness: dict[str, Path], trial: Trial, sampler: str
) -> None:
    """Texts follow the target, whichever precision the drafter's logits are kept in, if one serves both uses.

    A summand of a row changes no probability, unless its logits are cut: to 8 bits for bfloat16, to 11 for float16 or
    TF32. Drafts drawn from cut logits and verified by whole ones are often tokens that neither model likes.
    """
    folder = tmp_path_factory.mktemp("large logits")
    drafter = save_witness(folder, WitnessTables(tables().target, tables().draft + np.float32(OFFSET)))["draft"]
    generator = load("draft_model k=3", target=witness["target"], drafter=drafter, sampler=sampler)
    model = GivenText(trial.weight, trial.seed, drafted=False)
    collect(generator, model, Rows(distributions(tables().target)), trial, FEW_TOKENS)


def collect(generator: Generator, model: GivenText, rows: Rows, trial: Trial, tokens: int) -> None:
    """Collect the evidence of texts of at least `tokens` tokens."""
    rng = np.random.default_rng(trial.seed)

    def step() -> None:
        prompts = [tuple(rng.integers(1, VOCAB, 3).tolist()) for _ in range(4)]
        seeds = rng.integers(0, 2**31, REQUESTS).tolist()
        asked = [
            GenerationRequest(prompts[n // 2 % 4], max_tokens=LENGTH, ignore_eos=True, temperature=1.0, seed=seed)
            for n, seed in enumerate(seeds)
        ]
        results = generator.generate(asked)
        for n, (request, result) in enumerate(zip(asked, results, strict=True)):
            beside = results[n - 1] if n else None
            add_text(model, rows, request, result, beside, asked[n - 1] if n else None)

    trial.collect(model.evidence, trial.size(tokens), step)


MILD: dict[str, dict[str, Any]] = {"top-p": {"top_p": 0.99}, "min-p": {"min_p": 0.001}}
"""Limits near those that exclude nothing."""
EXCLUDED = 10.0
"""Expected number of tokens outside of a limit; none at all, which hides that it is ignored, has a chance of e^-10."""


@case(
    "GEN-23",
    target="witness",
    draft="none",
    parameter=list(MILD),
    sampler=["flat", "request_state"],
    check="mild",
    reach="a limit that excludes few tokens",
)
def test_mild_limits_exclude_tokens_too(
    load: Load, witness: dict[str, Path], seed: int, parameter: str, sampler: str
) -> None:
    """No request of the batch has a narrower limit, which would make an engine look at all of them."""
    rng = np.random.default_rng(seed)
    asked = [
        GenerationRequest(
            tuple(rng.integers(1, VOCAB, 3).tolist()),
            max_tokens=LENGTH,
            ignore_eos=True,
            temperature=1.0,
            seed=seed % 2**31 + n,
            **MILD[parameter],
        )
        for n in range(2 * REQUESTS)
    ]
    kept = np.stack([possible(row, asked[0], SLACK) for row in tables().target])
    outside = (distributions(tables().target) * ~kept).sum(axis=1)
    expected = 0.0
    results = load("none", target=witness["target"], sampler=sampler, max_num_seqs=len(asked)).generate(asked)
    for n, (request, result) in enumerate(zip(asked, results, strict=True)):
        states = tables().states([request.prompt_token_ids[-1], *result.token_ids[:-1]])
        expected += float(outside[states].sum())
        for place, (state, token) in enumerate(zip(states, result.token_ids, strict=True)):
            message = f"request {n} emitted {token} at position {place}, which {MILD[parameter]} excludes"
            require(bool(kept[state, token]), message)
    if expected < EXCLUDED:
        raise Inconclusive(f"{MILD[parameter]} would exclude {expected:.1f} tokens")


def distributions(table: Array) -> Array:
    """Return softmax of each row [S, V] in float64."""
    weights = np.exp(table.astype(np.float64) - table.max(axis=1, keepdims=True))
    result: Array = weights / weights.sum(axis=1, keepdims=True)
    return result


def add_text(
    model: GivenText,
    rows: Rows,
    request: GenerationRequest,
    result: GenerationResult,
    beside: GenerationResult | None,
    beside_request: GenerationRequest | None,
) -> None:
    """Judge one text; `beside` is that of the neighbour in the batch."""
    tokens = np.array(result.token_ids)
    states = tables().states([request.prompt_token_ids[-1], *tokens[:-1]])
    before = np.full(len(tokens), -1)
    before[1:] = np.where(states[1:] == states[:-1], tokens[:-1], -1)
    neighbour = None
    if beside is not None and beside_request is not None and len(beside.token_ids) == len(tokens):
        other = np.array(beside.token_ids)
        theirs = tables().states([beside_request.prompt_token_ids[-1], *other[:-1]])
        neighbour = np.where(theirs == states, other, -1)
    kinds, verified = kinds_of(result.steps, len(tokens)) if result.steps else (None, None)
    model.add(rows, states, tokens, kinds, verified, slack=SLACK, neighbour=neighbour, before=before)
