"""A completions server over the reference engine with the standard library, and servers with one fault each.

It speaks vLLM's dialect, so that every clause of contract SRV can be tested. Requests are queued, and one thread runs
whatever has arrived as one batch.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from verispec import fixtures
from verispec.engines.protocol.generation import (
    FinishReason,
    GenerationRequest,
    GenerationResult,
    LoadOptions,
    TokenLogprobs,
)
from verispec.errors import VerispecError
from verispec.reference.models import load_tokenizer
from verispec.reference.runners.cpu import CPURunner

MODEL = "target"
NUMBERS = {
    "max_tokens": (int, 1, 4096),
    "temperature": (float, 0, 2),
    "top_p": (float, 1e-9, 1),
    "top_k": (int, 0, 2**31),
    "min_p": (float, 0, 1),
    "seed": (int, 0, 2**63),
    "n": (int, 1, 16),
    "logprobs": (int, 0, 20),
    "min_tokens": (int, 0, 4096),
    "repetition_penalty": (float, 0.01, 2),
    "presence_penalty": (float, -2, 2),
    "frequency_penalty": (float, -2, 2),
}
"""Type, minimum and maximum of the fields that are numbers."""
LISTS = ("stop_token_ids", "allowed_token_ids")


class BadRequest(Exception):
    """A body that cannot work; its text is the reason."""


class OwnServer:
    """The server without a fault: prompt lookup over the fixtures' target.

    A subclass with a fault overrides one of the methods that begin with ``make_``.
    """

    def __init__(self, method: str = "ngram") -> None:
        self.target = fixtures.model("target")
        self.runner = self.make_runner(LoadOptions(method=method))
        self.tokenizer = load_tokenizer(self.target)
        self._waiting: queue.SimpleQueue[tuple[GenerationRequest, Future[GenerationResult]] | None]
        self._waiting = queue.SimpleQueue()

    def make_runner(self, options: LoadOptions) -> CPURunner:
        return CPURunner(self.target, options)

    def make_request(self, body: Mapping[str, Any]) -> GenerationRequest:
        """Return the request that a body asks for. Raises BadRequest."""
        fields: dict[str, Any] = {"prompt_token_ids": self._prompt(body.get("prompt"))}
        for name, (kind, least, most) in NUMBERS.items():
            value = body.get(name)
            if value is None:
                continue
            right = isinstance(value, (int, float)) and not isinstance(value, bool) and kind(value) == value
            if not right or not least <= value <= most:
                raise BadRequest(f"{name} must be a number from {least} to {most}, got {value!r}")
            fields[name] = kind(value)
        for name in LISTS:
            fields[name] = tuple(body.get(name) or ())
        stop = body.get("stop") or []
        fields["stop"] = (stop,) if isinstance(stop, str) else tuple(stop) if isinstance(stop, list) else stop
        if not isinstance(fields["stop"], tuple):
            raise BadRequest(f"stop must be a string or a list of strings, got {stop!r}")
        fields["ignore_eos"] = bool(body.get("ignore_eos", False))
        fields["logit_bias"] = {int(token): float(bias) for token, bias in (body.get("logit_bias") or {}).items()}
        if body.get("model") not in (None, MODEL):
            raise BadRequest(f"there is no model {body['model']!r}")
        try:
            return GenerationRequest(**fields)
        except VerispecError as error:
            raise BadRequest(str(error)) from error

    def make_choice(self, request: GenerationRequest, sample: GenerationResult) -> dict[str, Any]:
        """Return text, tokens, log-probabilities and finish reason of a sample."""
        return {
            "text": self.make_text(request, sample),
            "token_ids": list(sample.token_ids),
            "logprobs": self.make_logprobs(sample.logprobs, sample.token_ids) if sample.logprobs else None,
            "finish_reason": "stop" if sample.finish_reason is FinishReason.STOP else "length",
        }

    def make_text(self, request: GenerationRequest, sample: GenerationResult) -> str:
        return sample.text if request.stop else self.decode(sample.token_ids)

    def make_logprobs(self, entries: tuple[TokenLogprobs, ...], token_ids: tuple[int, ...]) -> dict[str, Any]:
        return {
            "tokens": [f"token_id:{token}" for token in token_ids],
            "token_logprobs": [entry.sampled for entry in entries],
            "top_logprobs": [{f"token_id:{token}": value for token, value in entry.top} for entry in entries],
        }

    def make_usage(self, request: GenerationRequest, samples: Sequence[GenerationResult]) -> dict[str, int]:
        return {
            "prompt_tokens": len(request.prompt_token_ids),
            "completion_tokens": sum(len(sample.token_ids) for sample in samples),
        }

    def make_batch(self, requests: list[GenerationRequest]) -> list[GenerationRequest]:
        """Return the requests that the runner gets for those that arrived together."""
        return requests

    def decode(self, token_ids: Any) -> str:
        return str(self.tokenizer.decode(list(token_ids), skip_special_tokens=True))

    def generate(self, request: GenerationRequest) -> GenerationResult:
        """Wait for the batch that the request becomes part of. Raises BadRequest for what the engine refuses."""
        answer: Future[GenerationResult] = Future()
        self._waiting.put((request, answer))
        try:
            return answer.result()
        except VerispecError as error:
            raise BadRequest(str(error)) from error

    def work(self) -> None:
        """Run what has arrived, as one batch, until the server ends. A bad request fails alone."""
        while (first := self._waiting.get()) is not None:
            batch = [first]
            while not self._waiting.empty():
                if (further := self._waiting.get()) is None:
                    return
                batch.append(further)
            try:
                results = self.runner.generate(self.make_batch([request for request, _ in batch]))
            except VerispecError:
                for request, answer in batch:
                    self._alone(request, answer)
                continue
            for (_, answer), result in zip(batch, results, strict=True):
                answer.set_result(result)

    def _alone(self, request: GenerationRequest, answer: Future[GenerationResult]) -> None:
        try:
            answer.set_result(self.runner.generate([request])[0])
        except VerispecError as error:
            answer.set_exception(error)

    def _prompt(self, prompt: Any) -> tuple[int, ...]:
        if isinstance(prompt, str):
            return tuple(self.tokenizer.encode(prompt, add_special_tokens=False))
        if not isinstance(prompt, list) or not prompt or not all(type(token) is int for token in prompt):
            raise BadRequest(f"prompt must be text or a list of token ids, got {str(prompt)[:60]}")
        return tuple(prompt)

    @contextmanager
    def served(self) -> Iterator[str]:
        """Serve on a free port; yields the address for ``--engine``."""
        http = _Http(("127.0.0.1", 0), _Handler)
        http.own = self
        threads = [threading.Thread(target=run, daemon=True) for run in (self.work, http.serve_forever)]
        for thread in threads:
            thread.start()
        try:
            yield f"http://127.0.0.1:{http.server_address[1]}?checkpoint={self.target}&dialect=vllm&method=ngram"
        finally:
            http.shutdown()
            http.server_close()
            self._waiting.put(None)
            for thread in threads:
                thread.join()


class _Http(ThreadingHTTPServer):
    own: OwnServer
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that left."""


