"""Single steps of an end-to-end sampler: which request is certainly wrong, and the smallest step that shows it.

A request is certain if its target leaves one token at each row that it reaches: a greedy one, or a sampled one whose
distribution has one likely token. It emits the same tokens whatever the random numbers are, so that a step with a
wrong certain request needs no statistics.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch

from verispec.cases.sampling import greedy_tokens, select, target_distribution
from verispec.engines import UnsupportedCall
from verispec.engines.protocol.sampling import SamplerBatch
from verispec.judge import Failure, Kind, Mismatch, SamplerUnderTest
from verispec.report.causes import normalised

CERTAIN = 1 - 1e-12
"""Probability of a token that is emitted in every run."""
PEAK = 200.0
"""Logit of the one likely token of a plain row, the others being 0; certain at any temperature up to 7."""
REPEATS = 3
"""Times that a smaller step must fail: its other requests may be sampled."""
TENSORS = ("logits", "temperature", "draft_probs", "top_k", "top_p", "min_p")


@dataclass(frozen=True, slots=True)
class Wrong:
    """The fault of a step.

    Attributes:
        error: type and text of the exception that the sampler raised; empty where it emitted tokens.
        request: the request whose tokens are wrong.
        expected: tokens that it must emit.
        got: tokens that it emitted.
    """

    error: str = ""
    request: int = 0
    expected: tuple[int, ...] = ()
    got: tuple[int, ...] = ()
    did: ClassVar[str] = "emitted"

    @property
    def message(self) -> str:
        """One sentence."""
        return self.error or f"request {self.request} {self.did} {list(self.got)}, expected {list(self.expected)}"

    def like(self, other: Wrong) -> bool:
        """Return True if both raised the same exception, apart from numbers, or none."""
        return normalised(self.error) == normalised(other.error)


def certain_tokens(batch: SamplerBatch, b: int) -> list[int] | None:
    """Return the tokens that request `b` emits in every run; None if they depend on random numbers."""
    if batch.synthetic_rates is not None:
        return None
    if float(batch.temperature[b]) == 0:
        return greedy_tokens(batch, b)
    wide = None if batch.top_p is None else (batch.top_p.double() + 1e-5).clamp(max=1.0)
    emitted: list[int] = []
    for row, draft in enumerate([*batch.draft_token_ids[b], None]):
        p = target_distribution(replace(batch, top_p=wide), b, row)
        token = int(p.argmax())
        if not p[token] >= CERTAIN:
            return None
        if draft not in (None, token) and batch.draft_probs is not None:
            q = batch.draft_probs[sum(batch.counts[:b]) + row]
            if float(q[token]) > 0.5:  # little of it is left after the rejection
                return None
        emitted.append(token)
        if draft != token:
            break
    return emitted


def wrong_in(sampler: SamplerUnderTest, batch: SamplerBatch) -> Wrong | None:
    """Return the fault of the step `batch`; None if nothing is certainly wrong."""
    try:
        tokens = sampler(batch)
    except Mismatch as mismatch:
        return Wrong(mismatch.failure.message) if mismatch.failure.kind == Kind.RAISED else None
    except (UnsupportedCall, ValueError):
        return None
    for b, got in enumerate(tokens):
        expected = certain_tokens(batch, b)
        if expected is not None and expected != got:
            return Wrong("", b, tuple(expected), tuple(got))
    return None


def smallest(sampler: SamplerUnderTest, batch: SamplerBatch, seconds: float) -> tuple[SamplerBatch, Wrong] | None:
    """Return the smallest step found that fails like `batch`, with its fault; None if nothing is certainly wrong.

    Args:
        sampler: sampler of the engine under test.
        batch: batch of the last call of a failing case.
        seconds: time after which the smallest step so far is returned.
    """
    first = _wrong_again(sampler, batch)
    if first is None:
        return None
    deadline, found = time.monotonic() + seconds, True
    while found:
        found = False
        for candidate in _variants(batch):
            if time.monotonic() > deadline:
                break
            if _fails(sampler, candidate, first):
                batch, found = candidate, True
                break
    last = _wrong_again(sampler, batch)
    return (batch, last) if last else None


def _wrong_again(sampler: SamplerUnderTest, batch: SamplerBatch) -> Wrong | None:
    """Return the fault of a step that has failed: a fault that depends on random numbers may need more than one run."""
    return next((wrong for _ in range(REPEATS) if (wrong := wrong_in(sampler, batch))), None)


def _fails(sampler: SamplerUnderTest, batch: SamplerBatch, like: Wrong) -> bool:
    wrongs = (wrong_in(sampler, batch) for _ in range(REPEATS))
    return all(wrong is not None and wrong.like(like) for wrong in wrongs)


def _variants(batch: SamplerBatch) -> Iterator[SamplerBatch]:
    """Yield smaller or simpler steps, the ones that save more first."""
    count = len(batch.draft_token_ids)
    step = max(count // 2, 1)
    while count > 1:
        for start in range(0, count, step):
            kept = [b for b in range(count) if not start <= b < start + step]
            if kept:
                yield select(batch, kept)
        if step == 1:
            break
        step //= 2
    for name in ("seeds", "draft_probs", "min_p", "top_p", "top_k"):
        if getattr(batch, name) is not None:
            without: dict[str, Any] = {name: None}
            yield replace(batch, **without)
    for b in range(count):
        for left in sorted({0, batch.counts[b] // 2, batch.counts[b] - 1}):
            if 0 <= left < batch.counts[b]:
                yield _with_drafts(batch, b, left)
    yield from _plainer(batch)


def _with_drafts(batch: SamplerBatch, b: int, left: int) -> SamplerBatch:
    """Return the step with the first `left` drafts of request `b`; its bonus row becomes the row after them."""
    start, first = sum(batch.counts[:b]) + b, sum(batch.counts[:b])
    rows = [r for r in range(len(batch.logits)) if not start + left < r <= start + batch.counts[b]]
    drafts = [n for n in range(batch.num_drafts) if not first + left <= n < first + batch.counts[b]]
    ids = [list(own[:left]) if n == b else list(own) for n, own in enumerate(batch.draft_token_ids)]
    probs = None if batch.draft_probs is None else batch.draft_probs[drafts]
    return replace(batch, logits=batch.logits[rows], draft_token_ids=ids, draft_probs=probs)


def _plainer(batch: SamplerBatch) -> Iterator[SamplerBatch]:
    """Yield the step with one likely token per row, then with the tokens alone that it needs, at temperature 1."""
    best = batch.logits.argmax(dim=1)
    plain = torch.zeros_like(batch.logits).scatter_(1, best[:, None], PEAK)
    if not torch.equal(plain, batch.logits):
        yield replace(batch, logits=plain)
    else:
        used = sorted({*best.tolist(), *(t for ids in batch.draft_token_ids for t in ids if t >= 0)})
        kept = [*used, *(t for t in range(batch.vocab_size) if t not in used)][: max(len(used), 2)]
        if batch.draft_probs is None and len(kept) < batch.vocab_size:
            place = {token: n for n, token in enumerate(kept)} | {-1: -1}
            ids = [[place.get(t, len(kept)) for t in own] for own in batch.draft_token_ids]
            limits = {} if batch.top_k is None else {"top_k": batch.top_k.clamp(max=len(kept))}
            yield replace(batch, logits=plain[:, kept], draft_token_ids=ids, **limits)
    heat = (batch.temperature != 0).to(batch.temperature.dtype)
    if not torch.equal(heat, batch.temperature):
        yield replace(batch, temperature=heat)


def to_arrays(batch: SamplerBatch) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the tensors of a step as NumPy arrays, and its other fields as JSON."""
    tensors = {name: getattr(batch, name) for name in TENSORS}
    plain = {
        "draft_token_ids": [list(ids) for ids in batch.draft_token_ids],
        "seeds": None if batch.seeds is None else list(batch.seeds),
        "synthetic_rates": None if batch.synthetic_rates is None else list(batch.synthetic_rates),
    }
    return {name: np.asarray(value) for name, value in tensors.items() if value is not None}, plain


def from_arrays(tensors: Mapping[str, Any], plain: Mapping[str, Any]) -> SamplerBatch:
    """Return the step that `to_arrays` took apart."""
    return SamplerBatch(**{name: torch.from_numpy(np.array(value)) for name, value in tensors.items()}, **plain)


def require_right(sampler: SamplerUnderTest, batch: SamplerBatch) -> None:
    """Run a saved step. Raise Mismatch if a certain request emits other tokens, or the sampler raises."""
    wrong = wrong_in(sampler, batch)
    if wrong is None:
        return
    if wrong.error:
        sampler(batch)  # raises again, with the traceback
    raise Mismatch(Failure(Kind.VALUE, wrong.message))
