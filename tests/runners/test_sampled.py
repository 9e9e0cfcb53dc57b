"""Sampled generation: distributions by enumeration, and independence from the rest of the batch."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import torch
from scipy.stats import chi2

from verispec.engines.protocol.generation import SAMPLERS, GenerationRequest

if TYPE_CHECKING:
    from conftest import Models

METHODS = ("none", "ngram", "draft_model", "eagle3")
ALLOWED = (5, 9, 33, 12)
SAMPLES = 4000
FALSE_ALARM = 1e-6


def sequence_law(
    models: Models, prompt: tuple[int, ...], length: int, temperature: float
) -> dict[tuple[int, ...], float]:
    """Probability of every continuation over ALLOWED, by the target in float64."""
    law: dict[tuple[int, ...], float] = {(): 1.0}
    model = models.reference.double()
    for _ in range(length):
        longer: dict[tuple[int, ...], float] = {}
        for tokens, mass in law.items():
            with torch.no_grad():
                logits = model(torch.tensor([[*prompt, *tokens]])).logits[0, -1, list(ALLOWED)]
            for token, p in zip(ALLOWED, torch.softmax(logits / temperature, dim=-1).tolist(), strict=True):
                longer[(*tokens, token)] = mass * p
        law = longer
    model.float()
    return law


@pytest.mark.slow  # GEN-5 and GEN-7 check the same laws of the same runners in every run
@pytest.mark.parametrize(
    ("method", "draft_sample_method", "sampler"),
    [
        *((method, drawn, "flat") for method in METHODS for drawn in ("probabilistic", "greedy")),
        ("draft_model", "probabilistic", "request_state"),
        ("eagle3", "greedy", "request_state"),
    ],
)
def test_law_of_whole_sequences(method: str, draft_sample_method: str, sampler: str, models: Models) -> None:
    """Chi-square of 64 sequences of three tokens; cells below five expected are pooled."""
    prompt, temperature = ALLOWED * 3, 4.0
    runner = models.runner(
        method,
        draft_sample_method=draft_sample_method,
        sampler=sampler,
        max_num_seqs=100,
        max_num_batched_tokens=4096,
    )
    results = runner.generate(
        [
            GenerationRequest(
                prompt, max_tokens=3, temperature=temperature, allowed_token_ids=ALLOWED, ignore_eos=True, seed=seed
            )
            for seed in range(SAMPLES)
        ]
    )
    seen = Counter(result.token_ids for result in results)
    law = sequence_law(models, prompt, 3, temperature)
    assert set(seen) <= set(law)
    cells = [(seen[tokens], SAMPLES * p) for tokens, p in law.items() if SAMPLES * p >= 5]
    rest = sum(p for p in law.values() if SAMPLES * p < 5) * SAMPLES
    if rest >= 5:
        cells.append((SAMPLES - sum(count for count, _ in cells), rest))
    statistic = sum((count - mean) ** 2 / mean for count, mean in cells)
    assert len(cells) > 10
    assert chi2.sf(statistic, len(cells) - 1) > FALSE_ALARM / 10, "the level of each of ten laws"
    assert (runner.metrics().num_drafts > 0) == (method != "none")


@pytest.mark.parametrize("method", METHODS)
def test_a_request_does_not_depend_on_its_neighbours(
    method: str, models: Models, prompts: list[tuple[int, ...]]
) -> None:
    """Alone, in a mixed batch, and in another order: the same tokens, greedy requests included."""
    requests = [
        GenerationRequest(p, max_tokens=16, ignore_eos=True, seed=index, **parameters)
        for index, (p, parameters) in enumerate(
            zip(
                prompts,
                [
                    {},
                    {"temperature": 0.7},
                    {"temperature": 1.5, "top_k": 7},
                    {"temperature": 1.0, "top_p": 0.8, "min_p": 0.01},
                    {"repetition_penalty": 1.3, "presence_penalty": 0.5},
                    {"temperature": 0.9, "frequency_penalty": 0.4},
                ],
                strict=True,
            )
        )
    ]
    together = models.runner(method).generate(requests)
    turned = models.runner(method).generate(requests[::-1])[::-1]
    alone = [models.runner(method).generate([request])[0] for request in requests]
    assert [r.token_ids for r in together] == [r.token_ids for r in alone] == [r.token_ids for r in turned]
    assert [r.steps for r in together] == [r.steps for r in alone] == [r.steps for r in turned]


def test_seeds(models: Models, prompts: list[tuple[int, ...]]) -> None:
    """A seed decides the tokens; requests without one differ from each other and repeat with the engine's."""

    def generate(seed: int | None, engine_seed: int = 0) -> list[tuple[int, ...]]:
        request = GenerationRequest(prompts[0], max_tokens=12, temperature=2.0, seed=seed, ignore_eos=True)
        return [r.token_ids for r in models.runner("draft_model", seed=engine_seed).generate([request, request])]

    first, second = generate(11)
    assert first == second
    assert generate(11) == [first, second]
    assert generate(12)[0] != first
    free = generate(None)
    assert free[0] != free[1]
    assert generate(None) == free
    assert generate(None, engine_seed=1) != free


