"""A server as `verispec.engines.protocol.serving.Server`: many requests in flight, streams, refusals."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from verispec import exits
from verispec.engines import UnsupportedCall
from verispec.engines.adapters.http.address import Address
from verispec.engines.adapters.http.client import TOKEN, Client, Reply, ServerFault
from verispec.engines.adapters.http.lifeline import Lifeline
from verispec.engines.adapters.http.plain import names_of, reporting
from verispec.engines.adapters.http.wire import DIALECTS, Dialect, answer_of, body_of, dialect_of, streamed_answer
from verispec.engines.protocol.generation import GenerationRequest
from verispec.engines.protocol.serving import Answer
from verispec.errors import VerispecError

COMPLETIONS = "/v1/completions"
MODELS = "/v1/models"
SHOWN = 200
"""Characters of a server's words that an error shows."""
_BUSY = "the server is busy or broken: try again, or look into its log"
_OTHER_PAGE = "correct host and port, or name the model if the server does not list it: ?model=NAME"
_HINTS = {429: _BUSY, **dict.fromkeys(range(500, 600), _BUSY)}
"""Hints by the status of the list of models."""
IN_FLIGHT = 32
"""Requests that are sent at the same time."""
FIRST = GenerationRequest((11, 12, 13), max_tokens=1)
"""A request that every server can answer."""
PROBE = 10.0
"""Seconds in which a server answers a short request that it has answered before."""


