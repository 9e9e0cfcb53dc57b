"""The decisions of the counter-based RNG: every draft, acceptance and token of a request, from its seed alone.

The numbers are those of the contract philox and exact. Probabilities come from float64 reference models, and an
engine's may differ by rounding. Each decision is tested by intervals: some probabilities that close must lead to
it. A near-tie is therefore right either way, and engines that pass give the same tokens wherever nothing is one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from verispec.cases.request_parameters import processed, slack_after
from verispec.engines.protocol.generation import FinishReason, GenerationRequest, GenerationResult
from verispec.judge import Failure, Kind, Mismatch
from verispec.reference.oracle.philox import Draw, gumbel, uniform
from verispec.run.record import FAULT
from verispec.suites.e2e._reference_model import Array, ReferenceModel
from verispec.suites.e2e._tiny import EOS

ARITHMETIC = 2.0**-16
"""Maximum error of a score or a logarithm, over the largest of 1, |logit| and |logit / temperature|.

Source: clauses GUM-8, PRJ-11 and RSR-14."""

Known = Callable[[list[int]], list[int]]
"""The drafts of a proposer that draws none, from the sequence so far."""


@dataclass(frozen=True)
class LogitRows:
    """Log-probabilities [tokens, V] at every place of a text, and how far an engine's may be from them."""

    log_p: Array
    slack: float

    @classmethod
    def of(
        cls,
        model: ReferenceModel,
        request: GenerationRequest,
        tokens: tuple[int, ...],
        *,
        drafter: bool = False,
        missing: float = -np.inf,
    ) -> LogitRows:
        """Return the rows of the target, under the request's parameters, or those of its drafter, which has none.

        A drafter's tokens that it cannot draft have the logit `missing`, which is wrong unless it is minus infinity.
        """
        logits = model.logits(request.prompt_token_ids, tokens)
        if drafter:
            logits = np.where(np.isneginf(logits), missing, logits)
        rounding = model.rounding(request.prompt_token_ids, tokens)
        if not drafter:
            stops = {*request.stop_token_ids, *(() if request.ignore_eos else (EOS,))}
            logits = np.stack([processed(row, request, tokens[:i], stops) for i, row in enumerate(logits)])
            rounding = slack_after(rounding, request)
        warm = logits / request.temperature
        largest = float(np.abs(logits[np.isfinite(logits)]).max())
        rounding /= request.temperature
        top = warm.max(axis=1, keepdims=True)
        log_p = warm - top - np.log(np.exp(warm - top).sum(axis=1, keepdims=True))
        return cls(log_p, rounding + ARITHMETIC * max(1.0, largest, largest / request.temperature))


@dataclass(frozen=True)
class Reading:
    """A way to choose the numbers of a draw.

    Attributes:
        mistake: the way in words, to follow "as if"; empty for the right one.
        skips: tokens before the text that positions do not count: "prompt", "text" or nothing.
        shift: number added to every position.
        has_step: True if the number of the draft counts.
        seed_bits: lowest bits of the seed that count.
        draws: draws that choose so; the others are right.
    """

    mistake: str = ""
    skips: str = ""
    shift: int = 0
    has_step: bool = True
    seed_bits: int = 64
    draws: tuple[Draw, ...] = tuple(Draw)


VERIFICATION = (Draw.TARGET, Draw.ACCEPT)
MISREADINGS = tuple(
    replace(reading, mistake=f"{reading.mistake}{where}", draws=draws)
    for reading in (
        Reading("every step were at position 0", skips="text"),
        Reading("positions did not count the prompt", skips="prompt"),
        Reading("positions were those of the tokens that are drawn", shift=1),
        Reading("positions were those before the input tokens", shift=-1),
        Reading("drafts of a step had no number", has_step=False),
        Reading("a seed had 32 bits", seed_bits=32),
    )
    for where, draws in (
        ("", tuple(Draw)),
        (", in verification alone", VERIFICATION),
        (", in drafting alone", (Draw.DRAFT,)),
    )
)
"""Mistakes that explain a whole text."""
UNMASKED = "tokens that the head cannot draft had the logit 0"