@pytest.mark.parametrize("filtered", [{"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1.0}], ids=str)
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_filter_that_leaves_one_token(
    sampler: str,
    filtered: dict[str, Any],
    models: Models,
    prompts: list[tuple[int, ...]],
    expected: list[tuple[int, ...]],
) -> None:
    """Every second request is filtered down to the greedy token, at a temperature that leaves the others none of it."""
    asked = [
        GenerationRequest(p, max_tokens=24, temperature=5.0, ignore_eos=True, seed=n, **(filtered if n % 2 else {}))
        for n, p in enumerate(prompts)
    ]
    results = models.runner("draft_model", sampler=sampler).generate(asked)
    for n, (result, greedy) in enumerate(zip(results, expected, strict=True)):
        assert (result.token_ids == greedy) == bool(n % 2)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_top_k_past_32_bits_keeps_all(sampler: str, models: Models, prompts: list[tuple[int, ...]]) -> None:
    """As one of the vocabulary's size does, beside a request with a small one."""

    def generate(top_k: int) -> list[tuple[int, ...]]:
        limits = (top_k, 3)
        asked = [GenerationRequest(prompts[n], max_tokens=12, temperature=2.0, top_k=limits[n], seed=n) for n in (0, 1)]
        return [r.token_ids for r in models.runner("draft_model", sampler=sampler).generate(asked)]

    assert generate(2**40) == generate(2**31) == generate(models.reference.config.vocab_size)


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("mode", ["raw", "processed"])
@pytest.mark.parametrize("temperature", [0.0, 1.7])
def test_logprobs_of_every_emitted_token(
    mode: str, temperature: float, sampler: str, models: Models, prompts: list[tuple[int, ...]]
) -> None:
    """One row per token of any kind, equal to a forward pass of the target over the same text."""
    parameters: dict[str, Any] = {"temperature": temperature, "logit_bias": {7: 1.5}, "logprobs": 3, "seed": 5}
    runner = models.runner("draft_model", logprobs_mode=mode, sampler=sampler)
    results = runner.generate([GenerationRequest(p, max_tokens=20, ignore_eos=True, **parameters) for p in prompts])
    assert 0 < runner.metrics().num_accepted_tokens < runner.metrics().num_draft_tokens
    for prompt, result in zip(prompts, results, strict=True):
        with torch.no_grad():
            logits = models.reference(torch.tensor([prompt + result.token_ids])).logits[0, len(prompt) - 1 : -1]
        if mode == "processed":
            logits[:, 7] += 1.5
            logits /= temperature or 1.0
        wanted = torch.log_softmax(logits, dim=-1)
        assert len(result.logprobs) == len(result.token_ids)
        for row, token, given in zip(wanted, result.token_ids, result.logprobs, strict=True):
            # float32 on both sides, other shapes of matrix products: a few roundings of logits below 100.
            assert given.sampled == pytest.approx(float(row[token]), abs=1e-3)
            assert [token for token, _ in given.top] == row.topk(3).indices.tolist()
