"""Sampled generation: every token follows the target's law, exactly stated (contract GEN)."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from verispec import fixtures
from verispec.cases import case
from verispec.engines.generation import GenerationRequest
from verispec.judge import Failure, Inconclusive, Kind, Mismatch
from verispec.judge.laws import ALPHA, follows
from verispec.suites.e2e._teacher import law, single_thread, teacher
from verispec.suites.e2e.conftest import Load

REACH = "temperature above 0"
METHODS = ["none", "ngram", "draft_model", "eagle3"]
LIMITS: dict[str, dict[str, Any]] = {
    "none": {"temperature": 1.0},
    "temperature": {"temperature": 0.6},
    "top_k": {"temperature": 1.0, "top_k": 20},
    "top_p": {"temperature": 1.0, "top_p": 0.8},
}
LENGTH = 32
BINS = 16


@case("GEN-5", method=METHODS, limits=list(LIMITS), reach=REACH)
def test_every_token_follows_the_targets_law(load: Load, prompts: Any, seed: int, method: str, limits: str) -> None:
    """Randomized probability integral transform: the place of each token in its own law is uniform and independent.

    With 48 sequences of 32 tokens a temperature of 1 taken as 0.9, or draft probabilities that are
    left out, moves the bins far beyond the level.
    """
    asked = [
        GenerationRequest(tuple(p), max_tokens=LENGTH, ignore_eos=True, seed=seed % 2**31 + n, **LIMITS[limits])
        for n, p in enumerate(prompts[:48])
    ]
    results = load(method).generate(asked)
    judge, rng = teacher(fixtures.model("target")), np.random.default_rng(seed)
    places, pairs = [], []
    for request, result in zip(asked, results, strict=True):
        u = place_in_law(judge.laws(request, result.token_ids), result.token_ids, rng)
        places += u
        pairs += list(itertools.pairwise(u))
    follows(np.histogram(places, BINS, (0, 1))[0].tolist(), np.full(BINS, 1 / BINS), "places of tokens in their laws")
    table = np.histogram2d(*np.array(pairs).T, bins=4, range=[[0, 1], [0, 1]])[0]
    follows(table.ravel().tolist(), np.full(16, 1 / 16), "places of neighbouring tokens")


def place_in_law(laws: Any, tokens: Any, rng: np.random.Generator) -> list[float]:
    """F(t-) + v (F(t) - F(t-)) for each token, with tokens in the order of falling probability.

    A token that top-p keeps in float32 and drops in float64 stands at the very end: its place is 1.
    """
    places = []
    for row, token in zip(laws, tokens, strict=True):
        before = row[(row > row[token]) | ((row == row[token]) & (np.arange(len(row)) < token))].sum()
        places.append(float(min(before + rng.random() * row[token], 1 - 1e-12)))
    return places


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A random target and a random draft model over eight tokens: every sequence of three can be enumerated."""
    from transformers import LlamaConfig, LlamaForCausalLM

    folders = []
    for name, key in (("target", 11), ("draft", 12)):
        torch.manual_seed(key)
        config = LlamaConfig(
            vocab_size=8, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=2, head_dim=32, max_position_embeddings=64, tie_word_embeddings=False,
            initializer_range=0.35, bos_token_id=None, eos_token_id=None,
        )  # fmt: skip
        folders.append(tmp_path_factory.mktemp("tiny") / name)
        LlamaForCausalLM(config).save_pretrained(folders[-1])
    return folders[0], folders[1]


SEQUENCES = 4000
PROMPT = (1, 5, 2)


