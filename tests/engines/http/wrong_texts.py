"""Servers with one fault each in the length, the end, the counts or the text of an answer."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from own_server import OwnServer

from verispec.engines.protocol.generation import FinishReason, GenerationRequest, GenerationResult, TokenKind


def step_starts(sample: GenerationResult) -> list[int]:
    """Return the place of each step's first token."""
    return [0, *itertools.accumulate(step.accepted + 1 for step in sample.steps)][:-1]


def cut(result: GenerationResult, length: int) -> GenerationResult:
    return replace(result, token_ids=result.token_ids[:length], logprobs=result.logprobs[:length])


class DraftsBeyondTheLimit(OwnServer):
    """max_tokens is compared once a step, so that accepted drafts go beyond it."""

    def generate(self, request: GenerationRequest) -> GenerationResult:
        longer = super().generate(replace(request, max_tokens=request.max_tokens + 3))
        ends = [start for start in step_starts(longer) if start >= request.max_tokens]
        result = cut(longer, ends[0] if ends else len(longer.token_ids))
        if len(result.token_ids) < request.max_tokens:
            return longer
        return replace(result, finish_reason=FinishReason.LENGTH)


class LastStepOmitted(OwnServer):
    """A step whose drafts do not all fit below max_tokens is not run."""

    def generate(self, request: GenerationRequest) -> GenerationResult:
        result = super().generate(request)
        if result.finish_reason is FinishReason.LENGTH and result.steps and result.steps[-1].accepted:
            return cut(result, step_starts(result)[-1])
        return result


class AlwaysStop(OwnServer):
    """Every answer finishes by "stop"."""

    def make_reason(self, request: GenerationRequest, sample: GenerationResult) -> str:
        return "stop"


class AlwaysLength(OwnServer):
    """Every answer finishes by "length"."""

    def make_reason(self, request: GenerationRequest, sample: GenerationResult) -> str:
        return "length"


class StopAtTheLimit(OwnServer):
    """An answer whose last step accepted all of its drafts finishes by "stop" at max_tokens."""

    def make_reason(self, request: GenerationRequest, sample: GenerationResult) -> str:
        full = sample.kinds and sample.kinds[-1] in (TokenKind.BONUS, TokenKind.ACCEPTED)
        return "stop" if full else super().make_reason(request, sample)


class DraftsCounted(OwnServer):
    """The usage counts the drafts that were verified, rejected ones included."""

    def make_usage(self, request: GenerationRequest, samples: Sequence[GenerationResult]) -> dict[str, int]:
        usage = super().make_usage(request, samples)
        rejected = sum(step.drafted - step.accepted for sample in samples for step in sample.steps)
        return usage | {"completion_tokens": usage["completion_tokens"] + rejected}


class StepsCounted(OwnServer):
    """The usage counts steps, not tokens."""

    def make_usage(self, request: GenerationRequest, samples: Sequence[GenerationResult]) -> dict[str, int]:
        return super().make_usage(request, samples) | {"completion_tokens": sum(len(s.steps) for s in samples)}


class TotalWrong(OwnServer):
    """The total of the usage leaves out the last step's accepted drafts."""

    def make_usage(self, request: GenerationRequest, samples: Sequence[GenerationResult]) -> dict[str, int]:
        usage = super().make_usage(request, samples)
        return usage | {"total_tokens": usage["total_tokens"] - sum(s.steps[-1].accepted for s in samples if s.steps)}


class PromptCountedTwice(OwnServer):
    """The usage counts the prompt once per sample."""

    def make_usage(self, request: GenerationRequest, samples: Sequence[GenerationResult]) -> dict[str, int]:
        usage = super().make_usage(request, samples)
        return usage | {"prompt_tokens": usage["prompt_tokens"] * len(samples)}


class StoppedUsage(OwnServer):
    """The usage of a stopped answer counts the tokens that its step had accepted after the stop."""

    def make_usage(self, request: GenerationRequest, samples: Sequence[GenerationResult]) -> dict[str, int]:
        usage = super().make_usage(request, samples)
        more = sum(sum(step.accepted + 1 for step in s.steps) - len(s.token_ids) for s in samples)
        return usage | {"completion_tokens": usage["completion_tokens"] + more}


class Echo(OwnServer):
    """The text begins with the prompt."""

    def make_text(self, request: GenerationRequest, sample: GenerationResult) -> str:
        text = super().make_text(request, sample)
        return text if request.stop else self.decode(request.prompt_token_ids) + text


class SpaceLost(OwnServer):
    """The text loses its leading and trailing white space."""

    def make_text(self, request: GenerationRequest, sample: GenerationResult) -> str:
        return super().make_text(request, sample).strip()


class WrongText(OwnServer):
    """The text lacks the tokens of the last step's accepted drafts; the token ids have them."""

    def make_text(self, request: GenerationRequest, sample: GenerationResult) -> str:
        if request.stop or not sample.steps or not (count := sample.steps[-1].accepted):
            return super().make_text(request, sample)
        return self.decode(sample.token_ids[:-count])


class EndInText(OwnServer):
    """The text has the end-of-sequence token."""

    def make_text(self, request: GenerationRequest, sample: GenerationResult) -> str:
        if request.stop:
            return sample.text
        return str(self.tokenizer.decode(list(sample.token_ids), skip_special_tokens=False))


class TokensAfterStop(OwnServer):
    """A stop token among accepted drafts ends the request after its whole step."""

    def generate(self, request: GenerationRequest) -> GenerationResult:
        result = super().generate(request)
        if result.finish_reason is not FinishReason.STOP or request.stop or not request.stop_token_ids:
            return result
        missing = sum(step.accepted + 1 for step in result.steps) - len(result.token_ids)
        if not missing:
            return result
        longer = super().generate(
            replace(request, stop_token_ids=(), max_tokens=min(len(result.token_ids) + missing, request.max_tokens))
        )
        return replace(longer, finish_reason=FinishReason.STOP)


