"""The sampler protocol: logits and draft tokens of a mixed batch in, the emitted tokens of each request out.

A suite builds one `SamplerBatch`, and every engine answers it, whatever its own metadata classes are
called. `WholeSampler` is what a sampler must do. Three optional methods let the suite test more:

    trace                `TracingSampler`: report the random samples, so that tokens are checked exactly
    draft_and_verify     `DraftingSampler`: draw the draft tokens too, so that shared noise shows
    process_and_verify   `ProcessingSampler`: apply penalties, bad words and the like, and report log-probabilities
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from verispec.engines.protocol.generation import GenerationRequest, TokenLogprobs

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class SamplerBatch:
    """One step of B requests; request i has k_i = len(draft_token_ids[i]) draft tokens, N is their sum.

    Tensors are on the CPU. Engines must not change them; a sampler that works in place copies first.

    Raises:
        ValueError: shapes or lengths do not fit each other.
    """

    logits: torch.Tensor
    """[N + B, V] float32, before temperature: for each request in turn its k_i draft rows, then its bonus row."""
    draft_token_ids: Sequence[Sequence[int]]
    """Draft tokens per request; empty for a request without draft tokens, -1 for a padding token."""
    temperature: torch.Tensor
    """[B] float32; 0 is greedy."""
    draft_probs: torch.Tensor | None = None
    """[N, V] float32: the distribution that each draft token was drawn from. None when draft tokens are certain
    (n-gram): q is then 1 at the draft token."""
    top_k: torch.Tensor | None = None
    """[B] int32; V disables it for a request."""
    top_p: torch.Tensor | None = None
    """[B] float32; 1 disables it for a request."""
    min_p: torch.Tensor | None = None
    """[B] float32; 0 disables it for a request."""
    seeds: Sequence[int | None] | None = None
    """Seed per request; None is unseeded. The same seed must give the same tokens."""
    synthetic_rates: Sequence[float] | None = None
    """Unconditional acceptance rate per draft position; None is ordinary verification."""

    def __post_init__(self) -> None:
        rows, requests, drafts = self.logits.shape[0], len(self.draft_token_ids), self.num_drafts
        if rows != drafts + requests:
            raise ValueError(
                f"logits has {rows} rows; {requests} requests with {drafts} drafts need "
                f"{drafts + requests} (the draft rows of a request, then its bonus row)"
            )
        per_request = {
            "temperature": self.temperature,
            "top_k": self.top_k,
            "top_p": self.top_p,
            "min_p": self.min_p,
            "seeds": self.seeds,
        }
        for name, value in per_request.items():
            if value is not None and len(value) != requests:
                raise ValueError(f"{name} has {len(value)} entries for {requests} requests")
        if self.draft_probs is not None and self.draft_probs.shape != (drafts, self.vocab_size):
            raise ValueError(f"draft_probs is {tuple(self.draft_probs.shape)}, want {(drafts, self.vocab_size)}")

    def named(self) -> dict[str, object]:
        """Return the fields that are set, by name, for reports."""
        values = {field: getattr(self, field) for field in self.__dataclass_fields__}
        return {field: value for field, value in values.items() if value is not None}

    @property
    def counts(self) -> list[int]:
        """The number of draft tokens per request."""
        return [len(ids) for ids in self.draft_token_ids]

    @property
    def num_drafts(self) -> int:
        """N, the number of draft tokens of all requests."""
        return sum(map(len, self.draft_token_ids))

    @property
    def vocab_size(self) -> int:
        """V, the size of the vocabulary."""
        return int(self.logits.shape[1])


@dataclass(frozen=True, slots=True)
class Draws:
    """The random samples that decided one seeded request.

    Args:
        uniform: [k] float64; draft token j is accepted while p/q >= uniform[j].
        noise: [V] exponential; the recovered token is the argmax of max(p - q, 0) / noise.
        bonus: the bonus token that was sampled beforehand from the bonus row; -1 if the engine does not report it.
        bonus_noise: [V] exponential; the bonus token is the argmax of p / bonus_noise. None if not reported.
    """

    uniform: torch.Tensor
    noise: torch.Tensor
    bonus: int = -1
    bonus_noise: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """Tokens per request, with the random samples that decided them.

    Args:
        tokens: tokens as the sampler returns them.
        draws: one entry per request; None if unknown (unseeded, greedy, or without draft tokens).
    """

    tokens: list[list[int]]
    draws: list[Draws | None] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class DraftedTokens:
    """Draft tokens and emitted tokens of one step.

    Args:
        draft_token_ids: the draft tokens that the engine drew, k_i per request.
        tokens: the emitted tokens per request, as the sampler returns them.
    """

    draft_token_ids: list[list[int]]
    tokens: list[list[int]]


@dataclass(frozen=True, slots=True)
class RequestContext:
    """Parameters of one request of a step beyond `SamplerBatch`, and its text so far.

    Args:
        params: allowed ids, bad words, min_tokens, logit bias, penalties, logprobs and the prompt. Temperature, top-k,
            top-p, min-p and seed are those of the batch.
        output_token_ids: tokens emitted before the step.
        stop_token_ids: tokens that min_tokens forbids.
        allowed_rows: [k + 1, V] bool, by row the tokens that a grammar allows after the drafts before the row. None
            without a grammar.
    """

    params: GenerationRequest
    output_token_ids: Sequence[int] = ()
    stop_token_ids: Sequence[int] = ()
    allowed_rows: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class ProcessedTokens:
    """Emitted tokens of a step with processors.

    Args:
        tokens: tokens as the sampler returns them.
        logprobs: one entry per emitted token; empty for a request that wants none.
    """

    tokens: list[list[int]]
    logprobs: list[list[TokenLogprobs]]


class WholeSampler(Protocol):
    """An engine's end-to-end sampler."""

    def __call__(self, batch: SamplerBatch) -> list[list[int]]:
        """Return the emitted tokens of each request, without padding.

        These are the accepted draft tokens, then one recovered token (after a rejection) or one bonus token.

        Raises:
            UnsupportedCall: the engine lacks something that the batch asks for.
        """
        ...


