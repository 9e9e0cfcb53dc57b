"""Servers with one fault each in log-probabilities, samples, seeds, batches or refusals."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from own_server import BadRequest, OwnServer
from wrong_texts import cut, step_starts

from verispec.engines.protocol.generation import GenerationRequest, GenerationResult, TokenKind, TokenLogprobs


class AcceptedLogprobsZero(OwnServer):
    """An accepted draft has the log-probability 0."""

    def make_entries(self, request: GenerationRequest, sample: GenerationResult) -> Sequence[TokenLogprobs]:
        pairs = zip(sample.logprobs, sample.kinds, strict=False)
        return [replace(e, sampled=0.0) if kind is TokenKind.ACCEPTED else e for e, kind in pairs]


class AcceptedLogprobsMissing(OwnServer):
    """Accepted drafts have no log-probabilities."""

    def make_choice(self, request: GenerationRequest, sample: GenerationResult) -> dict[str, Any]:
        choice = super().make_choice(request, sample)
        if told := choice["logprobs"]:
            kept = [n for n, kind in enumerate(sample.kinds) if kind is not TokenKind.ACCEPTED]
            choice["logprobs"] = {name: [column[n] for n in kept] for name, column in told.items()}
        return choice


class LogprobsShiftedInSteps(OwnServer):
    """Within a step each token has the log-probabilities of the token before it."""

    def make_entries(self, request: GenerationRequest, sample: GenerationResult) -> Sequence[TokenLogprobs]:
        entries = list(sample.logprobs)
        starts = set(step_starts(sample))
        return [entry if n in starts else entries[n - 1] for n, entry in enumerate(entries)]


class LogprobsLateAtStop(OwnServer):
    """The log-probabilities of an answer that a stop string ends begin with those of its second token."""

    def make_entries(self, request: GenerationRequest, sample: GenerationResult) -> Sequence[TokenLogprobs]:
        entries = sample.logprobs
        return (
            [*entries[1:], *entries[-1:]] if request.stop and self.make_reason(request, sample) == "stop" else entries
        )


class NoLogprobsAtStop(OwnServer):
    """An answer that a stop string ends has no log-probabilities."""

    def make_choice(self, request: GenerationRequest, sample: GenerationResult) -> dict[str, Any]:
        choice = super().make_choice(request, sample)
        return choice | {"logprobs": None} if request.stop and choice["finish_reason"] == "stop" else choice


class BestLeftOut(OwnServer):
    """The most likely tokens begin with the second one."""

    def make_entries(self, request: GenerationRequest, sample: GenerationResult) -> Sequence[TokenLogprobs]:
        return [replace(entry, top=entry.top[1:]) for entry in sample.logprobs]

    def make_request(self, body: Mapping[str, Any]) -> GenerationRequest:
        request = super().make_request(body)
        return request if not request.logprobs else replace(request, logprobs=request.logprobs + 1)


class LogprobsTempered(OwnServer):
    """Log-probabilities are divided by the temperature."""

    def make_entries(self, request: GenerationRequest, sample: GenerationResult) -> Sequence[TokenLogprobs]:
        if request.greedy or request.temperature == 1:
            return sample.logprobs
        scale = 1 / request.temperature
        return [TokenLogprobs(e.sampled * scale, tuple((t, v * scale) for t, v in e.top)) for e in sample.logprobs]


class NoLogprobsForZero(OwnServer):
    """A request for the log-probabilities of its own tokens alone gets none."""

    def make_request(self, body: Mapping[str, Any]) -> GenerationRequest:
        return super().make_request({**body, "logprobs": body.get("logprobs") or None})


class PromptLogprobsShifted(OwnServer):
    """Each prompt token has the log-probability of the one before it."""

    def make_prompt_logprobs(
        self, request: GenerationRequest, entries: Sequence[TokenLogprobs | None]
    ) -> list[dict[str, Any] | None]:
        return super().make_prompt_logprobs(request, (None, entries[1], *entries[1:-1]))


class SamplesCopied(OwnServer):
    """All samples of a prompt are the first."""

    def generate(self, request: GenerationRequest) -> GenerationResult:
        result = super().generate(request)
        return replace(result, samples=(replace(result, samples=()),) * len(result.samples))


class OneSampleShort(OwnServer):
    """A request for more than two samples gets one less."""

    def generate(self, request: GenerationRequest) -> GenerationResult:
        result = super().generate(request)
        return replace(result, samples=result.samples[:-1]) if len(result.samples) > 1 else result


class BiasOfTheNext(OwnServer):
    """A bias is added to the token after the one that it names."""

    def make_request(self, body: Mapping[str, Any]) -> GenerationRequest:
        bias = {str(int(token) + 1): value for token, value in (body.get("logit_bias") or {}).items()}
        return super().make_request({**body, "logit_bias": bias})


class BiasBounded(OwnServer):
    """A bias above 1 counts as 1."""

    def make_request(self, body: Mapping[str, Any]) -> GenerationRequest:
        bias = {token: min(value, 1.0) for token, value in (body.get("logit_bias") or {}).items()}
        return super().make_request({**body, "logit_bias": bias})


class SeedZeroIgnored(OwnServer):
    """A seed of 0 counts as none."""

    def make_request(self, body: Mapping[str, Any]) -> GenerationRequest:
        return super().make_request({**body, "seed": body.get("seed") or None})


class OneSeedForAll(OwnServer):
    """Every request without a seed is drawn from seed 0."""

    def make_request(self, body: Mapping[str, Any]) -> GenerationRequest:
        return super().make_request({**body, "seed": 0 if body.get("seed") is None else body["seed"]})


class SeedOfPlace(OwnServer):
    """A request's place in its batch is added to its seed."""

    def make_batch(self, requests: list[GenerationRequest]) -> list[GenerationRequest]:
        return [r if r.seed is None else replace(r, seed=r.seed + n) for n, r in enumerate(requests)]