@case("GEN-6", method=["none", "ngram", "draft_model"], limits=["none", "top_k"], reach=REACH)
def test_whole_sequences_follow_the_law(
    load: Load, tiny: tuple[Path, Path], seed: int, method: str, limits: str
) -> None:
    """4,000 equal prompts, three tokens each, over 8 tokens: 512 sequences, each with its exact probability."""
    options: dict[str, Any] = {"target": tiny[0], "max_num_seqs": 64}
    if method == "draft_model":
        options["draft"] = tiny[1]
    sampling: dict[str, Any] = {"temperature": 0.8, "top_k": 5 if limits == "top_k" else 0}
    asked = [
        GenerationRequest(PROMPT, max_tokens=3, ignore_eos=True, seed=seed % 2**31 + n, **sampling)
        for n in range(SEQUENCES)
    ]
    results = load(method, **options).generate(asked)
    counts = np.zeros((8, 8, 8))
    for result in results:
        counts[tuple(result.token_ids)] += 1
    follows(counts.ravel().tolist(), sequence_law(tiny[0], asked[0]).ravel(), "sequences of three tokens")


def sequence_law(target: Path, request: GenerationRequest) -> Any:
    """[8, 8, 8]: the exact probability of every continuation of three tokens."""
    model = teacher(target).exact
    pairs = list(itertools.product(range(8), repeat=2))
    with single_thread():
        rows = model(torch.tensor([[*PROMPT, *pair] for pair in pairs])).logits.double().numpy()
    exact = np.zeros((8, 8, 8))
    for (a, b), logits in zip(pairs, rows, strict=True):
        first, second, third = (law(logits[len(PROMPT) - 1 + i], request) for i in range(3))
        exact[a, b] = first[a] * second[b] * third
    return exact


@case("GEN-7", k=[1, 3], limits=["none", "temperature"], reach=REACH)
def test_first_drafts_are_accepted_at_the_overlap(load: Load, prompts: Any, seed: int, k: int, limits: str) -> None:
    """Steps know their place in the output, so the overlap there is exact; Azuma-Hoeffding bounds the sum."""
    asked = [
        GenerationRequest(tuple(p), max_tokens=LENGTH, ignore_eos=True, seed=seed % 2**31 + n, **LIMITS[limits])
        for n, p in enumerate(prompts)
    ]
    results = load("draft_model", num_speculative_tokens=k).generate(asked)
    target, draft = teacher(fixtures.model("target")), teacher(fixtures.model("draft"))
    observed, expected, steps = 0, 0.0, 0
    for request, result in zip(asked, results, strict=True):
        if not result.steps:
            raise Inconclusive("the engine does not tell what it accepted in each step")
        p, q = target.laws(request, result.token_ids), draft.laws(request, result.token_ids)
        place = 0
        for step in result.steps:
            if step.drafted and place < len(p):
                observed += step.accepted > 0
                expected += float(np.minimum(p[place], q[place]).sum())
                steps += 1
            place += step.accepted + 1
    bound = float(np.sqrt(steps / 2 * np.log(2 / ALPHA)))
    if not steps:
        raise Mismatch(Failure(Kind.LAW, "no step had a draft"))
    if abs(observed - expected) > bound:
        message = f"{observed} of {steps} first drafts accepted, expected {expected:.1f}, and at most {bound:.1f} off"
        raise Mismatch(Failure(Kind.LAW, message, total=steps, details={"alpha": ALPHA}))


@case("GEN-12", method=METHODS, reach="a request with a seed")
def test_a_seed_gives_the_same_tokens_in_any_batch(load: Load, prompts: Any, method: str) -> None:
    generator = load(method)

    def ask(n: int) -> GenerationRequest:
        return GenerationRequest(prompts[n], max_tokens=24, temperature=0.9, ignore_eos=True, seed=77 + n)

    together = generator.generate([ask(n) for n in (3, 0, 5, 1)])
    for n, result in zip((3, 0, 5, 1), together, strict=True):
        alone = generator.generate([ask(n)])[0]
        if alone.token_ids != result.token_ids:
            details = {"alone": list(alone.token_ids), "together": list(result.token_ids)}
            raise Mismatch(Failure(Kind.RELATION, f"prompt {n} alone and in a batch differ", details=details))
