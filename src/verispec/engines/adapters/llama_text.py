"""Texts of llama.cpp whose words are token ids, and the answers that it streams of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from verispec.engines.adapters.admission import Turn
from verispec.engines.adapters.counted_steps import CountedSteps
from verispec.engines.protocol.generation import FinishReason, GenerationResult, TokenKind, TokenLogprobs

MARKS = 16
"""Marks before the id of a token. A stop string with fewer of them leaves the others, which tell it from the rest."""


def word(token: int, marks: int = MARKS) -> str:
    """Return the text of a token; no text but the token's own ends with it."""
    return "<" * marks + f"{token}>"


def tokens_of(text: str) -> list[int]:
    """Return the tokens of a text."""
    return [int(token) for token in re.findall(r"<(\d+)>", text)]


def stop_words(stops: Collection[int]) -> list[str]:
    """Return a stop string for each of at most `MARKS` tokens, in order."""
    return [word(token, MARKS - place) for place, token in enumerate(sorted(stops))]


def stop_token(text: str, stops: Collection[int]) -> int:
    """Return the token whose stop string ended `text`, which has all before that string."""
    return sorted(stops)[len(text) - len(text.rstrip("<"))]


@dataclass(slots=True)
class StreamedAnswer:
    """The answer to a request so far; a call takes a further piece, and returns True to abort the request.

    Attributes:
        turn: the request.
        emit: function called with new tokens, and with no kinds.
    """

    turn: Turn
    emit: Callable[[Sequence[int], Sequence[TokenKind]], None]
    text: str = ""
    tokens: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    steps: CountedSteps = field(default_factory=CountedSteps)
    reason: FinishReason | None = None
    error: str = ""

    def __call__(self, piece: dict[str, Any]) -> bool:
        """Add a piece of the answer."""
        if "choices" not in piece:
            self.error = str(piece)
            return True
        [choice] = piece["choices"]
        self.text += choice["text"]
        new = tokens_of(choice["text"])
        if choice["finish_reason"]:
            self.reason = FinishReason(choice["finish_reason"])
            if self.reason is FinishReason.STOP:
                new.append(stop_token(self.text, self.turn.stops))
        times = piece.get("timings", {})
        for token in new:
            self.tokens.append(token)
            self.steps.count(times.get("draft_n", 0), times.get("draft_n_accepted", 0))
        for entry in (choice["logprobs"] or {}).get("content", ()):
            top = tuple((one["id"], one["logprob"]) for one in entry["top_logprobs"])
            self.logprobs.append(TokenLogprobs(entry["logprob"], top[: self.turn.request.logprobs]))
        if new:
            self.emit(new, ())
        after = self.turn.request.abort_after
        if after is not None and self.reason is None and len(self.tokens) >= after:
            self.reason = FinishReason.ABORT
        return self.reason is FinishReason.ABORT

    def result(self) -> GenerationResult:
        """Return the result of a request that has ended."""
        if self.reason is None:
            raise RuntimeError(f"llama.cpp ended a request without a reason: {self.error}")
        made = self.turn.result(self.tokens, self.logprobs, steps=tuple(self.steps.steps))
        return replace(made, finish_reason=self.reason)