class SeedOfNeighbour(OwnServer):
    """Requests that run together are drawn from the seed of the first."""

    def make_batch(self, requests: list[GenerationRequest]) -> list[GenerationRequest]:
        seeds = [r.seed for r in requests if r.seed is not None]
        return [r if r.seed is None else replace(r, seed=seeds[0]) for r in requests]


class CachedByBeginning(OwnServer):
    """The answer of a prompt is kept for every prompt with the same first 16 tokens and parameters."""

    def generate(self, request: GenerationRequest) -> GenerationResult:
        kept: dict[Any, GenerationResult] = self.__dict__.setdefault("kept", {})
        rest = replace(request, prompt_token_ids=request.prompt_token_ids[:16], logit_bias={})
        key = repr(rest), len(request.prompt_token_ids)
        if key not in kept:
            kept[key] = super().generate(request)
        return kept[key]


class AnswersKept(OwnServer):
    """An equal body gets the answer that it got before, without a seed too."""

    def generate(self, request: GenerationRequest) -> GenerationResult:
        kept: dict[str, GenerationResult] = self.__dict__.setdefault("kept", {})
        if repr(request) not in kept:
            kept[repr(request)] = super().generate(request)
        return kept[repr(request)]


class SwappedAbove16(OwnServer):
    """Of 16 requests in flight and more, two exchange their answers."""

    def make_results(
        self, requests: Sequence[GenerationRequest], results: list[GenerationResult]
    ) -> list[GenerationResult]:
        if len(results) > 16:
            results[2], results[4] = results[4], results[2]
        return results


class LogprobsOfNeighbour(OwnServer):
    """Requests that run together have the log-probabilities of the request before them."""

    def make_results(
        self, requests: Sequence[GenerationRequest], results: list[GenerationResult]
    ) -> list[GenerationResult]:
        asked = [n for n, result in enumerate(results) if result.logprobs]
        changed = list(results)
        for one, other in zip(asked[1:], asked, strict=False):
            if len(results[one].logprobs) == len(results[other].logprobs):
                changed[one] = replace(results[one], logprobs=results[other].logprobs)
        return changed


class PenaltyOfNeighbour(OwnServer):
    """A request without penalties has those of the request before it in its batch."""

    def make_batch(self, requests: list[GenerationRequest]) -> list[GenerationRequest]:
        changed = list(requests)
        for n, (before, request) in enumerate(itertools.pairwise(requests)):
            if not request.presence_penalty and not request.frequency_penalty:
                changed[n + 1] = replace(
                    request,
                    presence_penalty=before.presence_penalty,
                    frequency_penalty=before.frequency_penalty,
                )
        return changed


class LimitsOfNeighbour(OwnServer):
    """Sampled requests have top-k and top-p of the sampled request before them."""

    def make_batch(self, requests: list[GenerationRequest]) -> list[GenerationRequest]:
        sampled = [n for n, request in enumerate(requests) if not request.greedy]
        changed = list(requests)
        for one, other in zip(sampled[1:], sampled, strict=False):
            changed[one] = replace(requests[one], top_k=requests[other].top_k, top_p=requests[other].top_p)
        return changed


