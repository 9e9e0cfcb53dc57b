"""Faults of seeds, of drafts' distributions and of extreme values are caught by the case that names them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from verispec.judge import Mismatch, SamplerUnderTest
from verispec.reference.sampler import drafting, flat, processors, request_state, whole
from verispec.reference.sampler.whole import WholeFlatSampler
from verispec.reference.sampler.whole_request_state import WholeRequestStateSampler
from verispec.run.record import FAULT, LOCATED
from verispec.suites.sampler import test_whole_sampler as batches
from verispec.suites.sampler import test_whole_sampler_chains as chains
from verispec.suites.sampler import test_whole_sampler_limits as limits
from verispec.suites.sampler import test_whole_sampler_parameters as parameters
from verispec.suites.sampler import test_whole_sampler_seeds as seeds
from verispec.suites.sampler._end_ids import MASSES, Array, check_ends, mistaken_ends

Patch = pytest.MonkeyPatch
ENGINE: Any = SimpleNamespace(sampler=WholeFlatSampler)


def seeds_of_31_bits(patch: Patch) -> None:
    given = WholeRequestStateSampler._seeds
    patch.setattr(WholeRequestStateSampler, "_seeds", staticmethod(lambda batch: [s % 2**31 for s in given(batch)]))


def unseeded_of_12_bits(patch: Patch) -> None:
    generator = whole._generator
    patch.setattr(
        whole, "_generator", lambda s, device: generator(int(torch.randint(2**12, ())) if s is None else s, device)
    )


def the_same_numbers_in_every_step(patch: Patch) -> None:
    generator = whole._generator
    patch.setattr(whole, "_generator", lambda s, device: generator(7 if s is None else s, device))


def noise_of_256_rows(patch: Patch) -> None:
    """The noise of the last token has 256 rows; further requests begin again."""
    fill = flat.fill_with_noise

    def again(rows: torch.Tensor, generators: Sequence[torch.Generator | None]) -> torch.Tensor:
        fill(rows, generators)
        return rows.copy_(rows[torch.arange(len(rows)) % 256])

    patch.setattr(flat, "fill_with_noise", again)


def numbers_from_the_17th_draft(patch: Patch) -> None:
    run = flat.ops.run

    def repeated(name: str, device: torch.device, **arguments: Any) -> None:
        if name == "rejection_random_sample":
            numbers, start = arguments["uniform_probs_ptr"], 0
            for end in arguments["cu_num_draft_tokens_ptr"].tolist():
                numbers[start + 16 : end] = numbers[start : max(end - 16, start)].clone()
                start = end
        run(name, device, **arguments)

    patch.setattr(flat.ops, "run", repeated)


def ids_of_16_bits(patch: Patch) -> None:
    constrain = flat.FlatSampler._constrain

    def cut(self: Any, logits: torch.Tensor, *given: Any) -> None:
        constrain(self, logits, *given)
        logits[:, 2**16 :] = float("-inf")

    patch.setattr(flat.FlatSampler, "_constrain", cut)


class Sharing:
    """A right sampler but for one thing: the last number of a step is the first of the next, if a draft was rejected.

    So are FlashInfer 0.7.2's calls for one request with three drafts.
    """

    number: float | None = None

    def __call__(self, batch: Any) -> list[list[int]]:
        """Return the tokens of one request whose drafts are certain."""
        [drafts], rows = batch.draft_token_ids, torch.softmax(batch.logits.double(), dim=-1)
        emitted: list[int] = []
        first, self.number = self.number, None
        for row, draft in zip(rows, drafts, strict=False):
            number = float(torch.rand(())) if first is None or emitted else first
            if number >= row[draft]:
                row[draft] = 0.0
                break
            emitted.append(draft)
        number, at = float(torch.rand(())), len(emitted)
        self.number = number if len(drafts) == 3 and at < 3 else None
        return [[*emitted, int((rows[at].cumsum(0) <= number * rows[at].sum()).sum())]]


def test_a_number_shared_with_the_next_step_is_caught() -> None:
    engine: Any = SimpleNamespace(sampler=Sharing)
    with pytest.raises(Mismatch, match=r"recovered token.*first of 3 drafts.*agree in (\d+) of \1 steps"):
        seeds.test_a_step_shares_no_random_number_with_the_next(engine, 5)


@pytest.mark.parametrize("bits", [8, 11, 16])
@pytest.mark.parametrize("rounds", [torch.floor, torch.round], ids=["below 1", "up to 1"])
def test_numbers_of_acceptance_of_few_bits_are_caught(
    bits: int, rounds: Callable[[torch.Tensor], torch.Tensor], monkeypatch: Patch
) -> None:
    run = flat.ops.run

    def coarse(name: str, device: torch.device, **arguments: Any) -> None:
        if name == "rejection_random_sample":
            numbers = arguments["uniform_probs_ptr"]
            numbers.copy_(rounds(numbers * 2**bits) / 2**bits)
        run(name, device, **arguments)

    seeds.test_numbers_of_acceptance_come_near_one(ENGINE, 5)
    monkeypatch.setattr(flat.ops, "run", coarse)
    if bits == 16 and rounds is torch.round:  # rejects nearly as many as it should
        seeds.test_numbers_of_acceptance_come_near_one(ENGINE, 5)
        return
    with pytest.raises(Mismatch, match=r"chains of nearly sure drafts.*p = "):
        seeds.test_numbers_of_acceptance_come_near_one(ENGINE, 5)


def probabilities_at_1(patch: Patch) -> None:
    """Record the distributions of drafts at a temperature of 1."""
    draw = whole.sample_drafts
    patch.setattr(
        whole, "sample_drafts", lambda logits, *given: (draw(logits, *given)[0], torch.softmax(logits, dim=-1))
    )


def heat_capped(patch: Patch) -> None:
    run = flat.ops.run

    def capped(name: str, device: torch.device, **arguments: Any) -> None:
        run(name, device, **arguments)
        if name == "expand_batch_to_tokens" and arguments["replace_to"] == 1:
            arguments["output_ptr"].clamp_(max=2.0)

    patch.setattr(flat.ops, "run", capped)


def top_p_floor(patch: Patch) -> None:
    limit = flat.apply_top_k_top_p
    patch.setattr(
        flat,
        "apply_top_k_top_p",
        lambda logits, k, p, **more: limit(logits, k, None if p is None else p.clamp(min=0.05), **more),
    )


def penalties_in_16_bits(patch: Patch) -> None:
    entries = processors._entries
    patch.setattr(
        processors,
        "_entries",
        lambda changes, logits: (entries(changes, logits)[0], [c.half().float() for c in entries(changes, logits)[1]]),
    )


def token_0_half_as_likely(patch: Patch) -> None:
    fill = flat.fill_with_noise

    def slower(rows: torch.Tensor, generators: Sequence[torch.Generator | None]) -> torch.Tensor:
        fill(rows, generators)[:, 0] *= 2
        return rows

    patch.setattr(flat, "fill_with_noise", slower)


def the_first_number_for_the_last_draft(patch: Patch) -> None:
    """Decide the last of three drafts or more by the number of the first."""
    run = flat.ops.run

    def repeated(name: str, device: torch.device, **arguments: Any) -> None:
        if name == "rejection_random_sample":
            numbers, start = arguments["uniform_probs_ptr"], 0
            for end in arguments["cu_num_draft_tokens_ptr"].tolist():
                if end - start > 2:
                    numbers[end - 1] = numbers[start]
                start = end
        run(name, device, **arguments)

    patch.setattr(flat.ops, "run", repeated)


def counts_of_4_bits(patch: Patch) -> None:
    """Count a token of the output 15 times at most."""

    def cut(output: list[int]) -> dict[int, int]:
        return {token: min(count, 15) for token, count in Counter(output).items()}

    patch.setattr(processors, "Counter", cut)


def noise_of_a_last_tile(patch: Patch) -> None:
    """The ids after the last multiple of 1,024 have the noise of the first ids."""
    for module in (flat, drafting):
        fill = module.fill_with_noise

        def again(rows: torch.Tensor, generators: Sequence[torch.Generator | None], fill: Any = fill) -> torch.Tensor:
            fill(rows, generators)
            last = rows.shape[1] % 1024
            if rows.shape[1] > 4096:
                rows[:, -last:] = rows[:, :last]
            return rows

        patch.setattr(module, "fill_with_noise", again)


def no_even_ids(patch: Patch) -> None:
    """Slots: of two neighbouring ids, which share their noise, the second one always wins."""
    run = request_state.ops.run

    def paired(name: str, device: torch.device, **arguments: Any) -> None:
        if name == "residual_resample":
            arguments["target_logits"][:, ::2] = float("-inf")
        run(name, device, **arguments)

    patch.setattr(request_state.ops, "run", paired)


def drafts_at_1_at_most(patch: Patch) -> None:
    """Drafts are drawn at a temperature of 1 at most; the distribution that verification gets is that of their own."""
    draw = whole.sample_drafts

    def capped(logits: torch.Tensor, temperatures: Sequence[float], generators: Any) -> Any:
        token_ids, _ = draw(logits, [min(heat, 1.0) for heat in temperatures], generators)
        scale = torch.tensor([heat or 1.0 for heat in temperatures])
        return token_ids, torch.softmax(logits / scale[:, None], dim=-1)

    patch.setattr(whole, "sample_drafts", capped)


def stops_beside_bad_words(patch: Patch) -> None:
    """With bad words, min_tokens does not count the drafts before a row."""
    add = processors._Changes.add

    def other(self: Any, row: int, history: Any, output: list[int]) -> None:
        add(self, row, history, output)
        if history.params.bad_words and len(history.output_token_ids) < history.params.min_tokens:
            self.forbidden += [(row, token) for token in history.stop_token_ids]

    patch.setattr(processors._Changes, "add", other)


def one_generator_per_seed(patch: Patch) -> None:
    generator, made = whole._generator, dict[int | None, torch.Generator]()
    patch.setattr(whole, "_generator", lambda s, device: made.setdefault(s, generator(s, device)))


def limits_in_16_bits(patch: Patch) -> None:
    """Top-k and top-p keep the tokens that they would keep of logits of float16."""
    keep = flat.apply_top_k_top_p

    def rounded(logits: torch.Tensor, *limits: Any, inplace: bool) -> torch.Tensor:
        kept = keep(logits.half(), *limits, inplace=inplace)
        return logits.masked_fill_(kept == float("-inf"), float("-inf"))

    patch.setattr(flat, "apply_top_k_top_p", rounded)


def under_test(kind: Any = WholeFlatSampler) -> SamplerUnderTest:
    return SamplerUnderTest(kind())


@pytest.mark.parametrize(
    ("fault", "run"),
    [
        (seeds_of_31_bits, lambda: seeds.test_a_counters_seed_has_64_bits(under_test(WholeRequestStateSampler))),
        (unseeded_of_12_bits, lambda: seeds.test_requests_without_a_seed_repeat_no_other(ENGINE, 5)),
        (noise_of_256_rows, lambda: seeds.test_requests_without_a_seed_repeat_no_other(ENGINE, 5)),
        (ids_of_16_bits, lambda: seeds.test_every_part_of_a_large_vocabulary_is_sampled(under_test())),
        (
            the_first_number_for_the_last_draft,
            lambda: seeds.test_no_draft_is_decided_by_the_number_of_another_one(under_test()),
        ),
        (token_0_half_as_likely, lambda: seeds.test_the_first_and_the_last_ids_have_their_probability(under_test())),
        (
            counts_of_4_bits,
            lambda: parameters.test_tokens_after_a_long_output_are_penalised(under_test(), 5, "frequency penalty"),
        ),
        (
            numbers_from_the_17th_draft,
            lambda: chains.test_tokens_of_long_chains_follow_from_the_random_numbers(under_test(), 5, "absent"),
        ),
        (noise_of_a_last_tile, lambda: seeds.test_no_two_ids_share_their_noise(under_test(), "5119")),
        (noise_of_a_last_tile, lambda: seeds.test_no_two_ids_share_their_noise(under_test(), "67071")),
        (noise_of_a_last_tile, lambda: seeds.test_no_two_ids_share_their_noise_in_drafting(ENGINE, 5, "5119")),
        (
            no_even_ids,
            lambda: seeds.test_no_two_ids_share_their_noise(under_test(WholeRequestStateSampler), "5119"),
        ),
        (drafts_at_1_at_most, lambda: limits.test_drafts_have_the_odds_of_their_temperature(ENGINE, 5)),
        (
            stops_beside_bad_words,
            lambda: parameters.test_every_two_parameters_combine(under_test(), 5, "all greedy", "absent"),
        ),
        (the_same_numbers_in_every_step, lambda: seeds.test_a_step_shares_no_random_number_with_the_next(ENGINE, 5)),
        (probabilities_at_1, lambda: seeds.test_drafts_of_the_targets_own_rows_are_accepted(ENGINE, 5)),
        (
            one_generator_per_seed,
            lambda: batches.test_requests_with_the_same_seed_share_no_generator(under_test(), 5),
        ),
        (limits_in_16_bits, lambda: batches.test_top_k_of_one_is_greedy(under_test(), 5, "absent", "some")),
        (heat_capped, lambda: limits.test_extreme_temperatures_keep_their_odds(under_test(), 5, "30")),
        (top_p_floor, lambda: limits.test_top_p_is_exact(under_test(), 5, "top_p 0.03", "edge")),
        (
            penalties_in_16_bits,
            lambda: parameters.test_log_probabilities_are_those_of_the_row(
                under_test(), 5, "processed", "all greedy", "present"
            ),
        ),
    ],
)
def test_a_fault_is_caught(fault: Callable[[Patch], None], run: Callable[[], None], monkeypatch: Patch) -> None:
    """The reference passes without the fault."""
    torch.manual_seed(5)
    run()
    fault(monkeypatch)
    with pytest.raises(Mismatch):
        run()


def ends_of(mistake: str) -> Array:
    """Return counts [7, 6] that follow the law of a mistake, or the right one; three times as many as the case has."""
    right = np.outer([1 / 2, *[1 / 12] * 6], MASSES).ravel()
    return np.rint(3 * 9600 * mistaken_ends().get(mistake, right)).astype(np.int64).reshape(7, 6)


@pytest.mark.parametrize("mistake", list(mistaken_ends()))
def test_tokens_at_the_ends_name_the_mistake_that_gives_them(mistake: str) -> None:
    with pytest.raises(Mismatch, match=r"^law: tokens for a draft or none come as if ") as caught:
        check_ends(ends_of(mistake))
    assert caught.value.failure.details[FAULT] == mistake


def test_tokens_at_the_ends_that_fit_no_mistake_say_which_are_wrong() -> None:
    """Half of the tokens 1 behind a rejected draft come as tokens 2: neither a draft nor another token says why."""
    seen = ends_of("")
    check_ends(seen)
    for draft in (0, 3, 4, 5):
        moved = seen[1 + draft, 1] // 2
        seen[1 + draft, 1] -= moved
        seen[1 + draft, 2] += moved
    where = "tokens after a rejected draft alone are wrong, tokens without a draft and decisions on drafts are right: "
    with pytest.raises(Mismatch, match=f"^law: {where}tokens for a draft or none") as caught:
        check_ends(seen)
    assert caught.value.failure.details[LOCATED]
    seen[0] += (500, 0, 0, 0, 0, -500)
    with pytest.raises(Mismatch, match=r"^law: tokens for a draft or none: G"):
        check_ends(seen)
