"""Faults in tails, low temperatures, large seeds and neutral limits fail the case that names them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from verispec.judge import Mismatch, SamplerUnderTest
from verispec.reference.sampler import flat, logprobs, whole
from verispec.reference.sampler.flat import FlatSampler
from verispec.reference.sampler.whole import WholeFlatSampler
from verispec.reference.sampler.whole_request_state import WholeRequestStateSampler
from verispec.suites.sampler import test_whole_sampler as general
from verispec.suites.sampler import test_whole_sampler_limits as limits
from verispec.suites.sampler import test_whole_sampler_parameters as parameters

Patch = pytest.MonkeyPatch
Run = Callable[[SamplerUnderTest], None]


def tails_cut(least: float) -> Callable[[Patch], None]:
    """Return a patch that sets probabilities below `least` to 0."""

    def patched(patch: Patch) -> None:
        softmax = torch.softmax

        def cut(logits: torch.Tensor, dim: int) -> torch.Tensor:
            probs = softmax(logits, dim=dim)
            return probs.masked_fill(probs < least, 0.0)

        patch.setattr(flat.torch, "softmax", cut)

    return patched


def temperatures_clamped(patch: Patch) -> None:
    """Raise temperatures below 0.03 to it."""
    sample = FlatSampler.sample

    def warm(self: Any, logits: Any, drafts: Any, params: Any, generators: Any) -> Any:
        return sample(self, logits, drafts, replace(params, temperature=params.temperature.clamp(min=0.03)), generators)

    patch.setattr(FlatSampler, "sample", warm)


def seeds_cut(patch: Patch) -> None:
    generator = whole._generator
    patch.setattr(whole, "_generator", lambda seed, device: generator(seed % 2**16, device))


def top_k_needs_no_top_p(patch: Patch) -> None:
    apply = flat.apply_top_k_top_p

    def other(logits: torch.Tensor, k: Any, p: Any, *, inplace: bool) -> torch.Tensor:
        return apply(logits, None if p is not None and bool((p >= 1).all()) else k, p, inplace=inplace)

    patch.setattr(flat, "apply_top_k_top_p", other)


def few_log_probabilities(patch: Patch) -> None:
    rows = logprobs.row_logprobs
    patch.setattr(logprobs, "row_logprobs", lambda logits, ids, top: rows(logits, ids, min(top, 8)))


def rare_drafts(sampler: SamplerUnderTest) -> None:
    limits.test_rare_tokens_are_accepted_and_recovered(sampler, 5, limits.RARE)


def tail(sampler: SamplerUnderTest) -> None:
    limits.test_a_tail_of_rare_tokens_is_kept(sampler, 5)


def odds(sampler: SamplerUnderTest) -> None:
    limits.test_extreme_temperatures_keep_their_odds(sampler, 5, "0.02")


def seeds(sampler: SamplerUnderTest) -> None:
    general.test_different_seeds_give_different_tokens(sampler, "high bits differ")


def neutral_top_p(sampler: SamplerUnderTest) -> None:
    general.test_excluded_tokens_are_never_emitted(sampler, 5, "top_k beside top_p=1", "absent")


def log_probabilities(sampler: SamplerUnderTest) -> None:
    parameters.test_log_probabilities_are_those_of_the_row(sampler, 5, "raw", "all greedy", "absent")


@pytest.mark.parametrize(
    ("fault", "run"),
    [
        (tails_cut(1e-7), rare_drafts),
        (tails_cut(1e-6), tail),
        (temperatures_clamped, odds),
        (seeds_cut, seeds),
        (top_k_needs_no_top_p, neutral_top_p),
        (few_log_probabilities, log_probabilities),
    ],
)
def test_a_fault_is_caught_by_what_it_computes(fault: Callable[[Patch], None], run: Run, monkeypatch: Patch) -> None:
    fault(monkeypatch)
    torch.manual_seed(5)
    with pytest.raises(Mismatch):
        run(SamplerUnderTest(WholeFlatSampler()))


@pytest.mark.parametrize("sampler", [WholeFlatSampler, WholeRequestStateSampler])
@pytest.mark.parametrize("run", [rare_drafts, odds, seeds, neutral_top_p, log_probabilities])
def test_the_reference_passes(run: Run, sampler: Any) -> None:
    torch.manual_seed(5)
    run(SamplerUnderTest(sampler()))
