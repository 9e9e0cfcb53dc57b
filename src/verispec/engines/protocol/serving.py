"""The protocol of a served engine: requests over a connection, in one piece or streamed, and raw bodies.

`Engine` objects that test a server have one more method, ``server()``, which returns a `Server`. The cases of
contract SRV need it; every other engine is left out of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from verispec.engines.protocol.generation import GenerationRequest, TokenLogprobs


@dataclass(frozen=True, slots=True)
class Choice:
    """One sample of an answer.

    Attributes:
        text: the decoded output.
        token_ids: the emitted tokens; None where the server does not report them.
        finish_reason: reason as the server writes it; empty when the caller closed the connection before the end.
        logprobs: one entry per token when asked for.
        pieces: the texts of a streamed answer in order of arrival; empty otherwise.
        late: True if text or tokens of a stream came after its finish reason.
    """

    text: str
    token_ids: tuple[int, ...] | None
    finish_reason: str
    logprobs: tuple[TokenLogprobs, ...] = ()
    pieces: tuple[str, ...] = ()
    late: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """All samples of one request.

    Attributes:
        choices: choices by index.
        prompt_tokens: the server's count; None where it is not reported.
        completion_tokens: the server's count over all samples; None where it is not reported.
        total_tokens: the server's sum of both; None where it is not reported.
        ended: True if a stream closed with its end mark; True for an answer in one piece.
        prompt_logprobs: one entry per prompt token when asked for, None for the first.
    """

    choices: tuple[Choice, ...]
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    ended: bool = True
    prompt_logprobs: tuple[TokenLogprobs | None, ...] = ()


@runtime_checkable
class Server(Protocol):
    """A server that completes prompts."""

    @property
    def checkpoint(self) -> Path | None:
        """The checkpoint folder that the server serves; None if it is unknown."""
        ...

    @property
    def dtype(self) -> str:
        """The dtype that the server computes in."""
        ...

    @property
    def reference(self) -> Server | None:
        """Another server of the same model without speculation; None if there is none."""
        ...

    @property
    def most_logprobs(self) -> int:
        """Maximum number of most likely tokens in an answer; 0 when the server reports no log-probabilities."""
        ...

    @property
    def logprobs_mode(self) -> str:
        """The kind of log-probabilities, one of `LOGPROBS_MODES`; empty where neither is documented."""
        ...

    def ask(self, requests: Sequence[GenerationRequest], *, stream: bool = False) -> list[Answer]:
        """Send all requests at once, and return their answers in order.

        Args:
            requests: one with `abort_after` is streamed, and its connection is closed after that many pieces.
            stream: True asks for streamed answers.

        Raises:
            UnsupportedCall: the server refuses a request, or has no such parameter.
        """
        ...

    def post(self, body: bytes | Mapping[str, Any]) -> tuple[int, str]:
        """Send `body` as a completion request, fields that name the model included; return status and text."""
        ...

    def body(self, request: GenerationRequest) -> dict[str, Any]:
        """Return the body that `ask` sends for `request`.

        Raises:
            UnsupportedCall: the server has no such parameter.
        """
        ...

    def running(self) -> int | None:
        """Return how many requests the server computes now; None where it does not report that."""
        ...
