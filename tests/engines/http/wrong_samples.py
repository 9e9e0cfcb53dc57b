"""Servers that are right for one sample of a prompt; of several, those after the first have one fault each."""

from __future__ import annotations

from dataclasses import replace

from own_server import OwnServer

from verispec.engines.protocol.generation import GenerationRequest, GenerationResult


class _Later(OwnServer):
    """Base of servers whose samples after the first have other parameters."""

    def generate(self, request: GenerationRequest) -> GenerationResult:
        result = super().generate(request)
        if request.n == 1:
            return result
        return replace(result, samples=super().generate(self.later(request)).samples)

    def later(self, request: GenerationRequest) -> GenerationRequest:
        raise NotImplementedError


class OneLimit(_Later):
    """Later samples have one token more than max_tokens."""

    def later(self, request: GenerationRequest) -> GenerationRequest:
        return replace(request, max_tokens=request.max_tokens + 1)


class OneStops(_Later):
    """Later samples ignore stop strings."""

    def later(self, request: GenerationRequest) -> GenerationRequest:
        return replace(request, stop=())


class OneStopsAtTokens(_Later):
    """Later samples ignore stop tokens."""

    def later(self, request: GenerationRequest) -> GenerationRequest:
        return replace(request, stop_token_ids=())


class OneBiased(_Later):
    """Later samples ignore biases."""

    def later(self, request: GenerationRequest) -> GenerationRequest:
        return replace(request, logit_bias={})


class OnePenalised(_Later):
    """Later samples ignore penalties."""

    def later(self, request: GenerationRequest) -> GenerationRequest:
        return replace(request, presence_penalty=0.0, frequency_penalty=0.0, repetition_penalty=1.0)


class OneLimitedToTopK(_Later):
    """Later samples ignore top-k and top-p."""

    def later(self, request: GenerationRequest) -> GenerationRequest:
        return replace(request, top_k=0, top_p=1.0)


class OneTemperature(_Later):
    """Later samples have the temperature 1."""

    def later(self, request: GenerationRequest) -> GenerationRequest:
        return request if request.greedy else replace(request, temperature=1.0)


class OneGreedy(_Later):
    """Later samples of a greedy request are drawn."""

    def later(self, request: GenerationRequest) -> GenerationRequest:
        return replace(request, temperature=1.0) if request.greedy else request


class ReasonOfTheFirst(OwnServer):
    """All samples have the finish reason of the first."""

    def generate(self, request: GenerationRequest) -> GenerationResult:
        result = super().generate(request)
        return replace(result, samples=tuple(replace(s, finish_reason=result.finish_reason) for s in result.samples))


class LogprobsOfTheFirst(OwnServer):
    """All samples have the log-probabilities of the first, as far as it has tokens."""

    def generate(self, request: GenerationRequest) -> GenerationResult:
        result = super().generate(request)
        if not result.logprobs:
            return result
        first = result.logprobs
        samples = [replace(s, logprobs=(*first[: len(s.token_ids)], *s.logprobs[len(first) :])) for s in result.samples]
        return replace(result, samples=tuple(samples))
