"""A whole sampler under test: what it raises is a failure of the case, what it returns is checked for its type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from verispec.engines.protocol.check import require_drafted, require_method, require_tokens, require_trace
from verispec.judge._failure import call_engine

if TYPE_CHECKING:
    import torch

    from verispec.engines import DraftedTokens, SamplerBatch, Trace, WholeSampler


class SamplerUnderTest:
    """Calls an engine's sampler as `verispec.engines.WholeSampler`.

    Anything that the sampler raises, except `UnsupportedCall`, is a `Mismatch`. A return value of another type is a
    `ProtocolError`, which accuses the adapter and no clause. An optional method that is missing is an
    `UnsupportedCall` that names the clauses and what to write.
    """

    def __init__(self, sampler: WholeSampler) -> None:
        self._sampler = sampler
        self.last: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
        """Inputs and outputs of the last call by name, for reports."""

    def __call__(self, batch: SamplerBatch) -> list[list[int]]:
        """Return the emitted tokens of `batch`."""
        self.last = (batch.named(), {})
        tokens = require_tokens(call_engine(lambda: self._sampler(batch)), batch)
        self.last = (batch.named(), {"tokens": tokens})
        return tokens

    def trace(self, batch: SamplerBatch) -> Trace:
        """Return the emitted tokens and the random samples that decided them."""
        method = require_method(
            self._sampler, "trace", "WS-9 (tokens follow from the random samples)", "trace(self, batch) -> Trace"
        )
        self.last = (batch.named(), {})
        trace = require_trace(call_engine(lambda: method(batch)), batch)
        draws = {b: drawn for b, drawn in enumerate(trace.draws) if drawn is not None}
        samples = {
            f"{field}[{b}]": getattr(drawn, field) for b, drawn in draws.items() for field in ("uniform", "noise")
        }
        self.last = (batch.named() | samples, {"tokens": trace.tokens})
        return trace

    def draft_and_verify(self, batch: SamplerBatch, draft_logits: torch.Tensor) -> DraftedTokens:
        """Return the draft tokens that the engine drew and the tokens that it emitted."""
        method = require_method(
            self._sampler,
            "draft_and_verify",
            "the engine's own drafter beside its verifier",
            "draft_and_verify(self, batch, draft_logits) -> DraftedTokens",
        )
        inputs = batch.named() | {"draft_logits": draft_logits}
        self.last = (inputs, {})
        drafted = require_drafted(call_engine(lambda: method(batch, draft_logits)), batch)
        self.last = (inputs, {"draft_token_ids": drafted.draft_token_ids, "tokens": drafted.tokens})
        return drafted
