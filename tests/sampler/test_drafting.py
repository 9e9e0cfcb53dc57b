"""WS-15 and WS-25: drafts that verification shares noise with, or not the distribution, are seen."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from verispec.engines import DraftedTokens, SamplerBatch
from verispec.judge import Mismatch
from verispec.reference.sampler.whole import WholeFlatSampler
from verispec.suites.sampler import test_whole_sampler as suite
from verispec.suites.sampler import test_whole_sampler_seeds as seeds_suite


class OwnNoise:
    """Draft and verify in plain PyTorch, with noise of its own for each draw."""

    shared = ""
    drawn_as = verified_as = torch.float32

    def __call__(self, batch: SamplerBatch) -> list[list[int]]:
        raise NotImplementedError

    def draft_and_verify(self, batch: SamplerBatch, draft_logits: torch.Tensor) -> DraftedTokens:
        """Draw one draft token per request; keep its noise for what `shared` says."""
        drawn_from, q = (draft_logits.to(kind).float().softmax(dim=1) for kind in (self.drawn_as, self.verified_as))
        p, bonus_p = batch.logits[0::2].softmax(dim=1), batch.logits[1::2].softmax(dim=1)
        noise = torch.empty_like(q).exponential_()
        draft = (drawn_from / noise).argmax(dim=1)
        rows = torch.arange(len(draft))
        uniform = (-noise[:, 0]).exp() if self.shared == "rates" else torch.rand(len(draft))
        accepted = p[rows, draft] >= uniform * q[rows, draft]
        if batch.synthetic_rates is not None:
            accepted = uniform < batch.synthetic_rates[0]
        own = {name: noise if name == self.shared else torch.empty_like(q).exponential_() for name in ("rest", "bonus")}
        recovered = ((p - q).clamp(min=0) / own["rest"]).argmax(dim=1)
        bonus = (bonus_p / own["bonus"]).argmax(dim=1)
        kept = zip(draft.tolist(), accepted.tolist(), recovered.tolist(), bonus.tolist(), strict=True)
        return DraftedTokens([[token] for token in draft.tolist()], [[d, b] if a else [r] for d, a, r, b in kept])


class SharedNoise(OwnNoise):
    """The fault of vllm#54282: recovery reuses the noise that chose the draft token."""

    shared = "rest"


class SharedWithBonus(OwnNoise):
    """The bonus token reuses the noise that chose the draft token before it."""

    shared = "bonus"


class SharedWithRates(OwnNoise):
    """Synthetic rates are compared with the number that the noise of token 0 was made from."""

    shared = "rates"


class Kept(OwnNoise):
    """Draft logits of `kind` serve both uses, as in an engine that computes in it."""

    def __init__(self, kind: torch.dtype) -> None:
        self.drawn_as = self.verified_as = kind


class Cut(OwnNoise):
    """The fault of deepseek-ai/DeepSpec#31: drafts are drawn from logits of `kind`, and verified by float32 ones."""

    def __init__(self, kind: torch.dtype) -> None:
        self.drawn_as = kind


def check(sampler: Any, seed: int, seeds: str = "none") -> None:
    """Run the case on an engine whose only part is `sampler`."""
    engine: Any = SimpleNamespace(sampler=lambda: sampler)
    suite.test_verification_does_not_reuse_the_noise_of_drafting(engine, seed, seeds)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("seeds", ["given", "none"])
def test_the_reference_shares_no_noise(seed: int, seeds: str) -> None:
    check(WholeFlatSampler(), seed, seeds)


@pytest.mark.parametrize("seed", range(5))
def test_own_noise_passes_and_shared_noise_fails(seed: int) -> None:
    check(OwnNoise(), seed)
    for sampler in (SharedNoise(), SharedWithBonus()):
        with pytest.raises(Mismatch, match="draft token and recovered or bonus token"):
            check(sampler, seed)


@pytest.mark.parametrize("seed", range(5))
def test_rates_that_share_the_noise_of_drafting_fail(seed: int) -> None:
    def run(sampler: Any) -> None:
        engine: Any = SimpleNamespace(sampler=lambda: sampler)
        seeds_suite.test_rates_and_bonus_tokens_do_not_depend_on_the_draft(engine, seed)

    run(OwnNoise())
    run(WholeFlatSampler())
    for sampler in (SharedWithRates(), SharedWithBonus()):
        with pytest.raises(Mismatch, match="draft token, and the bonus token or none"):
            run(sampler)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_drafts_of_cut_logits_fail_if_others_verify_them(seed: int, kind: torch.dtype) -> None:
    def run(sampler: Any) -> None:
        engine: Any = SimpleNamespace(sampler=lambda: sampler)
        seeds_suite.test_drafts_are_verified_by_what_they_were_drawn_from(engine, seed)

    run(WholeFlatSampler())
    run(Kept(kind))
    with pytest.raises(Mismatch, match="first tokens after large draft logits"):
        run(Cut(kind))


def test_greedy_requests_and_several_drafts() -> None:
    """Draft tokens of greedy requests are argmaxes; positions keep their order and their counts."""
    torch.manual_seed(0)
    logits = torch.randn(3 + 1 + 2, 7)
    draft_logits = torch.randn(3, 7)
    batch = SamplerBatch(logits, [[0, 0], [], [0]], torch.tensor([0.0, 1.0, 1.0]), seeds=[1, 2, 3])
    drafted = WholeFlatSampler().draft_and_verify(batch, draft_logits)
    assert drafted.draft_token_ids[0] == draft_logits[:2].argmax(dim=1).tolist()
    assert [len(ids) for ids in drafted.draft_token_ids] == [2, 0, 1]
    assert all(1 <= len(tokens) <= count + 1 for tokens, count in zip(drafted.tokens, [2, 0, 1], strict=True))
    assert drafted == WholeFlatSampler().draft_and_verify(batch, draft_logits)
