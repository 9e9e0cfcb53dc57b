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
from verispec.cases.request_parameters import processed, slack_after
from verispec.engines import UnsupportedCall
from verispec.engines.protocol.generation import GenerationRequest
from verispec.engines.protocol.serving import Choice, Server
from verispec.judge import Failure, Kind, Mismatch
from verispec.judge.statistics.rows import Rows
from verispec.judge.statistics.text import GivenText
from verispec.reference.models import load_tokenizer
from verispec.suites.e2e._reference_model import Array, ReferenceModel, greedy_text, model, reference_model

ROUNDING = {"float64": 1e-6, "float32": 1e-3, "float16": 0.05, "bfloat16": 0.25}
"""Maximum difference of a logit between two forward passes of other shapes.

It is far above the differences of small models, and far below the margin of a wrong token, which is about 1."""
ARITHMETIC = 1e-5
"""Error of a float32 log-softmax."""
LEAST_PROMPT = 24


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

    def prompts(self, count: int, *, repeated: bool = False) -> list[tuple[int, ...]]:
        """Return prompts of 24 tokens that read the same after decoding; every second phrase twice if `repeated`."""
        if self.server.checkpoint is None:
            starts = range(11, 11 + count)
            found = [tuple(11 + (start * 37 + n * n * 13) % 900 for n in range(LEAST_PROMPT)) for start in starts]
        else:
            found = list(itertools.islice(self._texts(), count))
        return [(*p[:12], *p[:12]) if repeated else p for p in found]

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
        """Raise `Mismatch` unless every token is the most likely one after the request's penalties."""
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

    def _behind(self, row: Row, request: GenerationRequest, before: tuple[int, ...], token: int) -> tuple[int, float]:
        """Return a token that is surely more likely, and by how much at least; the token itself and 0 if none is."""
        size = 1 + int(max(*row.ids, token, *before, *request.prompt_token_ids, *request.logit_bias))
        dense = np.full(size, row.rest + row.scale)
        dense[row.ids] = row.logprobs + row.scale
        after = processed(dense, request, before)
        best = int(row.ids[after[row.ids].argmax()])
        return best, max(float(after[best] - after[token]), 0.0)

    def _judge_text(self, request: GenerationRequest, text: str, what: str) -> None:
        """Check a text without token ids by the model's own one, up to the first tie within rounding."""
        if self.server.checkpoint is None:
            raise UnsupportedCall("the server reports no token ids, and its checkpoint is unknown")
        if request.repetition_penalty != 1 or request.presence_penalty or request.frequency_penalty:
            raise UnsupportedCall("the server reports no token ids")
        own = greedy_text(self.server.checkpoint, request.prompt_token_ids, request.max_tokens)
        end = own.index(self._eos) if self._eos in own and not request.ignore_eos else len(own)
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
    def _eos(self) -> int:
        assert self.server.checkpoint is not None
        eos = model(self.server.checkpoint, torch.float64).config.eos_token_id
        return -1 if eos is None else int(eos[0] if isinstance(eos, list) else eos)

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, special ones left out."""
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=True))

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
        prompt = request.prompt_token_ids
        p = self._reference.distributions(request, tokens)
        judged = np.ones(len(tokens), bool)
        wide = self._reference.distributions(replace(request, top_p=min(request.top_p + 1e-5, 1.0)), tokens)
        for place, token in enumerate(tokens):
            if not wide[place, token] > 0:
                message = f"token {token} at position {place} has probability 0 under the request's limits"
                raise Mismatch(Failure(Kind.LAW, message))
        if request.top_p < 1:
            narrow = self._reference.distributions(replace(request, top_p=request.top_p - 1e-5), tokens)
            judged = ((wide > 0) == (narrow > 0)).all(axis=1)
        at = np.flatnonzero(judged)
        if len(at):
            slack = 2 * self._reference.rounding(prompt, tokens) / request.temperature
            evidence.add(Rows(p[at]), np.arange(len(at)), np.array(tokens)[at], slack=slack, neighbour=others[at])


def _whole(logits: Array) -> Row:
    order = np.argsort(-logits)
    best = logits[order[0]]
    scale = float(best + np.log(np.exp(logits - best).sum()))
    return Row(order, logits[order] - scale, -np.inf, scale)


def tokens_of(choice: Choice) -> tuple[int, ...]:
    """Return an answer's tokens. Raises UnsupportedCall where the server reports none."""
    if choice.token_ids is None:
        raise UnsupportedCall("the server reports no token ids")
    return choice.token_ids
