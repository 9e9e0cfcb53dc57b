"""The whole-sampler protocol: logits and drafts of a mixed batch in, the tokens of each request out.

A suite builds one `SamplerBatch` and every engine answers it, whatever its own metadata classes are
called. Where an engine draws from seeded generators, `WholeSampler.trace` also says which random
numbers it drew, so that a suite can judge its tokens exactly instead of by their law.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class SamplerBatch:
    """One step of B requests; request i has k_i = len(draft_token_ids[i]) drafts, N is their sum.

    Engines must not change the tensors; a sampler that works in place is given copies.
    """

    logits: torch.Tensor
    """[N + B, V]: for each request in turn its k_i draft rows, then its bonus row. Not yet tempered."""
    draft_token_ids: Sequence[Sequence[int]]
    """Per request the drafted ids; empty for a request without drafts, -1 for a padded draft."""
    temperature: torch.Tensor
    """[B] float32; 0 is greedy."""
    draft_probs: torch.Tensor | None = None
    """[N, V] float32, the draft distribution that each draft was drawn from; None when drafts are certain (n-gram)."""
    top_k: torch.Tensor | None = None
    """[B] int32; V switches it off for a request."""
    top_p: torch.Tensor | None = None
    """[B] float32; 1 switches it off for a request."""
    seeds: Sequence[int | None] | None = None
    """Per request the seed of its generator; None is unseeded."""
    synthetic_rates: Sequence[float] | None = None
    """Unconditional acceptance rate of each draft position; None is ordinary verification."""

    def __post_init__(self) -> None:
        rows, requests = self.logits.shape[0], len(self.draft_token_ids)
        if rows != self.num_drafts + requests:
            raise ValueError(
                f"logits has {rows} rows; {requests} requests with {self.num_drafts} drafts need "
                f"{self.num_drafts + requests} (the draft rows of a request, then its bonus row)"
            )
        per_request = {"temperature": self.temperature, "top_k": self.top_k, "top_p": self.top_p, "seeds": self.seeds}
        for name, value in per_request.items():
            if value is not None and len(value) != requests:
                raise ValueError(f"{name} has {len(value)} entries for {requests} requests")
        if self.draft_probs is not None and self.draft_probs.shape != (self.num_drafts, self.vocab_size):
            raise ValueError(
                f"draft_probs is {tuple(self.draft_probs.shape)}, want {(self.num_drafts, self.vocab_size)}"
            )

    @property
    def counts(self) -> list[int]:
        """The number of drafts of each request."""
        return [len(ids) for ids in self.draft_token_ids]

    @property
    def num_drafts(self) -> int:
        return sum(self.counts)

    @property
    def vocab_size(self) -> int:
        return int(self.logits.shape[1])


@dataclass(frozen=True, slots=True)
class Draws:
    """The random numbers that decided one seeded request.

    uniform: [k] float64, compared with p/q position by position.
    noise: [V], exponential; the recovered token is the argmax of max(p - q, 0) / noise.
    bonus: the bonus token that was sampled beforehand from the bonus row; -1 where the engine does not tell.
    """

    uniform: torch.Tensor
    noise: torch.Tensor
    bonus: int = -1


@dataclass(frozen=True, slots=True)
class Trace:
    """Tokens per request, and per request its draws, or None where they are unknown (unseeded, greedy, no drafts)."""

    tokens: list[list[int]]
    draws: list[Draws | None] = field(default_factory=list)


class WholeSampler(Protocol):
    """An engine's whole sampler. Raises `verispec.engines.UnsupportedCall` for what the engine declares missing."""

    def __call__(self, batch: SamplerBatch) -> list[list[int]]:
        """The tokens of each request: accepted drafts, then one recovered or bonus token; no placeholders."""
        ...

    def trace(self, batch: SamplerBatch) -> Trace:
        """As a call, with what is known of the random numbers."""
        ...


def replay(
    generator: torch.Generator, drafts: int, vocab: int, bonus: int = -1, dtype: torch.dtype | None = None
) -> Draws:
    """The draws of one request from the state of its generator at the start of verification.

    The order is that of vllm.v1.sample.rejection_sampler (0.18.0 to 0.33.0): `drafts` uniforms in
    float64, then `vocab` exponentials in `dtype` (float32 unless the engine runs with a float64 Gumbel).
    The generator is advanced; pass a clone.
    """
    import torch

    uniform = torch.empty(drafts, dtype=torch.float64, device=generator.device).uniform_(generator=generator)
    noise = torch.empty(vocab, dtype=dtype or torch.float32, device=generator.device)
    return Draws(uniform, noise.exponential_(generator=generator), bonus)