class Definition:
    """A sampled request without min-p, top-k and top-p, as the numbers of its seed define it.

    Args:
        request: request with a seed and a temperature.
        tokens: tokens that an engine emitted.
        target: reference model of the engine's target.
        drafter: the model that draws its drafts; it must answer for every place, so of an Eagle3 head for first drafts.
        known: the drafts of a proposer that draws none.
        most: K.
    """

    def __init__(
        self,
        request: GenerationRequest,
        tokens: tuple[int, ...],
        target: ReferenceModel,
        drafter: ReferenceModel | None = None,
        known: Known | None = None,
        most: int = 0,
    ) -> None:
        assert request.seed is not None
        self._request, self._tokens, self._seed = request, tokens, request.seed
        self._p = LogitRows.of(target, request, tokens)
        self._drafter = drafter
        self._q = LogitRows.of(drafter, request, tokens, drafter=True) if drafter else None
        self._known = known
        self._most = most
        self._reading = Reading()

    def judge(self, result: GenerationResult, what: str) -> int:
        """Judge every step of `result`; returns how many drafts were verified.

        Raises:
            Mismatch: at the first fault, with the mistakes that explain all tokens, if there are some.
        """
        try:
            return self._judge(result, what)
        except Mismatch as mismatch:
            mistake = next((reading.mistake for reading in MISREADINGS if self._fits(reading, result)), "")
            mistake = mistake or (UNMASKED if self._fits_unmasked(result) else "")
            told = mismatch.failure.message
            if count := result.preemptions:
                told += f"; this request was preempted {'once' if count == 1 else f'{count} times'}"
            if mistake:
                told += f"; all {len(self._tokens)} tokens are as if {mistake}"
            details = {**mismatch.failure.details, **({FAULT: mistake} if mistake else {})}
            failure = replace(mismatch.failure, message=told, details=details)
            raise Mismatch(failure) from None

    def _fits(self, reading: Reading, result: GenerationResult) -> bool:
        """Return True if the numbers of `reading` give the whole text."""
        self._reading = reading
        try:
            self._judge(result, "")
        except Mismatch:
            return False
        finally:
            self._reading = Reading()
        return True

    def _fits_unmasked(self, result: GenerationResult) -> bool:
        """Return True if the whole text is that of a drafter whose missing tokens have the logit 0."""
        own = self._q
        if self._drafter is None or own is None or np.isfinite(own.log_p).all():
            return False
        try:
            self._q = LogitRows.of(self._drafter, self._request, self._tokens, drafter=True, missing=0.0)
            self._judge(result, "")
        except Mismatch:
            return False
        finally:
            self._q = own
        return True

    def _judge(self, result: GenerationResult, what: str) -> int:
        place = drafted = 0
        for step in result.steps:
            self._judge_step(place, step.drafted, step.accepted, f"{what}, token {place}")
            place += step.accepted + 1
            drafted += step.drafted
        if result.finish_reason is FinishReason.STOP:
            place = min(place, len(self._tokens))
        if place != len(self._tokens):
            raise Mismatch(
                Failure(Kind.VALUE, f"{what}: steps report {place} tokens, {len(self._tokens)} were emitted")
            )
        return drafted

    def _judge_step(self, place: int, drafted: int, accepted: int, what: str) -> None:
        known = self._proposed(place)
        wanted = min(self._most, self._request.max_tokens - place - 1) if known is None else len(known)
        due = f"{wanted} follow from the text so far" if place else "none before the first token of an output"
        message = f"{what}: {drafted} drafts were verified, {due}"
        if drafted < wanted and known:
            again = _repeated((*self._request.prompt_token_ids, *self._tokens[:place]))
            message += f", of which the last {f'{again} tokens occur' if again > 1 else 'token alone occurs'} before"
        _require(drafted == wanted, message)
        for step in range(min(accepted, len(self._tokens) - place)):
            token = self._tokens[place + step]
            _require(
                token in self._drafts(known, place, step), f"{what}: draft {step + 1} is not {token} by its numbers"
            )
            possible = self._may_accept(place, step, token)
            _require(possible, f"{what}: draft {step + 1}, {token}, is accepted against its number")
        if place + accepted >= len(self._tokens):
            return  # A stop token among the drafts ended the output.
        token = self._tokens[place + accepted]
        if accepted == drafted:
            right = self._wins(place, accepted, token, self._p.log_p[place + accepted], self._p.slack)
            _require(right, f"{what}: {token} behind {drafted} accepted drafts is not the token of its numbers")
            return
        drafts = self._drafts(known, place, accepted)
        rejected = [draft for draft in drafts if self._may_reject(place, accepted, draft)]
        _require(bool(rejected), f"{what}: draft {accepted + 1}, one of {drafts[:4]}, is rejected against its number")
        right = any(self._recovers(place, accepted, draft, token) for draft in rejected)
        _require(right, f"{what}: {token} is not the token recovered by the numbers of a rejected draft {accepted + 1}")

    def _proposed(self, place: int) -> list[int] | None:
        """Return the drafts that need no random number, none for the first token; None if a model draws them."""
        if place == 0 or (self._known is None and self._q is None):
            return []
        if self._known is None:
            return None
        sequence = [*self._request.prompt_token_ids, *self._tokens[:place]]
        return self._known(sequence)[: self._request.max_tokens - place - 1]

    def _drafts(self, known: list[int] | None, place: int, step: int) -> list[int]:
        """Return the possible draft tokens of a step: one token, or those of a near-tie."""
        if known is not None:
            return [known[step]]
        assert self._q is not None
        row = self._q.log_p[place + step]
        return np.flatnonzero(self._leaders(place, step, Draw.DRAFT, row, self._q.slack)).tolist()

    def _ratio(self, place: int, step: int, draft: int) -> tuple[float, float]:
        """Return log p - log u - log q, which is above 0 for an accepted draft, and its maximum error."""
        log_u = float(np.log(uniform(*self._key(place, step, Draw.ACCEPT), Draw.ACCEPT)))
        ratio, slack = float(self._p.log_p[place + step, draft]) - log_u, self._p.slack
        if self._q is not None:
            ratio, slack = ratio - float(self._q.log_p[place + step, draft]), slack + self._q.slack
        return ratio, slack

    def _may_accept(self, place: int, step: int, draft: int) -> bool:
        ratio, slack = self._ratio(place, step, draft)
        return ratio > -slack

    def _may_reject(self, place: int, step: int, draft: int) -> bool:
        ratio, slack = self._ratio(place, step, draft)
        return ratio <= slack

    def _recovers(self, place: int, step: int, draft: int, token: int) -> bool:
        p = np.exp(self._p.log_p[place + step])
        if self._q is None:
            return token != draft and self._wins(
                place,
                step,
                token,
                np.where(np.arange(len(p)) == draft, -np.inf, self._p.log_p[place + step]),
                self._p.slack,
            )
        q = np.exp(self._q.log_p[place + step])
        moved = np.expm1(self._p.slack) * p + np.expm1(self._q.slack) * q
        numbers = gumbel(*self._key(place, step, Draw.TARGET), Draw.TARGET, len(p))
        with np.errstate(divide="ignore"):
            low, high = (np.log((p - q + change).clip(min=0)) + numbers for change in (-moved, moved))
        return bool(high[token] >= low.max())

    def _wins(self, place: int, step: int, token: int, log_p: Array, slack: float) -> bool:
        return bool(self._leaders(place, step, Draw.TARGET, log_p, slack)[token])

    def _leaders(self, place: int, step: int, draw: Draw, log_p: Array, slack: float) -> Array:
        """Return a mask of the tokens that may have the highest score of a draw, [V]."""
        score = log_p + gumbel(*self._key(place, step, draw), draw, len(log_p))
        leaders: Array = score >= score.max() - 2 * slack
        return leaders

    def _key(self, place: int, step: int, draw: Draw) -> tuple[int, int, int]:
        """Return seed, position and step of a row's numbers; the position is that of its input token.

        The token at `place` is drawn in the row of the token before it.
        """
        reading, prompt = self._reading, len(self._request.prompt_token_ids)
        position = prompt + place - 1 + step
        if draw not in reading.draws:
            return self._seed, position, step
        position -= {"": 0, "prompt": prompt, "text": prompt + place - 1}[reading.skips]
        seed = self._seed if reading.seed_bits == 64 else self._seed % 2**reading.seed_bits
        return seed, max(position + reading.shift, 0), step if reading.has_step else 0


def _require(good: bool, message: str) -> None:
    if not good:
        raise Mismatch(Failure(Kind.VALUE, message))


def _repeated(text: Sequence[int]) -> int:
    """Return the length of the longest suffix that occurs earlier in the text."""
    lengths = range(1, len(text))
    occurs = (any(text[at : at + n] == text[-n:] for at in range(len(text) - n)) for n in lengths)
    return next((n - 1 for n, found in zip(lengths, occurs, strict=True) if not found), len(text) - 1)
