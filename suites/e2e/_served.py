"""A server's model: its next-token distributions from a checkpoint, or from prefills of one token.

A request for one token drafts nothing, so its log-probabilities are the target's own. They
test a server whose checkpoint is unknown, as far as they reach: the most likely tokens, and a bound for every other.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch

from verispec import fixtures
from verispec.cases.request_parameters import distribution, possible, processed, slack_after
from verispec.engines import UnsupportedCall
from verispec.engines.protocol.generation import GenerationRequest
from verispec.engines.protocol.serving import Choice, Server
from verispec.judge import Failure, Kind, Mismatch
from verispec.judge.statistics.rows import Rows
from verispec.judge.statistics.text import GivenText
from verispec.reference.models import load_tokenizer
from verispec.suites.e2e._reference_model import Array, ReferenceModel, greedy_text, model, reference_model
from verispec.suites.e2e._setups import require

ROUNDING = {"float64": 1e-6, "float32": 1e-3, "float16": 0.05, "bfloat16": 0.25}
"""Maximum difference of a logit between two forward passes of other shapes.

It is far above the differences of small models, and far below the margin of a wrong token, which is about 1."""
ARITHMETIC = 1e-5
"""Error of a float32 log-softmax."""
LEAST_PROMPT = 24
PHRASES = ("🙂é", "… — ", "ñ", "日本語 ")
"""Phrases whose characters many tokenizers write as several tokens; a model tends to repeat what is repeated."""


@dataclass(frozen=True)
class Row:
    """Log-probabilities of one place.

    Attributes:
        ids: [C] tokens, most likely first.
        logprobs: [C] of these tokens.
        rest: upper bound of every other token's; -inf if there is none.
        scale: difference of the model's own logits and their log-probabilities; 0 where it is not known.
    """

    ids: Array
    logprobs: Array
    rest: float
    scale: float = 0.0

    def at_most(self, token: int) -> float:
        """Return the token's log-probability, or the bound of it."""
        found = np.flatnonzero(self.ids == token)
        return float(self.logprobs[found[0]]) if len(found) else self.rest

    def place(self, token: int) -> int:
        """Return the token's place among the known ones, or their number if it is not one of them."""
        found = np.flatnonzero(self.ids == token)
        return int(found[0]) if len(found) else len(self.ids)

    def knows(self, token: int) -> bool:
        """Return True if the token's own log-probability is known."""
        return bool((self.ids == token).any())


