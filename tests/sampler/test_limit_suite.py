"""Faults at extreme parameters, of bad words of one token, and of drafting, are caught by the case that names them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from verispec.judge import Kind, Mismatch, SamplerUnderTest
from verispec.reference.sampler import flat, processors, request_state, whole
from verispec.reference.sampler.flat import FlatSampler
from verispec.reference.sampler.whole import WholeFlatSampler
from verispec.reference.sampler.whole_request_state import WholeRequestStateSampler
from verispec.suites.sampler import test_whole_sampler_limits as suite
from verispec.suites.sampler import test_whole_sampler_parameters as parameters

Patch = pytest.MonkeyPatch
Run = Callable[[SamplerUnderTest], None]


def least_probability_excluded(patch: Patch) -> None:
    """Exclude the tokens that min-p just keeps."""

    def mask(logits: torch.Tensor, min_p: torch.Tensor) -> None:
        floor = torch.log(min_p)[:, None] + logits.amax(dim=-1, keepdim=True)
        logits.masked_fill_(logits <= floor, float("-inf"))

    for module in (flat, request_state):
        patch.setattr(module, "mask_below_min_p", mask)


def survivors_cut(most: int) -> Callable[[Patch], None]:
    """Return a patch that keeps at most `most` tokens of a row with limits."""

    def cut(patch: Patch) -> None:
        apply = flat.apply_top_k_top_p

        def capped(logits: torch.Tensor, k: Any, p: Any, *, inplace: bool) -> torch.Tensor:
            few = torch.full((logits.shape[0],), most, dtype=torch.int32)
            return apply(logits, few if k is None else k.clamp(max=most), p, inplace=inplace)

        for module in (flat, request_state):
            patch.setattr(module, "apply_top_k_top_p", capped)

    return cut


def low_temperatures_greedy(patch: Patch) -> None:
    """Take temperatures below 0.1 for 0."""
    sample = FlatSampler.sample

    def greedy(self: Any, logits: Any, drafts: Any, params: Any, generators: Any) -> Any:
        cold = torch.where(params.temperature < 0.1, 0.0, params.temperature)
        return sample(self, logits, drafts, replace(params, temperature=cold), generators)

    patch.setattr(FlatSampler, "sample", greedy)


def words_changed(change: Callable[..., bool]) -> Callable[[Patch], None]:
    """Return a patch that ignores the bad words of a row for which `change(word, output)` is true."""

    def patched(patch: Patch) -> None:
        add = processors._Changes.add

        def other(self: Any, row: int, history: Any, output: list[int]) -> None:
            words = tuple(word for word in history.params.bad_words if not change(word, output))
            add(self, row, replace(history, params=replace(history.params, bad_words=words)), output)

        patch.setattr(processors._Changes, "add", other)

    return patched


def drafting(
    change: Callable[[torch.Tensor, list[float]], tuple[torch.Tensor, list[float]]],
) -> Callable[[Patch], None]:
    """Return a patch that samples drafts from changed rows, or at changed temperatures."""

    def patched(patch: Patch) -> None:
        sample = whole.sample_drafts

        def other(rows: torch.Tensor, temperatures: list[float], generators: Any) -> Any:
            return sample(*change(rows, temperatures), generators)

        patch.setattr(whole, "sample_drafts", other)

    return patched


def ties_kept(patch: Patch) -> None:
    """Keep all tokens that tie at a top-k."""

    def masked(logits: torch.Tensor, k: Any, p: Any, *, inplace: bool) -> torch.Tensor:
        least = logits.sort(dim=1, descending=True).values.gather(1, k.long()[:, None] - 1)
        return logits.masked_fill_(logits < least, float("-inf"))

    patch.setattr(flat, "apply_top_k_top_p", masked)


def numbers_bounded(patch: Patch) -> None:
    """Keep the numbers of acceptance between 0.02 and 0.98."""
    run = flat.ops.run

    def bounded(name: str, device: Any, **arguments: Any) -> None:
        if name == "rejection_random_sample":
            arguments["uniform_probs_ptr"].clamp_(0.02, 0.98)
        run(name, device, **arguments)

    patch.setattr(flat.ops, "run", bounded)


def generators_of_each_part(patch: Patch) -> None:
    """Fill the noise in parts of 2^15 numbers, and begin with the first generators in each part."""
    fill = flat.fill_with_noise

    def other(rows: torch.Tensor, generators: Any) -> torch.Tensor:
        size = max(2**15 // rows.shape[1], 1)
        for start in range(0, len(rows), size):
            fill(rows[start : start + size], generators[: len(rows[start : start + size])])
        return rows

    patch.setattr(flat, "fill_with_noise", other)


def generators_of_64(patch: Patch) -> None:
    """Let request 64 and those after it draw from the generators of the first ones."""
    sample = FlatSampler.sample

    def shared(self: Any, logits: Any, drafts: Any, params: Any, generators: Any) -> Any:
        return sample(self, logits, drafts, params, [generators[n % 64] for n in range(len(generators))])

    patch.setattr(FlatSampler, "sample", shared)


def limits_in_half_precision(patch: Patch) -> None:
    """Round top-p and min-p to 16 bits."""
    for module in (flat, request_state):
        limit, mask = module.apply_top_k_top_p, module.mask_below_min_p

        def limited(logits: torch.Tensor, k: Any, p: Any, *, inplace: bool, limit: Any = limit) -> torch.Tensor:
            limited: torch.Tensor = limit(logits, k, None if p is None else p.half().float(), inplace=inplace)
            return limited

        def masked(logits: torch.Tensor, min_p: torch.Tensor, *, mask: Any = mask) -> None:
            mask(logits, min_p.half().float())

        patch.setattr(module, "apply_top_k_top_p", limited)
        patch.setattr(module, "mask_below_min_p", masked)


def edge(limit: str, check: str) -> Run:
    test = suite.test_top_p_is_exact if limit.startswith("top_p") else suite.test_min_p_is_exact
    return lambda sampler: test(sampler, 5, limit, check)


EDGES = [edge(f"{name} {value}", check) for name in ("top_p", "min_p") for value in (0.3, 0.8) for check in suite.EDGE]


def bias_in_16_bits(patch: Patch) -> None:
    """Round each logit bias to bfloat16."""
    entries = processors._entries

    def rounded(changes: Any, logits: torch.Tensor) -> Any:
        at, numbers = entries(changes, logits)
        return at, [column.bfloat16().to(column.dtype) if len(numbers) == 1 else column for column in numbers]

    patch.setattr(processors, "_entries", rounded)


def whole_bias(sampler: SamplerUnderTest) -> None:
    parameters.test_log_probabilities_show_the_whole_bias(sampler, 5)


def rare(probability: float) -> Run:
    return lambda sampler: suite.test_random_numbers_reach_both_ends(sampler, 5, probability)


def ties(sampler: SamplerUnderTest) -> None:
    suite.test_a_top_k_of_ties_keeps_k_tokens(sampler, 5)


def many(check: str) -> Run:
    return lambda sampler: suite.test_requests_of_a_large_batch_do_not_see_the_others(sampler, 5, check)


def drafts(heat: str) -> Run:
    """Return a run of the case of WS-25 with a sampler for its engine's."""
    return lambda sampler: suite.test_drafts_come_from_their_own_rows(
        SimpleNamespace(sampler=lambda: sampler._sampler), 5, heat
    )