class _Handler(BaseHTTPRequestHandler):
    server: _Http

    def do_GET(self) -> None:
        known = {"/v1/models": {"data": [{"id": MODEL, "owned_by": "verispec"}]}, "/version": {"version": "1"}}
        self._send(200 if self.path in known else 404, known.get(self.path, {"error": {"message": "no such page"}}))

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            try:
                body = json.loads(raw)
            except ValueError as error:
                raise BadRequest(f"the body is not JSON: {error}") from error
            if not isinstance(body, dict):
                raise BadRequest("the body is no JSON object")
            self._complete(body)
        except BadRequest as error:
            self._send(400, {"error": {"message": str(error)}})

    def _complete(self, body: Mapping[str, Any]) -> None:
        own = self.server.own
        request = own.make_request(body)
        result = own.generate(request)
        samples = (result, *result.samples)
        choices = [{"index": n, **own.make_choice(request, sample)} for n, sample in enumerate(samples)]
        usage = own.make_usage(request, samples)
        if not body.get("stream"):
            self._send(200, {"choices": choices, "usage": usage})
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for choice in choices:
            for piece in _pieces(own, choice):
                self._event({"choices": [piece]})
        self._event({"choices": [], "usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")

    def _event(self, part: Mapping[str, Any]) -> None:
        self.wfile.write(f"data: {json.dumps(part)}\n\n".encode())
        self.wfile.flush()

    def _send(self, status: int, body: Mapping[str, Any]) -> None:
        payload = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, *args: Any) -> None:
        """Keep the test's output to itself."""