class ServedModel:
    """The model behind a server."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._source = server.reference or server
        self._taken: dict[str, bool] = {}

    @property
    def exact(self) -> bool:
        """True if whole distributions are known."""
        return self.server.checkpoint is not None

    @cached_property
    def _reference(self) -> ReferenceModel:
        folder = self.server.checkpoint
        assert folder is not None
        # Reusing the default's cache entry saves loading the model twice.
        return (
            reference_model(folder)
            if self.server.dtype == "float32"
            else reference_model(folder, getattr(torch, self.server.dtype))
        )

    @cached_property
    def tokenizer(self) -> Any:
        """The checkpoint's tokenizer. Raises UnsupportedCall without a checkpoint."""
        if self.server.checkpoint is None:
            raise UnsupportedCall("only a checkpoint tells the tokens of a text; add checkpoint=FOLDER")
        return load_tokenizer(self.server.checkpoint)

    def takes(self, **fields: Any) -> bool:
        """Return True if the server takes a request with these fields."""
        return self._takes(GenerationRequest(self.prompts(1)[0], max_tokens=1, **fields))

    def _takes(self, request: GenerationRequest) -> bool:
        known = repr(request)
        if known not in self._taken:
            try:
                self.server.ask([request])
            except UnsupportedCall:
                self._taken[known] = False
            else:
                self._taken[known] = True
        return self._taken[known]

    def ends(self, request: GenerationRequest) -> frozenset[int]:
        """Return the tokens that end an answer; without a checkpoint, those of the request alone."""
        own = self._eos if self.exact and not request.ignore_eos else frozenset()
        return own | frozenset(request.stop_token_ids)

    def prompts(self, count: int, *, repeated: bool = False) -> list[tuple[int, ...]]:
        """Return prompts of 24 tokens that read the same after decoding; every second phrase twice if `repeated`."""
        if self.server.checkpoint is None:
            starts = range(11, 11 + count)
            found = [tuple(11 + (start * 37 + n * n * 13) % 900 for n in range(LEAST_PROMPT)) for start in starts]
        else:
            found = list(itertools.islice(self._texts(), count))
        return [(*p[:12], *p[:12]) if repeated else p for p in found]

    @lru_cache(maxsize=1)  # noqa: B019 - lives as long as the process
    def characters(self) -> list[tuple[int, ...]]:
        """Return prompts that the model continues with characters of several tokens, and with nothing that is no text.

        Raises:
            UnsupportedCall: there is no checkpoint, or no such prompt is known.
        """
        tokenizer, folder = self.tokenizer, self.server.checkpoint
        assert folder is not None
        found = []
        for phrase in PHRASES:
            ids = tuple(tokenizer.encode(phrase, add_special_tokens=False))
            prompt = ids * -(-LEAST_PROMPT // len(ids))
            own = greedy_text(folder, prompt, LEAST_PROMPT)
            text = self.decode(own).rstrip("\ufffd")
            if "\ufffd" not in text and any("\ufffd" in self.decode([token]) for token in own[: len(text)]):
                found.append(prompt)
        if not found:
            raise UnsupportedCall("the model continues no known prompt with characters of several tokens")
        return found

    def _texts(self) -> Any:
        for text in fixtures.prompts():
            ids = tuple(self.tokenizer.encode(text, add_special_tokens=False))
            for length in range(LEAST_PROMPT, len(ids)):
                if tuple(self.tokenizer.encode(self.tokenizer.decode(ids[:length]))) == ids[:length]:
                    yield ids[:length]
                    break

    def rows(self, prompt: tuple[int, ...], tokens: tuple[int, ...]) -> tuple[list[Row], float]:
        """Return the row of every token, and how far a log-probability may be off.

        Raises:
            UnsupportedCall: there is no checkpoint, and the server reports no log-probabilities.
        """
        if self.exact:
            logits = self._reference.logits(prompt, tokens)
            return [_whole(row) for row in logits], 2 * self._reference.rounding(prompt, tokens) + ARITHMETIC
        return self._prefilled(prompt, tokens), 2 * ROUNDING[self.server.dtype]

    @lru_cache(maxsize=64)  # noqa: B019 - lives as long as the process
    def _prefilled(self, prompt: tuple[int, ...], tokens: tuple[int, ...]) -> list[Row]:
        most = self._source.most_logprobs
        if not most:
            raise UnsupportedCall("the server reports no log-probabilities, and its checkpoint is unknown")
        asked = [
            GenerationRequest((*prompt, *tokens[:place]), max_tokens=1, logprobs=most) for place in range(len(tokens))
        ]
        rows = []
        for answer in self._source.ask(asked):
            [entry] = answer.choices[0].logprobs
            if not entry.top or any(token < 0 for token, _ in entry.top):
                raise UnsupportedCall("the server reports log-probabilities without token ids")
            ids, values = (np.array(column) for column in zip(*entry.top, strict=True))
            rows.append(Row(ids, values, float(values[-1])))
        return rows

    def judge_greedy(self, request: GenerationRequest, choice: Choice, what: str) -> None:
        """Raise `Mismatch` unless every token is the most likely one after the penalties, up to the text's end."""
        if choice.token_ids is None:
            self._judge_text(request, choice.text, what)
            return
        tokens = choice.token_ids
        if not tokens:
            raise Mismatch(Failure(Kind.VALUE, f"{what} emitted nothing"))
        rows, slack = self.rows(request.prompt_token_ids, tokens)
        for place, (row, token) in enumerate(zip(rows, tokens, strict=True)):
            best, margin = self._behind(row, request, tokens[:place], token)
            if margin > slack_after(slack, request):
                message = (
                    f"{what} emitted {token} at position {place}; the model's token is {best}, ahead by at least "
                    f"{margin:.3g} where rounding explains {slack:.2g}"
                )
                details = {"position": place, "token": token, "argmax": best, "margin": margin, "bound": slack}
                raise Mismatch(Failure(Kind.VALUE, message, total=len(tokens), details=details))
        if choice.finish_reason:
            self._judge_end(request, tokens, choice.finish_reason, what)

    def _behind(self, row: Row, request: GenerationRequest, before: tuple[int, ...], token: int) -> tuple[int, float]:
        """Return a token that is surely more likely, and by how much at least; the token itself and 0 if none is."""
        known = (*before, *request.prompt_token_ids, *request.logit_bias, *request.stop_token_ids)
        size = 1 + int(max(*row.ids, token, *known))
        dense = np.full(size, row.rest + row.scale)
        dense[row.ids] = row.logprobs + row.scale
        after = processed(dense, request, before, self._forbidden(request))
        best = int(row.ids[after[row.ids].argmax()])
        return best, max(float(after[best] - after[token]), 0.0)

    def _forbidden(self, request: GenerationRequest) -> frozenset[int]:
        """Return the tokens that a minimum of tokens forbids."""
        return self.ends(request) if request.min_tokens else frozenset()

    def _judge_end(self, request: GenerationRequest, tokens: tuple[int, ...], reason: str, what: str) -> None:
        """Raise `Mismatch` unless a greedy answer ends at its length, or where the text of the model ends.

        A server may leave the end token out of an answer's tokens. Without a checkpoint a stop shows nothing.
        """
        count, most = len(tokens), request.max_tokens
        if count > most or (reason == "length" and count < most):
            raise Mismatch(Failure(Kind.VALUE, f"{what} has {count} of {most} tokens and finished by {reason!r}"))
        ends = self.ends(request)
        if not self.exact or reason == "length" or request.stop or tokens[-1] in ends:
            return
        for end in ends:
            rows, slack = self.rows(request.prompt_token_ids, (*tokens, end))
            if self._behind(rows[-1], request, tokens, end)[1] <= slack_after(slack, request):
                return
        text = f"{what} finished by {reason!r} after {count} tokens, where the model's text goes on"
        raise Mismatch(Failure(Kind.VALUE, text))

    def require_text(self, choice: Choice, what: str) -> None:
        """Raise `Mismatch` unless an answer's text is that of its tokens; an unfinished last character is free."""
        tokens = tokens_of(choice)
        expected = self.decode(tokens)
        if "\ufffd" in expected.rstrip("\ufffd"):
            return  # Decoders differ in how they replace bytes that are no text.
        if choice.text.rstrip("\ufffd") != expected.rstrip("\ufffd"):
            message = f"{what} has the text {choice.text!r}, its tokens are {expected!r}"
            raise Mismatch(Failure(Kind.VALUE, message))

    def require_stopped(self, request: GenerationRequest, choice: Choice, expected: str, what: str) -> None:
        """Raise `Mismatch` unless an answer has the text `expected`, which ends before a stop string."""
        if not choice.text.startswith(expected) and not expected.startswith(choice.text):
            # Another text altogether: another greedy token, which only a tie within rounding excuses.
            self.judge_greedy(request, choice, what)
            expected = before_first(choice.text, request.stop)
        require(choice.text == expected, f"{what} has the text {choice.text!r}, expected {expected!r}")
        require(choice.finish_reason == "stop", f"{what} finished by {choice.finish_reason!r}, expected 'stop'")

    def _judge_text(self, request: GenerationRequest, text: str, what: str) -> None:
        """Check a text without token ids by the model's own one, up to the first tie within rounding."""
        if self.server.checkpoint is None:
            raise UnsupportedCall("the server reports no token ids, and its checkpoint is unknown")
        if changes_logits(request):
            raise UnsupportedCall("the server reports no token ids")
        own = greedy_text(self.server.checkpoint, request.prompt_token_ids, request.max_tokens)
        ends = self.ends(request)
        end = next((n for n, token in enumerate(own) if token in ends), len(own))
        expected = self.decode(own[:end])
        if text == expected:
            return
        place = next(n for n in range(end + 1) if not text.startswith(self.decode(own[:n])) or n == end) - 1
        rows, slack = self.rows(request.prompt_token_ids, own)
        ranked = rows[max(place, 0)].logprobs
        margin = float(ranked[0] - ranked[1])
        if margin > slack:
            message = (
                f"{what} has the text {text!r}, the model's is {expected!r}; at token {place} its likeliest is ahead "
                f"by {margin:.3g} where rounding explains {slack:.2g}"
            )
            raise Mismatch(Failure(Kind.VALUE, message, details={"position": place, "margin": margin}))

    @cached_property
    def _eos(self) -> frozenset[int]:
        assert self.server.checkpoint is not None
        eos = model(self.server.checkpoint, torch.float64).config.eos_token_id
        return frozenset() if eos is None else frozenset(eos if isinstance(eos, list) else [eos])

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, special ones left out."""
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=True))

    def announce(self, asked: Sequence[GenerationRequest], answers: Sequence[Choice]) -> None:
        """Compute the rows of several answers at once, where whole rows are known."""
        if self.exact:
            pairs = zip(asked, answers, strict=True)
            self._reference.announce([(r.prompt_token_ids, c.token_ids) for r, c in pairs if c.token_ids])

    def add_sampled(
        self,
        evidence: GivenText,
        request: GenerationRequest,
        tokens: tuple[int, ...],
        beside: Sequence[int] | None = None,
    ) -> None:
        """Check the tokens of one sampled answer; places whose top-p cut rounding may move are left out.

        Args:
            evidence: evidence to which they are added.
            request: request that was answered.
            tokens: [n] tokens of the answer.
            beside: [n] token of another answer to the same text before; -1 without one. None without any.
        """
        others = np.full(len(tokens), -1) if beside is None else np.array(beside)
        if self.exact:
            self._add_exact(evidence, request, tokens, others)
            return
        rows, slack = self.rows(request.prompt_token_ids, tokens)
        for row, token, neighbour in zip(rows, tokens, others.tolist(), strict=True):
            heat = request.temperature
            known = np.exp(row.logprobs / heat)
            mass = max(1.0 - float(np.exp(row.logprobs).sum()), 1e-9)
            # At heat <= 1 every other token's weight is at most its probability times rest^(1 / heat - 1).
            other = mass * np.exp(row.rest * (1 / heat - 1))
            p = np.append(known, other)
            at, near = np.array([row.place(token)]), np.array([-1 if neighbour < 0 else row.place(neighbour)])
            doubt = -np.log1p(-other / p.sum()) if heat < 1 else 0.0
            paid = slack / heat + float(doubt)
            evidence.add(Rows(p[None] / p.sum()), np.zeros(1, int), at, slack=paid, neighbour=near)

    def _add_exact(
        self, evidence: GivenText, request: GenerationRequest, tokens: tuple[int, ...], others: Array
    ) -> None:
        logits = self._reference.logits(request.prompt_token_ids, tokens)
        off = slack_after(self._reference.rounding(request.prompt_token_ids, tokens), request)
        forbidden = self._forbidden(request)
        rows, judged = [], []
        limited = request.top_k or request.top_p < 1 or request.min_p
        for place, token in enumerate(tokens):
            row = processed(logits[place], request, tokens[:place], forbidden)
            rows.append(distribution(row, request))
            if not limited:
                judged.append(True)
                continue
            wide = possible(row, request, off)
            if not wide[token]:
                message = f"token {token} at position {place} has probability 0 under the request's limits"
                raise Mismatch(Failure(Kind.LAW, message))
            judged.append(bool((wide == (_narrow(row, request, off) > 0)).all()))
        at = np.flatnonzero(judged)
        if len(at):
            slack = 2 * off / request.temperature
            p = np.stack(rows)[at]
            evidence.add(Rows(p), np.arange(len(at)), np.array(tokens)[at], slack=slack, neighbour=others[at])


def _narrow(row: Array, request: GenerationRequest, off: float) -> Array:
    """Return the distribution under limits that keep only what no error of a logit up to `off` excludes."""
    margin = off / request.temperature
    top_p = request.top_p * np.exp(-4 * margin) - 1e-5 if request.top_p < 1 else 1.0
    return distribution(row, replace(request, top_p=top_p, min_p=min(request.min_p * np.exp(2 * margin), 1.0)))


def _whole(logits: Array) -> Row:
    order = np.argsort(-logits)
    best = logits[order[0]]
    scale = float(best + np.log(np.exp(logits - best).sum()))
    return Row(order, logits[order] - scale, -np.inf, scale)


def changes_logits(request: GenerationRequest) -> bool:
    """Return True if a request changes the model's logits, so that its text needs token ids to be checked."""
    return bool(
        request.repetition_penalty != 1
        or request.presence_penalty
        or request.frequency_penalty
        or request.logit_bias
        or request.allowed_token_ids
    )


def before_first(text: str, stops: Sequence[str]) -> str:
    """Return the text before the first of `stops` in it."""
    return text[: min((text.find(stop) for stop in stops if stop in text), default=len(text))]


def is_cut(part: Choice, whole: Choice) -> bool:
    """Return True if an answer lacks the end of another one, as far as it is reported.

    Another last token may have no text, such as the first byte of a character: the answer then differs, and lacks
    nothing.
    """
    ids, of_whole = part.token_ids, whole.token_ids
    if ids is not None and of_whole is not None and ids != of_whole[: len(ids)]:
        return False
    return part.text != whole.text and whole.text.startswith(part.text)


def tokens_of(choice: Choice) -> tuple[int, ...]:
    """Return an answer's tokens. Raises UnsupportedCall where the server reports none."""
    if choice.token_ids is None:
        raise UnsupportedCall("the server reports no token ids")
    return choice.token_ids
