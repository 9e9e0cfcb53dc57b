"""Streams of requests: they go on after a wrong greedy request, and see faults of several threads."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
import torch

from verispec.cases.row_sets import random_row_sets
from verispec.engines.protocol.sampling import SamplerBatch, Trace
from verispec.engines.registry import resolve
from verispec.judge import Mismatch, SamplerUnderTest, offered
from verispec.judge.statistics.trial import Trial
from verispec.suites.sampler._streams import Coupled, is_greedy, run_stream
from verispec.suites.sampler.test_whole_sampler import test_threads_change_no_coupled_token as case_of_threads

CAP = 1500


class GreedyIsLost:
    """The reference's sampler, whose greedy requests emit token 0."""

    def __init__(self) -> None:
        self._sampler = offered(resolve("reference").sampler())

    def __call__(self, batch: SamplerBatch) -> list[list[int]]:
        return self.trace(batch).tokens

    def trace(self, batch: SamplerBatch) -> Trace:
        trace = self._sampler.trace(batch)  # type: ignore[attr-defined]
        lost = [[0] if heat == 0 else row for row, heat in zip(trace.tokens, batch.temperature.tolist(), strict=True)]
        return Trace(lost, trace.draws)


class WrongWithThreeThreads:
    """The reference's sampler, whose last request loses its tokens to token 0 where three threads work."""

    def __init__(self) -> None:
        self._sampler = offered(resolve("reference").sampler())

    def __call__(self, batch: SamplerBatch) -> list[list[int]]:
        return self.trace(batch).tokens

    def trace(self, batch: SamplerBatch) -> Trace:
        trace = self._sampler.trace(batch)  # type: ignore[attr-defined]
        if torch.get_num_threads() == 3:
            trace.tokens[-1][-1] = 0
        return trace


def trial() -> Trial:
    return Trial("sampler/whole_sampler:WS-10:mode=law", 1, 1)


def test_evidence_is_collected_beside_a_wrong_greedy_request() -> None:
    rng, test = np.random.default_rng(1), trial()
    with pytest.raises(Mismatch, match="greedy request"):
        run_stream(SamplerUnderTest(GreedyIsLost()), random_row_sets(rng, 4, 2, 64), test, CAP, rng)
    assert test.record["count"] >= CAP
    assert test.record["log10_e"] < test.record["log10_limit"]
    assert test.record["apart"]["without"] == "greedy requests"


def test_coupling_goes_on_beside_a_wrong_greedy_request() -> None:
    rng, test = np.random.default_rng(1), trial()
    stream = Coupled(SamplerUnderTest(GreedyIsLost()), random_row_sets(rng, 4, 2, 64), test, rng)
    for _ in range(5):
        stream.step()
    assert stream.coupling.requests > 300
    with pytest.raises(Mismatch, match="greedy request"):
        stream.conclude()


@pytest.mark.parametrize(("threads", "wrong"), [(2, False), (3, True)])
def test_a_fault_of_three_threads_is_seen_by_their_case(threads: int, wrong: bool) -> None:
    sampler = SamplerUnderTest(WrongWithThreeThreads())
    with pytest.raises(Mismatch, match="its numbers give") if wrong else nullcontext():
        case_of_threads(sampler, trial(), "present", threads)


@pytest.mark.parametrize("vocab", [2, 65])
def test_no_top_k_is_larger_than_the_vocabulary(vocab: int) -> None:
    """Callers replace such a value by the size of the vocabulary, and vLLM's own limits raise on it."""
    chosen = [random_row_sets(np.random.default_rng(seed), 16, 2, vocab, limits="both").top_k for seed in range(4)]
    assert all(top_k is not None and top_k.min() >= 1 and top_k.max() <= vocab for top_k in chosen)


@pytest.mark.parametrize(
    ("tokens", "right"),
    [
        ([0], True),
        ([1, 1, 0], True),
        ([1, 1, 1], True),
        ([1], False),  # A draft that was emitted goes on.
        ([0, 1], False),  # Another token ends the step.
        ([1, 0], False),
        ([2], False),
        ([1, 1, 2], False),
        ([], False),
        ([1, 1, 0, 0], False),
    ],
)
def test_any_of_equal_tokens_is_greedy(tokens: list[int], right: bool) -> None:
    logits = torch.tensor([[5.0, 5.0, 0.0], [0.0, 1.0, 0.0], [2.0, 2.0, 0.0]])
    assert is_greedy(SamplerBatch(logits, [[1, 1]], torch.zeros(1)), 0, tokens) == right