class TracingSampler(WholeSampler, Protocol):
    """A sampler that reports its random samples. Without `trace`, clause WS-9 is `unsupported`."""

    def trace(self, batch: SamplerBatch) -> Trace:
        """Return the tokens of `batch` and the random samples that decided them."""
        ...


class DraftingSampler(WholeSampler, Protocol):
    """A sampler that drafts too, so that noise shared between drafter and verifier shows."""

    def draft_and_verify(self, batch: SamplerBatch, draft_logits: torch.Tensor) -> DraftedTokens:
        """Draw the draft tokens as the engine's drafter does, then verify them in the same step.

        Each draft token of a sampled request is drawn from softmax(draft_logits / temperature); a greedy
        request takes the argmax. Use the random state that production would: if drafter and verifier share a
        generator, share it here too.

        Args:
            batch: the step. Its draft_token_ids only say how many to draw, and draft_probs is None.
            draft_logits: [N, V] float32, before temperature; row j belongs to draft token j.
        """
        ...


class ProcessingSampler(WholeSampler, Protocol):
    """A sampler with logits processors and log-probabilities. Without it, WS-16 to WS-24 are `unsupported`."""

    def process_and_verify(
        self, batch: SamplerBatch, contexts: Sequence[RequestContext], logprobs_mode: str = "raw"
    ) -> ProcessedTokens:
        """Apply each request's processors to all of its rows, then verify and sample.

        The row of draft j counts the drafts before it as output, and so does the bonus row.

        Args:
            batch: the step.
            contexts: one per request.
            logprobs_mode: "raw" for the model's own logits, "processed" for the logits that tokens are sampled from.

        Raises:
            UnsupportedCall: the engine lacks one of the processors.
        """
        ...


def replay(
    generator: torch.Generator, drafts: int, vocab: int, bonus: int = -1, dtype: torch.dtype | None = None
) -> Draws:
    """Return the random samples that vLLM's order of draws takes from `generator`, which advances; pass a clone.

    Args:
        generator: the request's generator at the start of verification.
        drafts: k, the number of draft tokens.
        vocab: V.
        bonus: bonus token of the returned `Draws`.
        dtype: dtype of the noise; float32 unless the engine runs with a float64 Gumbel.

    Source: vllm.v1.sample.rejection_sampler, 0.18.0 to 0.33.0: `drafts` uniforms in float64, then `vocab`
    exponentials.
    """
    import torch

    uniform = torch.empty(drafts, dtype=torch.float64, device=generator.device).uniform_(generator=generator)
    noise = torch.empty(vocab, dtype=dtype or torch.float32, device=generator.device)
    return Draws(uniform, noise.exponential_(generator=generator), bonus)