def wide(limit: str) -> Run:
    return lambda sampler: suite.test_wide_limits_keep_thousands_of_tokens(sampler, 5, limit)


def min_p_of_one(sampler: SamplerUnderTest) -> None:
    suite.test_a_min_p_of_one_is_greedy(sampler, 5, "mixed")


def low_temperature(sampler: SamplerUnderTest) -> None:
    suite.test_low_temperatures_still_sample(sampler, 5, "0.05", "tie")


def bad_words(sampler: SamplerUnderTest) -> None:
    parameters.check_greedy(sampler, np.random.default_rng(5), "bad words", "mixed", "absent")


@pytest.mark.parametrize(
    ("fault", "run"),
    [
        (least_probability_excluded, min_p_of_one),
        (survivors_cut(1024), wide("top_k")),
        (survivors_cut(64), wide("top_p")),
        (low_temperatures_greedy, low_temperature),
        (ties_kept, ties),
        (numbers_bounded, rare(0.01)),
        (numbers_bounded, rare(0.99)),
        (generators_of_64, many("many requests")),
        (generators_of_each_part, many("wide rows")),
        *((limits_in_half_precision, run) for run in EDGES),
        (bias_in_16_bits, whole_bias),
        (words_changed(lambda word, output: len(word) == 1), bad_words),
        (words_changed(lambda word, output: not output), bad_words),
        (drafting(lambda rows, temperatures: (rows.roll(1, 0), temperatures)), drafts("0.02")),
        (drafting(lambda rows, temperatures: (rows, [1.0 for _ in temperatures])), drafts("0.02")),
        (drafting(lambda rows, temperatures: (rows, [min(t, 0.02) for t in temperatures])), drafts("mixed")),
    ],
)
def test_a_fault_is_caught_by_what_it_computes(
    fault: Callable[[Patch], None], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    torch.manual_seed(5)
    with pytest.raises(Mismatch) as found:
        run(SamplerUnderTest(WholeFlatSampler()))
    assert found.value.failure.kind is Kind.VALUE


@pytest.mark.parametrize("sampler", [WholeFlatSampler, WholeRequestStateSampler])
@pytest.mark.parametrize(
    "run",
    [
        wide("top_k"),
        wide("top_p"),
        wide("min_p"),
        min_p_of_one,
        low_temperature,
        bad_words,
        ties,
        rare(0.01),
        rare(0.99),
        many("many requests"),
        many("wide rows"),
        *EDGES,
        whole_bias,
    ],
)
def test_the_reference_passes(run: Run, sampler: Any) -> None:
    torch.manual_seed(5)
    run(SamplerUnderTest(sampler()))


@pytest.mark.parametrize("heat", ["0.02", "mixed"])
def test_the_reference_drafts_from_each_row(heat: str) -> None:
    drafts(heat)(SamplerUnderTest(WholeFlatSampler()))


def test_drafts_that_are_too_likely_have_other_odds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows scaled by 1.1 before drafting, as noise with an exponent of 0.9 has it; the reference passes."""
    engine: Any = SimpleNamespace(sampler=WholeFlatSampler)
    suite.test_drafts_have_the_odds_of_their_row(engine, 5)
    drafting(lambda rows, temperatures: (1.1 * rows, temperatures))(monkeypatch)
    with pytest.raises(Mismatch, match="drafts of one row"):
        suite.test_drafts_have_the_odds_of_their_row(engine, 5)
