"""An end-to-end sampler under test: exceptions become failures of the case, and results are checked for their type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from verispec.engines.protocol.check import GUIDE
from verispec.engines.protocol.engine import Unsupported
from verispec.engines.protocol.results import require_drafted, require_processed, require_tokens, require_trace
from verispec.judge._copied_requests import copied_context
from verispec.judge._failure import Failure, Kind, Mismatch, NotOffered, call_engine, offered
from verispec.judge._memory import bits

if TYPE_CHECKING:
    import torch

    from verispec.engines import (
        DraftedTokens,
        Engine,
        ProcessedTokens,
        RequestContext,
        SamplerBatch,
        Trace,
        WholeSampler,
    )

Answer = TypeVar("Answer")


MADE_UP = "no such family"
"""A family that no engine has: an engine that answers it with a sampler does not read the family."""


def sampler_of(engine: Engine, family: str | None = None) -> WholeSampler:
    """Return the end-to-end sampler of `family`; None is the engine's default one.

    An engine with one sampler may ignore the family. That sampler is then tested once, by the rule that it has, and
    never accused of another family's rule.

    Raises:
        NotOffered: the engine has no sampler of this family, or does not read the family.
    """
    if family is None:
        return offered(engine.sampler())
    sampler = offered(engine.sampler(family))
    if family != "flat" and _ignores_families(engine):
        raise NotOffered(
            "sampler(family) returns a sampler for any name, so that 'flat' alone is tested; "
            f"to have {family!r} tested, return Unsupported(reason) for families that the engine lacks; see {GUIDE}"
        )
    return sampler


def _ignores_families(engine: Engine) -> bool:
    try:
        return not isinstance(engine.sampler(MADE_UP), Unsupported)
    except Exception:  # an engine that raises for unknown names reads them
        return False


class SamplerUnderTest:
    """Calls an engine's sampler as `verispec.engines.WholeSampler`.

    Anything that the sampler raises, except `UnsupportedCall`, is a `Mismatch`. A return value of another type is a
    `ProtocolError`, which accuses the adapter and no clause. An optional method that is missing is a `NotOffered`
    that names the clauses and the method to write.

    The engine gets a copy of the batch, which is compared after the call. An expectation computed from the
    caller's batch therefore holds, and a sampler that writes to its inputs fails whatever it emits.
    """

    def __init__(self, sampler: WholeSampler) -> None:
        self._sampler = sampler
        self.last: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
        """Inputs and outputs of the last call by name, for reports."""
        self.step: SamplerBatch | None = None
        """The batch of the last call without processors and drafting, for `verispec.saved_calls`."""

    def __call__(self, batch: SamplerBatch) -> list[list[int]]:
        """Return the emitted tokens of `batch`, one list per request.

        Raises:
            Mismatch: the sampler raised, changed the batch, or emitted tokens that no step has.
            ProtocolError: the answer is not one sequence of integers per request.
        """
        self.step = batch
        self.last = (batch.named(), {})
        tokens = require_tokens(_watched(batch, self._sampler), batch)
        self.last = (batch.named(), {"tokens": tokens})
        _require_possible(tokens, batch)
        return tokens

    def trace(self, batch: SamplerBatch) -> Trace:
        """Return the emitted tokens of `batch` and the random samples that decided them.

        Raises:
            Mismatch: the sampler raised, or changed the batch.
            ProtocolError: the answer does not have the shapes that `Draws` asks for.
            NotOffered: the sampler has no such method.
        """
        method = _require_method(
            self._sampler, "trace", "WS-9 (tokens follow from the random samples)", "trace(self, batch) -> Trace"
        )
        self.step = batch
        self.last = (batch.named(), {})
        trace = require_trace(_watched(batch, method), batch)
        draws = {b: drawn for b, drawn in enumerate(trace.draws) if drawn is not None}
        samples = {
            f"{field}[{b}]": getattr(drawn, field) for b, drawn in draws.items() for field in ("uniform", "noise")
        }
        self.last = (batch.named() | samples, {"tokens": trace.tokens})
        _require_possible(trace.tokens, batch)
        return trace

    def draft_and_verify(self, batch: SamplerBatch, draft_logits: torch.Tensor) -> DraftedTokens:
        """Return the draft tokens that the engine drew and the tokens that it emitted.

        Args:
            batch: batch whose draft tokens the engine replaces by its own.
            draft_logits: [N, V] float32, the drafter's rows.

        Raises:
            Mismatch: the sampler raised, or changed the batch.
            ProtocolError: the answer has another number of tokens.
            NotOffered: the sampler has no such method.
        """
        method = _require_method(
            self._sampler,
            "draft_and_verify",
            "the engine's own drafter beside its verifier",
            "draft_and_verify(self, batch, draft_logits) -> DraftedTokens",
        )
        self.step = None
        inputs = batch.named() | {"draft_logits": draft_logits}
        self.last = (inputs, {})
        drafted = require_drafted(_watched(batch, lambda given: method(given, draft_logits.clone())), batch)
        self.last = (inputs, {"draft_token_ids": drafted.draft_token_ids, "tokens": drafted.tokens})
        _require_possible(drafted.tokens, batch)
        return drafted

    def process_and_verify(
        self, batch: SamplerBatch, contexts: Sequence[RequestContext], logprobs_mode: str = "raw"
    ) -> ProcessedTokens:
        """Return the tokens and log-probabilities of a step whose requests have logits processors.

        Args:
            batch: the step.
            contexts: one per request; the sampler receives a copy.
            logprobs_mode: "raw" or "processed".

        Raises:
            Mismatch: the sampler raised, or changed the batch.
            ProtocolError: the answer has another number of requests, or another type.
            NotOffered: the sampler has no such method.
            UnsupportedCall: it lacks one of the processors.
        """
        method = _require_method(
            self._sampler,
            "process_and_verify",
            "WS-16 to WS-24 (logits processors and log-probabilities in a sampler)",
            "process_and_verify(self, batch, contexts, logprobs_mode) -> ProcessedTokens",
        )
        self.step = None
        inputs = batch.named() | {f"context[{b}]": str(context) for b, context in enumerate(contexts)}
        self.last = (inputs, {})
        answer = _watched(batch, lambda given: method(given, list(map(copied_context, contexts)), logprobs_mode))
        processed = require_processed(answer, batch, contexts)
        self.last = (inputs, {"tokens": processed.tokens})
        _require_possible(processed.tokens, batch)
        return processed


def _require_method(sampler: object, method: str, clauses: str, write: str) -> Callable[..., Any]:
    """Return an optional method of a sampler.

    Args:
        sampler: the engine's sampler.
        method: its name.
        clauses: clauses that need the method, for the message.
        write: signature to write, for the message.

    Raises:
        NotOffered: the sampler has no such method, and so nothing is missing.
    """
    found = getattr(sampler, method, None)
    if found is None:
        raise NotOffered(f"the sampler has no {method!r}: to test {clauses}, write {write}; see {GUIDE}")
    function: Callable[..., Any] = found
    return function


def _require_possible(tokens: list[list[int]], batch: SamplerBatch) -> None:
    """Check what holds of every step: each request emits at most one token more than drafts, one of the vocabulary.

    Raises:
        Mismatch: a request emits no token, too many, or one that no row has.
    """
    vocabulary = batch.vocab_size
    for b, (emitted, drafts) in enumerate(zip(tokens, batch.counts, strict=True)):
        if not 0 < len(emitted) <= drafts + 1:
            message = f"request {b} emits {len(emitted)} tokens after {drafts} drafts, expected 1 to {drafts + 1}"
            raise Mismatch(Failure(Kind.VALUE, message, "tokens"))
        if min(emitted) < 0 or max(emitted) >= vocabulary:
            message = f"request {b} emits {list(emitted)}, expected ids below {vocabulary}"
            raise Mismatch(Failure(Kind.VALUE, message, "tokens"))


def _watched(batch: SamplerBatch, call: Callable[[SamplerBatch], Answer]) -> Answer:
    """Call the engine with a copy of `batch`; raise `Mismatch` if it raises or changes the copy."""
    given = _copied(batch)
    answer = call_engine(lambda: call(given))
    changed = [f.name for f in fields(batch) if not _equal(getattr(batch, f.name), getattr(given, f.name))]
    if changed:
        names = ", ".join(changed)
        raise Mismatch(Failure(Kind.INPUT_CHANGED, f"the sampler changed its input {names}", names))
    return answer


def _copied(batch: SamplerBatch) -> SamplerBatch:
    """Return a copy of the batch with the strides that the caller chose."""
    import torch

    def copied(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.clone(memory_format=torch.preserve_format)
        return _as_lists(value)

    return replace(batch, **{f.name: copied(getattr(batch, f.name)) for f in fields(batch)})


def _as_lists(value: Any) -> Any:
    """Return sequences, and sequences in them, as new lists; anything else as it is."""
    if isinstance(value, (list, tuple)):
        return [list(v) if isinstance(v, (list, tuple)) else v for v in value]
    return value


def _equal(before: object, after: object) -> bool:
    """Compare a value with its copy: tensors bit for bit, so that NaN equals NaN."""
    import torch

    if isinstance(before, torch.Tensor) and isinstance(after, torch.Tensor):
        same_form = before.shape == after.shape and before.dtype == after.dtype
        return same_form and np.array_equal(bits(before), bits(after))
    return bool(_as_lists(before) == after)  # in one comparison of lists: a batch has hundreds of requests
