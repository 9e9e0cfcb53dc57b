"""Faults of synthetic mode that leave the acceptance rates as they are fail the case that couples tokens (WS-26)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from verispec.judge import Kind, Mismatch, SamplerUnderTest
from verispec.reference.sampler import flat, request_state, synthetic_rates
from verispec.reference.sampler.flat import FlatSampler
from verispec.reference.sampler.whole import WholeFlatSampler
from verispec.reference.sampler.whole_request_state import WholeRequestStateSampler
from verispec.suites.synthetic import test_whole_sampler as suite

Patch = pytest.MonkeyPatch
SAMPLERS: dict[str, type] = {"packed": WholeFlatSampler, "slots": WholeRequestStateSampler}


def run(family: str, batch: str, draft: str) -> None:
    suite.test_tokens_follow_from_rates_and_random_numbers(SamplerUnderTest(SAMPLERS[family]()), 5, batch, draft)


def argument_changed(module: Any, op: str, **values: Callable[[Any], Any]) -> Callable[[Patch], None]:
    """Return a patch that changes arguments of an op."""

    def patched(patch: Patch) -> None:
        original = module.ops.run

        def other(name: str, device: torch.device, **arguments: Any) -> None:
            if name == op:
                arguments |= {key: change(arguments[key]) for key, change in values.items()}
            original(name, device, **arguments)

        patch.setattr(module.ops, "run", other)

    return patched


def rates_unconditional(patch: Patch) -> None:
    patch.setattr(synthetic_rates, "unconditional_to_conditional_rates", list)


def unconditional_for_one(patch: Patch) -> None:
    """A request that is alone in its batch is verified by unconditional rates."""
    sample = FlatSampler.sample

    def other(self: Any, logits: torch.Tensor, drafts: Any, *given: Any) -> torch.Tensor:
        if self._synthetic_rates is not None and len(drafts.counts) == 1:
            self = FlatSampler(self._synthetic_rates.cumprod(0))
        return sample(self, logits, drafts, *given)

    patch.setattr(FlatSampler, "sample", other)


def greedy_tokens_of_the_next_row(patch: Patch) -> None:
    verify = FlatSampler._verify_greedy

    def other(self: Any, output: Any, drafts: Any, argmax: torch.Tensor, *rest: Any) -> None:
        verify(self, output, drafts, argmax.roll(-1), *rest)

    patch.setattr(FlatSampler, "_verify_greedy", other)


@pytest.mark.parametrize(
    ("fault", "family", "batch"),
    [
        (rates_unconditional, "packed", "all sampled"),
        (rates_unconditional, "slots", "mixed"),
        (unconditional_for_one, "packed", "all sampled"),
        (greedy_tokens_of_the_next_row, "packed", "all greedy"),
        (greedy_tokens_of_the_next_row, "packed", "mixed"),
        (argument_changed(request_state, "gumbel_sample", is_drafting=lambda _: True), "slots", "all sampled"),
        (argument_changed(request_state, "gumbel_sample", pos=torch.zeros_like), "slots", "all sampled"),
        (argument_changed(request_state, "synthetic_rejection", pos=torch.zeros_like), "slots", "mixed"),
        (argument_changed(flat, "rejection_random_sample", uniform_probs_ptr=lambda u: u.flip(0)), "packed", "mixed"),
        (argument_changed(flat, "sample_recovered_tokens", inv_q_ptr=lambda n: n.roll(1, 0)), "packed", "all sampled"),
    ],
)
def test_a_fault_is_caught_by_what_it_computes(
    fault: Callable[[Patch], None], family: str, batch: str, monkeypatch: Patch
) -> None:
    fault(monkeypatch)
    torch.manual_seed(5)
    with pytest.raises(Mismatch) as found:
        run(family, batch, "absent")
    assert found.value.failure.kind is Kind.VALUE


@pytest.mark.parametrize("draft", ["present", "absent"])
@pytest.mark.parametrize("batch", suite.BATCHES)
@pytest.mark.parametrize("family", list(SAMPLERS))
def test_the_reference_passes(family: str, batch: str, draft: str) -> None:
    torch.manual_seed(5)
    run(family, batch, draft)


def rates_changed(change: Callable[[float], float]) -> Callable[[Patch], None]:
    """Return a patch that changes each conditional rate."""

    def patched(patch: Patch) -> None:
        resolve = synthetic_rates.unconditional_to_conditional_rates
        patch.setattr(
            synthetic_rates,
            "unconditional_to_conditional_rates",
            lambda rates: [change(rate) for rate in resolve(rates)],
        )

    return patched


def certain(rate: int) -> Callable[[SamplerUnderTest], None]:
    return lambda sampler: suite.test_certain_rates_decide_every_draft(sampler, 5, rate)


def long_chains(sampler: SamplerUnderTest) -> None:
    suite.test_a_rate_of_one_keeps_long_chains(sampler, 5)


def unconverted_after_one(patch: Patch) -> None:
    """Take unconditional rates that begin with 1 for conditional ones."""
    resolve = synthetic_rates.unconditional_to_conditional_rates
    patch.setattr(
        synthetic_rates,
        "unconditional_to_conditional_rates",
        lambda rates: list(rates) if rates[0] == 1 else resolve(rates),
    )


def shapes(sampler: SamplerUnderTest) -> None:
    for rates in ("1 0.8 0.5 0.5 0.2", "0.9 0.4 0 0 0"):
        suite.test_tokens_follow_from_rates_of_other_shapes(sampler, 5, "mixed", rates)


def exact(sampler: SamplerUnderTest) -> None:
    suite.test_rates_are_as_exact_as_the_numbers(sampler, 5)


@pytest.mark.parametrize("family", list(SAMPLERS))
@pytest.mark.parametrize(
    ("fault", "run"),
    [
        (rates_changed(lambda rate: max(rate, 0.001)), certain(0)),
        (rates_changed(lambda rate: min(rate, 0.999)), certain(1)),
        (rates_changed(lambda rate: min(rate, 0.9999)), long_chains),
        (rates_changed(lambda rate: float(torch.tensor(rate).bfloat16())), exact),
        (unconverted_after_one, shapes),
    ],
)
def test_inexact_rates_are_caught(
    fault: Callable[[Patch], None], run: Callable[[SamplerUnderTest], None], family: str, monkeypatch: Patch
) -> None:
    torch.manual_seed(5)
    run(SamplerUnderTest(SAMPLERS[family]()))
    fault(monkeypatch)
    torch.manual_seed(5)
    with pytest.raises(Mismatch):
        run(SamplerUnderTest(SAMPLERS[family]()))


def rates_of_the_last_drafts(patch: Patch) -> None:
    """Take the last rates where no request of the step has as many drafts as there are rates."""
    original = flat.ops.run

    def other(name: str, device: torch.device, **arguments: Any) -> None:
        rates = arguments.get("synthetic_conditional_rates_ptr")
        if rates is not None:
            arguments["synthetic_conditional_rates_ptr"] = rates[-arguments["max_spec_len"] :]
        original(name, device, **arguments)

    patch.setattr(flat.ops, "run", other)


@pytest.mark.parametrize("batch", suite.BATCHES)
def test_rates_of_short_steps_are_those_of_the_first_drafts(batch: str, monkeypatch: Patch) -> None:
    rates_of_the_last_drafts(monkeypatch)
    torch.manual_seed(5)
    with pytest.raises(Mismatch, match=r"request 0 with drafts .* emitted"):
        suite.test_certain_rates_that_end(SamplerUnderTest(WholeFlatSampler()), 5, 2, batch)


def shared_by_two(values: torch.Tensor) -> torch.Tensor:
    """Return the numbers of three drafts per request, in which two neighbours have the same ones."""
    return values.view(-1, 2, 3)[:, :1].repeat(1, 2, 1).view(-1)


@pytest.mark.parametrize("batch", ["all greedy", "all sampled"])
def test_numbers_that_two_requests_share_are_caught(batch: str, monkeypatch: Patch) -> None:
    """The reference passes without the fault."""
    sampler = SamplerUnderTest(WholeFlatSampler())
    torch.manual_seed(5)
    suite.test_no_request_has_the_numbers_of_another(sampler, 5, batch)
    op = {"all greedy": "rejection_greedy_sample", "all sampled": "rejection_random_sample"}[batch]
    argument_changed(flat, op, uniform_probs_ptr=shared_by_two)(monkeypatch)
    with pytest.raises(Mismatch, match="1 places on"):
        suite.test_no_request_has_the_numbers_of_another(sampler, 5, batch)