class _StopsPerStep(OwnServer):
    """Base of servers that look for stop strings after each step."""

    def generate(self, request: GenerationRequest) -> GenerationResult:
        if not request.stop:
            return super().generate(request)
        whole = super().generate(replace(request, stop=()))
        for start, end in itertools.pairwise([*step_starts(whole), len(whole.token_ids)]):
            before, text = self.decode(whole.token_ids[:start]), self.decode(whole.token_ids[:end])
            if (place := self.place(before, text, request.stop)) is not None:
                return replace(cut(whole, end), text=text[:place], finish_reason=FinishReason.STOP)
        return replace(whole, text=self.decode(whole.token_ids))

    def place(self, before: str, text: str, stops: tuple[str, ...]) -> int | None:
        """Return where a text ends that a step made out of `before`; None if it goes on."""
        raise NotImplementedError


class StopWithinStep(_StopsPerStep):
    """Stop strings are sought in the text of each step alone, not across two steps."""

    def place(self, before: str, text: str, stops: tuple[str, ...]) -> int | None:
        found = [text.find(stop, len(before)) for stop in stops if stop in text[len(before) :]]
        return min(found, default=None)


class FirstListedStop(_StopsPerStep):
    """Of two stop strings in one step the one that is listed first ends the text, though the other comes before it."""

    def place(self, before: str, text: str, stops: tuple[str, ...]) -> int | None:
        return next((text.find(stop) for stop in stops if stop in text), None)


class OneStopOnly(OwnServer):
    """Only the first stop string counts."""

    def make_request(self, body: Mapping[str, Any]) -> GenerationRequest:
        request = super().make_request(body)
        return replace(request, stop=request.stop[:1])


class StopInPrompt(OwnServer):
    """Stop strings are sought in the prompt and the output together."""

    def generate(self, request: GenerationRequest) -> GenerationResult:
        result = super().generate(request)
        tail = self.decode(request.prompt_token_ids)[-3:]
        text = tail + self.decode(result.token_ids)
        found = [text.find(stop) for stop in request.stop if 0 <= text.find(stop) < len(tail)]
        if not found:
            return result
        return replace(cut(result, 1), text="", finish_reason=FinishReason.STOP)


class StopKept(OwnServer):
    """A stop string of which a draft completed the last letter stays in the text."""

    def make_text(self, request: GenerationRequest, sample: GenerationResult) -> str:
        late = request.stop and sample.kinds and sample.kinds[-1] is TokenKind.ACCEPTED
        return self.decode(sample.token_ids) if late else super().make_text(request, sample)


class EndIgnored(OwnServer):
    """The end of sequence ends no answer."""

    def make_request(self, body: Mapping[str, Any]) -> GenerationRequest:
        return super().make_request({**body, "ignore_eos": True})


class EndAlways(OwnServer):
    """ignore_eos is ignored."""

    def make_request(self, body: Mapping[str, Any]) -> GenerationRequest:
        return super().make_request({**body, "ignore_eos": False})


class MinTokensIgnored(OwnServer):
    """min_tokens is ignored."""

    def make_request(self, body: Mapping[str, Any]) -> GenerationRequest:
        return super().make_request({**body, "min_tokens": 0})


class MinTokensOfSteps(OwnServer):
    """min_tokens is compared at the beginning of a step: one step of several tokens may end before it."""

    def make_request(self, body: Mapping[str, Any]) -> GenerationRequest:
        least = body.get("min_tokens") or 0
        return super().make_request({**body, "min_tokens": max(least - 2, 0)})


class StopLate(OwnServer):
    """The text is cut behind its stop string."""

    def make_text(self, request: GenerationRequest, sample: GenerationResult) -> str:
        return self.decode(sample.token_ids)


class UsageOfOneSample(OwnServer):
    """The usage counts the tokens of the first sample alone."""

    def make_usage(self, request: GenerationRequest, samples: Sequence[GenerationResult]) -> dict[str, int]:
        return super().make_usage(request, samples[:1])


class EndLost(OwnServer):
    """A text that ends by its length lacks an end that could begin a stop string."""

    def make_text(self, request: GenerationRequest, sample: GenerationResult) -> str:
        text = super().make_text(request, sample)
        if sample.finish_reason is not FinishReason.LENGTH:
            return text
        begun = [stop[:n] for stop in request.stop for n in range(1, len(stop)) if text.endswith(stop[:n])]
        return text.removesuffix(max(begun, key=len, default=""))


class StopInAnyCase(_StopsPerStep):
    """Stop strings are found in letters of the other case too."""

    def place(self, before: str, text: str, stops: tuple[str, ...]) -> int | None:
        found = [text.lower().find(stop.lower()) for stop in stops if stop.lower() in text.lower()]
        return min(found, default=None)


class StopsIgnoredAfterMinimum(OwnServer):
    """Stop tokens end no request that has a minimum of tokens."""

    def generate(self, request: GenerationRequest) -> GenerationResult:
        result = super().generate(request)
        missing = request.max_tokens - len(result.token_ids)
        if not request.min_tokens or not missing:
            return result
        prompt = (*request.prompt_token_ids, *result.token_ids)
        rest = super().generate(
            replace(request, prompt_token_ids=prompt, max_tokens=missing, min_tokens=0, stop_token_ids=())
        )
        return replace(rest, token_ids=(*result.token_ids, *rest.token_ids))
