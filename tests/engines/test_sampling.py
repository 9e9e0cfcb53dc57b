"""The end-to-end sampler protocol: batches that fit together, and draws in the engines' order."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from verispec.engines.protocol.sampling import SamplerBatch, replay

GOOD: dict[str, Any] = {
    "logits": torch.zeros(5, 4),
    "draft_token_ids": [[1, 2], [], [3]],
    "temperature": torch.zeros(3),
}


def test_counts_follow_from_the_drafts() -> None:
    batch = SamplerBatch(**{**GOOD, "logits": torch.zeros(6, 4)})
    assert (batch.counts, batch.num_drafts, batch.vocab_size) == ([2, 0, 1], 3, 4)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"logits": torch.zeros(5, 4)}, "logits has 5 rows; 3 requests with 3 drafts need 6"),
        ({"logits": torch.zeros(7, 4)}, "logits has 7 rows"),
        ({"temperature": torch.zeros(2)}, "temperature has 2 entries for 3 requests"),
        ({"top_k": torch.zeros(4)}, "top_k has 4 entries"),
        ({"seeds": [1]}, "seeds has 1 entries"),
        ({"draft_probs": torch.zeros(3, 5)}, r"draft_probs is \(3, 5\), want \(3, 4\)"),
    ],
)
def test_a_batch_that_does_not_fit_together_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SamplerBatch(**{**GOOD, "logits": torch.zeros(6, 4), **changed})


def test_draws_are_uniforms_first_and_then_the_noise() -> None:
    draws = replay(torch.Generator().manual_seed(3), 4, 7)
    generator = torch.Generator().manual_seed(3)
    uniform = torch.empty(4, dtype=torch.float64).uniform_(generator=generator)
    noise = torch.empty(7).exponential_(generator=generator)
    assert torch.equal(draws.uniform, uniform)
    assert torch.equal(draws.noise, noise)
    assert draws.noise.dtype == torch.float32
    assert replay(torch.Generator(), 1, 2, dtype=torch.float64).noise.dtype == torch.float64