def _pieces(own: OwnServer, choice: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One piece per token, with the text that became known by it."""
    ids, text, told = choice["token_ids"], choice["text"], choice["logprobs"]
    done = 0
    for place in range(len(ids)):
        last = place == len(ids) - 1
        known = len(text) if last else min(len(own.decode(ids[: place + 1]).rstrip("\ufffd")), len(text))
        known = max(known, done)
        yield {
            "index": choice["index"],
            "text": text[done:known],
            "token_ids": ids[place : place + 1],
            "logprobs": told and {name: column[place : place + 1] for name, column in told.items()},
            "finish_reason": choice["finish_reason"] if last else None,
        }
        done = known


class TemperatureIgnored(OwnServer):
    """Every step of a speculating server samples at temperature 1."""

    def make_request(self, body: Mapping[str, Any]) -> GenerationRequest:
        request = super().make_request(body)
        return request if request.greedy else replace(request, temperature=1.0)


class StopLate(OwnServer):
    """The text is cut behind its stop string."""

    def make_text(self, request: GenerationRequest, sample: GenerationResult) -> str:
        return self.decode(sample.token_ids)


class LogprobsShifted(OwnServer):
    """Each token has the log-probabilities of the token before it."""

    def make_logprobs(self, entries: tuple[TokenLogprobs, ...], token_ids: tuple[int, ...]) -> dict[str, Any]:
        return super().make_logprobs((entries[0], *entries[:-1]), token_ids)


class SeedIgnored(OwnServer):
    """Every request is drawn from the server's own random numbers."""

    def make_request(self, body: Mapping[str, Any]) -> GenerationRequest:
        return super().make_request({**body, "seed": None})


class SamplesShared(OwnServer):
    """The second sample of a prompt draws the random numbers of the first."""

    def generate(self, request: GenerationRequest) -> GenerationResult:
        result = super().generate(request)
        return replace(result, samples=(replace(result, samples=()), *result.samples[1:])) if result.samples else result


class NeighbourTemperature(OwnServer):
    """Sampled requests have the temperature of the sampled request before them in the batch."""

    def make_batch(self, requests: list[GenerationRequest]) -> list[GenerationRequest]:
        sampled = [n for n, request in enumerate(requests) if not request.greedy]
        changed = list(requests)
        for one, other in zip(sampled[1:], sampled, strict=False):
            changed[one] = replace(requests[one], temperature=requests[other].temperature)
        return changed


class UsageOfOneSample(OwnServer):
    """The usage counts the tokens of the first sample alone."""

    def make_usage(self, request: GenerationRequest, samples: Sequence[GenerationResult]) -> dict[str, int]:
        return super().make_usage(request, samples[:1])


class BiasIgnored(OwnServer):
    """Biases of logits are dropped."""

    def make_request(self, body: Mapping[str, Any]) -> GenerationRequest:
        return super().make_request({**body, "logit_bias": None})


class TopKIgnored(OwnServer):
    """Sampled tokens come from the whole vocabulary."""

    def make_request(self, body: Mapping[str, Any]) -> GenerationRequest:
        return super().make_request({**body, "top_k": None})