class CutBesideCancelled(OwnServer):
    """While a client streams, requests that run beside it end early."""

    def make_results(
        self, requests: Sequence[GenerationRequest], results: list[GenerationResult]
    ) -> list[GenerationResult]:
        long = [request.max_tokens > 100 for request in requests]
        if not any(long) or all(long):
            return results
        return [r if alone else cut(r, max(len(r.token_ids) // 2, 1)) for r, alone in zip(results, long, strict=True)]


class MinPIgnored(OwnServer):
    """min_p is ignored."""

    def make_request(self, body: Mapping[str, Any]) -> GenerationRequest:
        return super().make_request({**body, "min_p": 0.0})


class ErrorOnText(OwnServer):
    """A number that is text ends in status 500."""

    def make_refusal(self, error: BadRequest) -> tuple[int, Mapping[str, Any]]:
        return (500 if "'" in str(error) else 400), {"error": {"message": str(error)}}


class BadSeedFails(OwnServer):
    """A seed that is text ends in status 500."""

    def make_refusal(self, error: BadRequest) -> tuple[int, Mapping[str, Any]]:
        return (500 if str(error).startswith("seed") else 400), {"error": {"message": str(error)}}


class BadBiasFails(OwnServer):
    """A bias of an unknown token ends in status 500."""

    def make_refusal(self, error: BadRequest) -> tuple[int, Mapping[str, Any]]:
        return (500 if "bias" in str(error) else 400), {"error": {"message": str(error)}}


class NoReason(OwnServer):
    """A refusal has no words."""

    def make_refusal(self, error: BadRequest) -> tuple[int, Mapping[str, Any]]:
        return 400, {}


class DeadAfterBad(OwnServer):
    """After a bad request the next answer is empty."""

    def make_refusal(self, error: BadRequest) -> tuple[int, Mapping[str, Any]]:
        self.bad = True
        return super().make_refusal(error)

    def generate(self, request: GenerationRequest) -> GenerationResult:
        result = super().generate(request)
        bad, self.bad = getattr(self, "bad", False), False
        return cut(result, 1) if bad else result


class LongPromptCut(OwnServer):
    """A prompt longer than the model's context is cut in silence."""

    def make_request(self, body: Mapping[str, Any]) -> GenerationRequest:
        prompt = body.get("prompt")
        if isinstance(prompt, list) and len(prompt) > 4096:
            body = {**body, "prompt": prompt[-256:]}
        return super().make_request(body)


class UnknownTokensTaken(OwnServer):
    """Unknown token ids are taken modulo the vocabulary."""

    def make_request(self, body: Mapping[str, Any]) -> GenerationRequest:
        prompt = body.get("prompt")
        if isinstance(prompt, list) and all(isinstance(token, int) for token in prompt):
            body = {**body, "prompt": [token % 2048 for token in prompt]}
        return super().make_request(body)


class TemperatureIgnored(OwnServer):
    """Every step of a speculating server samples at temperature 1."""

    def make_request(self, body: Mapping[str, Any]) -> GenerationRequest:
        request = super().make_request(body)
        return request if request.greedy else replace(request, temperature=1.0)


class LogprobsShifted(OwnServer):
    """Each token has the log-probabilities of the token before it."""

    def make_logprobs(self, entries: Sequence[TokenLogprobs], token_ids: Sequence[int]) -> dict[str, Any]:
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
    """Sampled requests have the temperature of the sampled request before them, in their batch or an earlier one.

    A busy machine may run each request as a batch of its own.
    """

    last: float | None = None

    def make_batch(self, requests: list[GenerationRequest]) -> list[GenerationRequest]:
        changed = list(requests)
        for n, request in enumerate(requests):
            if not request.greedy:
                changed[n] = request if self.last is None else replace(request, temperature=self.last)
                self.last = request.temperature
        return changed


class BiasIgnored(OwnServer):
    """Biases of logits are dropped."""

    def make_request(self, body: Mapping[str, Any]) -> GenerationRequest:
        return super().make_request({**body, "logit_bias": None})


class TopKIgnored(OwnServer):
    """Sampled tokens come from the whole vocabulary."""

    def make_request(self, body: Mapping[str, Any]) -> GenerationRequest:
        return super().make_request({**body, "top_k": None})