class HttpServer:
    """The server at an address.

    Raises:
        VerispecError: V-HTTP-CONNECT, nothing answers; V-HTTP-MODEL, it does not serve the model, or does not say which
            it serves; V-HTTP-LOST, V-HTTP-TIMEOUT or V-HTTP-ANSWER, its list of models does not arrive; V-HTTP-TOKENS,
            it takes no token ids, and there is no checkpoint with a tokenizer.
    """

    def __init__(self, address: Address) -> None:
        self.address = address
        self.checkpoint = address.checkpoint
        self.dtype = address.dtype
        self._client = Client(address)
        self._probe = Client(replace(address, timeout=min(address.timeout, PROBE)))
        self._lifeline = Lifeline(address.where, self._answers)
        self._asked_first = False
        self._answered: GenerationRequest | None = None
        """The shortest plain request that was answered."""
        models = self._models()
        self._lists_models = bool(models)
        ids = [str(entry.get("id")) for entry in models.get("data") or () if isinstance(entry, dict)]
        if not address.model and not ids:
            raise _no_model(address, f"{MODELS} lists no model: {_words(models)}", "name one: ?model=NAME")
        if address.model and ids and address.model not in ids:
            raise _no_model(address, f"the server has no model {address.model!r}", f"it serves {', '.join(ids)}")
        self.model = address.model or ids[0]
        self.dialect_name = address.dialect or dialect_of(models)
        if not DIALECTS[self.dialect_name].token_prompts and self.checkpoint is None:
            raise VerispecError(
                "V-HTTP-TOKENS",
                "the server takes prompts as text alone",
                where=f"--engine {address.where}",
                hint="name the served checkpoint, whose tokenizer is used: ?checkpoint=FOLDER",
                exit_code=exits.CANNOT_TELL,
            )

    @cached_property
    def _dialect(self) -> Dialect:
        """The server's parameters; one of an unknown kind is asked once how it reports tokens."""
        found = DIALECTS[self.dialect_name]
        return found if self.address.dialect or self.dialect_name != "openai" else reporting(found, self._asked)

    def _asked(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        reply = self._client.post(
            COMPLETIONS, {"model": self.model, "prompt": [1], "max_tokens": 1, "temperature": 0, **fields}
        )
        return _try_json(reply) if reply.status == 200 else {}

    @cached_property
    def _names(self) -> Mapping[str, int]:
        """Ids by the text of a token; empty where the tokenizer is unknown."""
        return {} if self.checkpoint is None or self.dialect_name != "openai" else names_of(self._tokenizer)

    @cached_property
    def reference(self) -> HttpServer | None:
        """The server at the address that option ``reference`` names."""
        return HttpServer(Address.parse(self.address.reference)) if self.address.reference else None

    def answer_once(self) -> None:
        """Have one plain request answered: the server's end is then seen in the first case too."""
        if not self._asked_first:
            self._asked_first = True
            with contextlib.suppress(ServerFault, VerispecError, UnsupportedCall):
                self._one(FIRST, stream=False)

    @property
    def most_logprobs(self) -> int:
        """See `verispec.engines.protocol.serving.Server`."""
        return self._dialect.most_logprobs

    @property
    def logprobs_mode(self) -> str:
        """See `verispec.engines.protocol.serving.Server`."""
        return self.address.logprobs_mode or self._dialect.logprobs_mode

    def ask(self, requests: Sequence[GenerationRequest], *, stream: bool = False) -> list[Answer]:
        """Send all requests at once; see `verispec.engines.protocol.serving.Server`."""
        with ThreadPoolExecutor(min(IN_FLIGHT, max(len(requests), 1))) as pool:
            sent = [pool.submit(self._lifeline.guarded, partial(self._one, each, stream=stream)) for each in requests]
        raised = [future.exception() for future in sent]
        # A lost answer is a finding; beside it, the refused connections of other requests are its consequence.
        if fault := next((error for error in raised if isinstance(error, ServerFault)), None):
            raise fault
        return [future.result() for future in sent]

    def body(self, request: GenerationRequest) -> dict[str, Any]:
        """Return the body that `ask` sends for `request`.

        Raises:
            UnsupportedCall: the server's dialect has no such parameter.
        """
        return body_of(request, self._dialect, self.model, self._decode)

    def post(self, body: bytes | Mapping[str, Any]) -> tuple[int, str]:
        """Return status and text of the answer to `body`."""
        reply = self._lifeline.guarded(lambda: self._client.post(COMPLETIONS, body))
        if reply.status >= 500:
            fault = self._lifeline.verdict(_refused(reply))
            if fault.diagnostic.code == "V-HTTP-DOWN":
                raise fault
        return reply.status, reply.text

    def running(self) -> int | None:
        """Return the requests that run or wait, from Prometheus; None where they are not served."""
        counts = self.counters()
        names = ("num_requests_running", "num_requests_waiting")
        found = [value for name, value in counts.items() if name.endswith(names)]
        return int(sum(found)) if found else None

    def counters(self) -> dict[str, float]:
        """Return Prometheus values by name, labels included; empty where none are served."""
        reply = self._client.get("/metrics")
        return prometheus(reply.text) if reply.status == 200 else {}

    def version(self) -> str:
        """Return the version where the server reports one, else the kind of server."""
        reply = self._client.get("/version")
        found = _try_json(reply) if reply.status == 200 else {}
        return str(found.get("version") or self.dialect_name)

    def _one(self, request: GenerationRequest, *, stream: bool) -> Answer:
        body = self.body(request)
        if not stream and request.abort_after is None:
            reply = self._client.post(COMPLETIONS, body)
            _require_accepted(reply)
            answer = answer_of(reply.text, request, self._names)
            self._remember(request)
            return answer
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        with self._client.stream(COMPLETIONS, body) as (status, lines):
            if status != 200:
                _require_accepted(Reply(status, b"".join(lines)))
            return streamed_answer(lines, request, self._names)

    def _remember(self, request: GenerationRequest) -> None:
        """Keep the shortest plain request, with which `_answers` asks."""
        is_plain = request == GenerationRequest(request.prompt_token_ids, max_tokens=request.max_tokens)
        if is_plain and (self._answered is None or request.max_tokens < self._answered.max_tokens):
            self._answered = request

    def _answers(self) -> bool:
        """Return True if the server answers what it has answered before, in time and with no status from 500 on."""
        asked: list[Callable[[], Reply]] = []
        if self._lists_models:
            asked.append(lambda: self._probe.get(MODELS))
        if known := self._answered:
            asked.append(lambda: self._probe.post(COMPLETIONS, self.body(known)))
        try:
            return all(ask().status < 500 for ask in asked)
        except (ServerFault, VerispecError):
            return False

    def _models(self) -> Mapping[str, Any]:
        """Return the server's list of models; empty where it has none and the address names the model.

        Raises:
            VerispecError: V-HTTP-MODEL, the server refuses, or it lists no models and the address names none;
                V-HTTP-LOST, V-HTTP-TIMEOUT or V-HTTP-ANSWER, there is no answer.
        """
        address = self.address
        try:
            reply = self._client.get(MODELS)
        except ServerFault as fault:
            raise _no_answer(address, fault) from fault
        if reply.status in (401, 403):
            raise _refused_token(address, reply)
        found = _try_json(reply) if reply.status == 200 else {}
        if not address.model and not isinstance(found.get("data"), list):
            status = "" if reply.status == 200 else f" {reply.status}"
            message = f"{MODELS} answers{status} and no list of models: {_message(reply)[:SHOWN]}"
            raise _no_model(address, " ".join(message.split()), _HINTS.get(reply.status, _OTHER_PAGE))
        return found

    @cached_property
    def _tokenizer(self) -> Any:
        from verispec.reference.models import load_tokenizer

        assert isinstance(self.checkpoint, Path)
        return load_tokenizer(self.checkpoint)

    def _decode(self, token_ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(token_ids))


def _require_accepted(reply: Reply) -> None:
    """Raise UnsupportedCall with the server's words for 4xx, ServerFault for any other status but 200."""
    if reply.status == 200:
        return
    if 400 <= reply.status < 500:
        message = " ".join(_message(reply).split())[:300]
        raise UnsupportedCall(f"the server answers {reply.status}: {message}")
    raise _refused(reply)


def _refused(reply: Reply) -> ServerFault:
    cause = " ".join(_message(reply).split())[:300]
    return ServerFault("V-HTTP-STATUS", f"the server answers {reply.status}", cause=cause)


def _message(reply: Reply) -> str:
    found = _try_json(reply)
    error = found.get("error", found.get("detail", found.get("message")))
    return str(error.get("message", error)) if isinstance(error, dict) else str(error or reply.text)


def _try_json(reply: Reply) -> Mapping[str, Any]:
    try:
        found = json.loads(reply.text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _words(found: Mapping[str, Any]) -> str:
    return json.dumps(found)[:SHOWN]


def _no_answer(address: Address, fault: ServerFault) -> VerispecError:
    """Return the error of a server whose list of models does not arrive."""
    found, hint = fault.diagnostic, f"look into the server's log; GET {MODELS} must answer"
    if found.code == "V-HTTP-TIMEOUT":
        hint = f"wait until the server is ready, or give it more time: ?timeout=SECONDS; GET {MODELS} must answer"
    elif address.scheme == "http":
        hint = f"if the server speaks TLS, write https://; {hint}"
    return VerispecError(
        found.code, found.message, where=found.where, cause=found.cause, hint=hint, exit_code=exits.CANNOT_TELL
    )


def _refused_token(address: Address, reply: Reply) -> VerispecError:
    message = f"the server answers {reply.status}: {' '.join(_message(reply).split())[:SHOWN]}"
    hint = f"set {TOKEN} to its token"
    return _no_model(address, message, f"{TOKEN} is set to another token: {hint}" if os.environ.get(TOKEN) else hint)


def _no_model(address: Address, message: str, hint: str) -> VerispecError:
    return VerispecError(
        "V-HTTP-MODEL", message, where=f"--engine {address.where}", hint=hint, exit_code=exits.CANNOT_TELL
    )


def prometheus(text: str) -> dict[str, float]:
    """Return the samples of a Prometheus page.

    Args:
        text: the page in Prometheus' text format; lines without a number are skipped.

    Returns:
        Value by name and labels, as the page writes them. A name without labels sums all of its samples.
    """
    found: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith("#") or not line.strip():
            continue
        labelled, _, value = line.rpartition(" ")
        try:
            number = float(value)
        except ValueError:
            continue
        found[labelled] = number
        name = labelled.partition("{")[0]
        if name != labelled:
            found[name] = found.get(name, 0.0) + number
    return found
