"""Engine ``http://HOST:PORT``: a server as an engine. It generates; it has no ops and no sampler to call."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from verispec.engines import Description, Engine, OpFunction, Unsupported, UnsupportedCall
from verispec.engines.adapters.http.address import Address
from verispec.engines.adapters.http.server import HttpServer
from verispec.engines.protocol.generation import (
    FinishReason,
    GenerationRequest,
    GenerationResult,
    LoadOptions,
    OnEmit,
    SpeculationMetrics,
)
from verispec.engines.protocol.serving import Answer, Choice, Server
from verispec.errors import VerispecError

_REASONS = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH, "": FinishReason.ABORT}
_NO_KERNELS = "a server offers no kernels; test its engine by name where it is installed"


class HttpEngine:
    """A server that runs already, with the options that it was started with."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._server = HttpServer(address)

    def describe(self) -> Description:
        """Return the server's version and address; its own device cannot be seen from outside."""
        address = self._address
        details = {"address": address.where, "model": self._server.model, "dialect": self._server.dialect_name}
        if address.checkpoint:
            details["checkpoint"] = address.checkpoint.name
        return Description("http", self._server.version(), "cpu", "cpu", details)

    def server(self) -> Server:
        """Return the server itself, for the cases of contract SRV."""
        self._server.answer_once()
        return self._server

    def op(self, name: str) -> OpFunction | Unsupported:
        """Return why no op can be called."""
        return Unsupported(_NO_KERNELS)

    def sampler(self, family: str = "flat") -> Any | Unsupported:
        """Return why no sampler can be called."""
        return Unsupported(_NO_KERNELS)

    def load(self, target: Path, **options: Any) -> Any | Unsupported:
        """Return a generator if the server serves `target` and was started with these options."""
        wanted, address = LoadOptions(**options), self._address
        if address.checkpoint is None:
            return Unsupported("the checkpoint of the server is unknown; add ?checkpoint=FOLDER to its address")
        if not same_checkpoint(target, address.checkpoint):
            return Unsupported("the server serves another checkpoint")
        plain = LoadOptions()
        started: dict[str, Any] = {"method": address.method, "dtype": address.dtype}
        started["logprobs_mode"] = self._server.logprobs_mode or plain.logprobs_mode
        if address.method != "none":
            started["num_speculative_tokens"] = address.k
        for name in (*started, *LoadOptions.__dataclass_fields__):  # The method first: it is the reason of others.
            expected = started.get(name, getattr(plain, name))
            if name not in _DRAFTING and getattr(wanted, name) != expected:
                return Unsupported(_why_not(name, expected, address))
        self._server.answer_once()
        return HttpGenerator(self._server, address)

    def definitions(self) -> Mapping[str, Any] | Unsupported:
        """Return why no signatures can be read."""
        return Unsupported(_NO_KERNELS)

    def close(self) -> None:
        """Nothing is held: every request has a connection of its own."""


def _why_not(name: str, counts_as: Any, address: Address) -> str:
    """Return the reason why a server is not asked what needs another value of the option `name`."""
    stated_as = _IN_ADDRESS.get(name)
    if stated_as is None:
        return f"nothing says that the server was started with another {name}: its address has no such option"
    if stated_as in address.stated:
        return f"the server was started with {stated_as}={counts_as}, as its address says"
    return f"the server's address has no {stated_as}, which counts as {stated_as}={counts_as}"


_IN_ADDRESS = {
    "method": "method",
    "num_speculative_tokens": "k",
    "dtype": "dtype",
    "logprobs_mode": "logprobs_mode",
}
"""Options of `LoadOptions` that an address states, by their names there."""
_DRAFTING = ("draft", "ngram_min", "ngram_max")
"""Options of drafting that change no text and that no address states."""


