"""A completions server over the reference engine with the standard library.

It speaks vLLM's dialect, so that every clause of contract SRV can be tested. Requests are queued, and one thread runs
whatever has arrived as one batch. A stream has one piece per step of the engine, with all tokens that it emitted.
"""

from __future__ import annotations

import itertools
import json
import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
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
    "prompt_logprobs": (int, 0, 20),
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
    """The server without a fault: prompt lookup over a checkpoint of the fixtures.

    A subclass with a fault overrides one of the methods that begin with ``make_``.
    """

    def __init__(self, method: str = "ngram", checkpoint: str = "target") -> None:
        self.target = fixtures.model(checkpoint)
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
        if not isinstance(fields["stop"], tuple) or not all(isinstance(text, str) for text in fields["stop"]):
            raise BadRequest(f"stop must be a string or a list of strings, got {stop!r}")
        fields["ignore_eos"] = bool(body.get("ignore_eos", False))
        if not isinstance(body.get("logit_bias") or {}, dict):
            raise BadRequest(f"logit_bias must be an object, got {body['logit_bias']!r}")
        fields["logit_bias"] = {int(token): float(bias) for token, bias in (body.get("logit_bias") or {}).items()}
        if body.get("model") not in (None, MODEL):
            raise BadRequest(f"there is no model {body['model']!r}")
        try:
            return GenerationRequest(**fields)
        except VerispecError as error:
            raise BadRequest(str(error)) from error

    def make_choice(self, request: GenerationRequest, sample: GenerationResult) -> dict[str, Any]:
        """Return text, tokens, log-probabilities and finish reason of a sample."""
        told = None
        if sample.logprobs:
            told = self.make_logprobs(self.make_entries(request, sample), sample.token_ids)
        return {
            "text": self.make_text(request, sample),
            "token_ids": list(sample.token_ids),
            "logprobs": told,
            "finish_reason": self.make_reason(request, sample),
        }

    def make_reason(self, request: GenerationRequest, sample: GenerationResult) -> str:
        return "stop" if sample.finish_reason is FinishReason.STOP else "length"

    def make_entries(self, request: GenerationRequest, sample: GenerationResult) -> Sequence[TokenLogprobs]:
        """Return the log-probabilities that are sent for a sample."""
        return sample.logprobs

    def make_prompt_logprobs(
        self, request: GenerationRequest, entries: Sequence[TokenLogprobs | None]
    ) -> list[dict[str, Any] | None]:
        tokens = zip(request.prompt_token_ids, entries, strict=True)
        return [
            entry and {str(t): {"logprob": value} for t, value in (*entry.top, (token, entry.sampled))}
            for token, entry in tokens
        ]

    def make_text(self, request: GenerationRequest, sample: GenerationResult) -> str:
        return sample.text if request.stop else self.decode(sample.token_ids)

    def make_logprobs(self, entries: Sequence[TokenLogprobs], token_ids: Sequence[int]) -> dict[str, Any]:
        return {
            "tokens": [f"token_id:{token}" for token in token_ids],
            "token_logprobs": [entry.sampled for entry in entries],
            "top_logprobs": [{f"token_id:{token}": value for token, value in entry.top} for entry in entries],
        }

    def make_usage(self, request: GenerationRequest, samples: Sequence[GenerationResult]) -> dict[str, int]:
        prompt, tokens = len(request.prompt_token_ids), sum(len(sample.token_ids) for sample in samples)
        return {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens}

    def make_batch(self, requests: list[GenerationRequest]) -> list[GenerationRequest]:
        """Return the requests that the runner gets for those that arrived together."""
        return requests

    def make_results(
        self, requests: Sequence[GenerationRequest], results: list[GenerationResult]
    ) -> list[GenerationResult]:
        """Return the results of requests that ran as one batch."""
        return results

    def make_pieces(self, choice: Mapping[str, Any], sample: GenerationResult) -> list[dict[str, Any]]:
        """Return the pieces of a streamed sample: one per step, with the text that became known by it."""
        ids, text, told = choice["token_ids"], choice["text"], choice["logprobs"]
        ends = [min(end, len(ids)) for end in itertools.accumulate(step.accepted + 1 for step in sample.steps)]
        pieces, start, done = [], 0, 0
        for end in ends or [len(ids)]:
            last = end == len(ids)
            known = len(text) if last else min(len(self.decode(ids[:end]).rstrip("\ufffd")), len(text))
            known = max(known, done)
            pieces.append(
                {
                    "index": choice["index"],
                    "text": text[done:known],
                    "token_ids": ids[start:end],
                    "logprobs": told and {name: column[start:end] for name, column in told.items()},
                    "finish_reason": choice["finish_reason"] if last else None,
                }
            )
            start, done = end, known
        return pieces

    def make_events(self, pieces: list[dict[str, Any]], usage: Mapping[str, int]) -> list[str]:
        """Return the data of the events of a stream."""
        parts = [*({"choices": [piece]} for piece in pieces), {"choices": [], "usage": usage}]
        return [*map(json.dumps, parts), "[DONE]"]

    def make_refusal(self, error: BadRequest) -> tuple[int, Mapping[str, Any]]:
        """Return status and body for a request that cannot work."""
        return 400, {"error": {"message": str(error)}}

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
            requests = [request for request, _ in batch]
            try:
                results = self.make_results(requests, self.runner.generate(self.make_batch(requests)))
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
            self._send(*self.server.own.make_refusal(error))

    def _complete(self, body: Mapping[str, Any]) -> None:
        own = self.server.own
        request = own.make_request(body)
        result = own.generate(request)
        samples = (result, *result.samples)
        choices = [{"index": n, **own.make_choice(request, sample)} for n, sample in enumerate(samples)]
        if request.prompt_logprobs is not None:
            choices[0]["prompt_logprobs"] = own.make_prompt_logprobs(request, result.prompt_logprobs)
        usage = own.make_usage(request, samples)
        if not body.get("stream"):
            self._send(200, {"choices": choices, "usage": usage})
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        pieces = [own.make_pieces(choice, sample) for choice, sample in zip(choices, samples, strict=True)]
        for data in own.make_events(list(itertools.chain.from_iterable(pieces)), usage):
            self.wfile.write(f"data: {data}\n\n".encode())
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
