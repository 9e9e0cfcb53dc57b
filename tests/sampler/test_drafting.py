"""WS-15: noise that verification shares with drafting is seen, and the reference shares none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from verispec.engines import DraftedTokens, SamplerBatch
from verispec.judge import Mismatch
from verispec.reference.sampler.whole import WholeFlatSampler
from verispec.suites.sampler import test_whole_sampler as suite


class OwnNoise:
    """Draft and verify in plain PyTorch, with noise of its own for each draw."""

    shared = ""

    def __call__(self, batch: SamplerBatch) -> list[list[int]]:
        raise NotImplementedError

    def draft_and_verify(self, batch: SamplerBatch, draft_logits: torch.Tensor) -> DraftedTokens:
        """Draw one draft token per request; keep its noise for the recovered or the bonus token if `shared` says so."""
        q = draft_logits.softmax(dim=1)
        p, bonus_p = batch.logits[0::2].softmax(dim=1), batch.logits[1::2].softmax(dim=1)
        noise = torch.empty_like(q).exponential_()
        draft = (q / noise).argmax(dim=1)
        rows = torch.arange(len(draft))
        accepted = p[rows, draft] >= torch.rand(len(draft)) * q[rows, draft]
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