def same_checkpoint(first: Path, second: Path) -> bool:
    """Return True if the folders `first` and `second` hold the same weights.

    They do if they are one folder, or if their ``*.safetensors`` files have equal names and bytes.
    """
    if first.resolve() == second.resolve():
        return True
    weights = [{path.name: path for path in folder.glob("*.safetensors")} for folder in (first, second)]
    return (
        bool(weights[0])
        and weights[0].keys() == weights[1].keys()
        and all(path.read_bytes() == weights[1][name].read_bytes() for name, path in weights[0].items())
    )


class HttpGenerator:
    """`verispec.engines.protocol.generation.Generator` over a server; up to 32 requests are in flight at once."""

    def __init__(self, server: HttpServer, address: Address) -> None:
        self._server = server
        self._address = address

    def generate(self, requests: Sequence[GenerationRequest], on_emit: OnEmit | None = None) -> list[GenerationResult]:
        """Run the requests; see `Generator.generate`.

        Raises:
            UnsupportedCall: the server refuses a request.
        """
        results = [result_of(answer) for answer in self._server.ask(requests)]
        for index, result in enumerate(results):
            if on_emit is not None:
                on_emit(index, result.token_ids, ())
        return results

    def metrics(self) -> SpeculationMetrics:
        """Return the server's counters of drafts, when the address asks for them."""
        if not self._address.metrics:
            return SpeculationMetrics()
        return metrics_of(self._server.counters(), self._address)

    def close(self) -> None:
        """Nothing is held."""


def result_of(answer: Answer) -> GenerationResult:
    """Return the first sample of `answer` as a result that holds the other samples.

    Raises:
        UnsupportedCall: the server reports no token ids.
    """
    first, *others = (_sample(choice) for choice in answer.choices)
    return GenerationResult(
        first.token_ids,
        first.finish_reason,
        logprobs=first.logprobs,
        text=first.text,
        samples=tuple(others),
        prompt_logprobs=answer.prompt_logprobs,
    )


def _sample(choice: Choice) -> GenerationResult:
    if choice.token_ids is None:
        raise UnsupportedCall("the server reports no token ids")
    reason = _REASONS.get(choice.finish_reason, FinishReason.ABORT)
    return GenerationResult(choice.token_ids, reason, logprobs=choice.logprobs, text=choice.text)


def metrics_of(counters: Mapping[str, float], address: Address) -> SpeculationMetrics:
    """Return the counters of drafts on a Prometheus page, as vLLM names them.

    Source: vllm 0.32.0 ``vllm.v1.spec_decode.metrics.SpecDecodingProm``.

    Args:
        counters: samples of the page, as `verispec.engines.adapters.http.server.prometheus` returns them.
        address: address of the server; its `k` is the minimum number of positions in the result.

    Raises:
        VerispecError: V-HTTP-METRICS when the page has none.
    """

    def count(name: str) -> int:
        return int(counters.get(f"vllm:spec_decode_num_{name}_total", 0))

    if "vllm:spec_decode_num_drafts_total" not in counters:
        raise VerispecError(
            "V-HTTP-METRICS",
            "the server counts no drafts",
            where=f"{address.where}/metrics",
            hint="leave metrics=yes away, or start the server with speculation and its metrics",
        )
    by_place: dict[int, int] = {}
    for name, value in counters.items():
        found = re.fullmatch(r'vllm:spec_decode_num_accepted_tokens_per_pos_total\{.*position="(\d+)".*\}', name)
        if found:
            by_place[int(found[1])] = by_place.get(int(found[1]), 0) + int(value)
    places = tuple(by_place.get(place, 0) for place in range(max(address.k, len(by_place))))
    return SpeculationMetrics(count("drafts"), count("draft_tokens"), count("accepted_tokens"), places)


def create(name: str, device: str | None = None) -> Engine:
    """Return the server at the address `name` as an engine.

    Raises:
        VerispecError: V-HTTP-URL for an address that cannot be used, V-HTTP-CONNECT when nothing answers there,
            V-ENG-DEVICE for a device: the server has chosen its own.
    """
    if device is not None:
        raise VerispecError(
            "V-ENG-DEVICE", "a server has chosen its device itself", where=f"--device {device}", hint="leave it away"
        )
    return HttpEngine(Address.parse(name))
