"""Servers in which a request changes one that runs after it or beside it, and that ignore parts of parameters."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from own_server import BadRequest, OwnServer
from wrong_texts import cut

from verispec.engines.protocol.generation import GenerationRequest, GenerationResult, TokenLogprobs


class _Kept(OwnServer):
    """Base of servers that give a field of a finished request to the next batch's first, if that has none."""

    field: str
    kept: Any = None

    def make_batch(self, requests: list[GenerationRequest]) -> list[GenerationRequest]:
        kept, self.kept = self.kept, None
        if kept and not getattr(requests[0], self.field):
            changed: dict[str, Any] = {self.field: kept}
            return [replace(requests[0], **changed), *requests[1:]]
        return requests

    def make_results(
        self, requests: Sequence[GenerationRequest], results: list[GenerationResult]
    ) -> list[GenerationResult]:
        self.kept = next((found for request in requests if (found := getattr(request, self.field))), None)
        return results


class BiasKept(_Kept):
    """A bias stays in its slot."""

    field = "logit_bias"


class StopsKept(_Kept):
    """Stop strings stay in their slot."""

    field = "stop"


class _Beside(OwnServer):
    """Base of servers that give a field of a request to the one after it in a batch, if that has none."""

    field: str

    def make_batch(self, requests: list[GenerationRequest]) -> list[GenerationRequest]:
        changed = list(requests)
        for n, (before, request) in enumerate(itertools.pairwise(requests)):
            if (found := getattr(before, self.field)) and not getattr(request, self.field):
                more: dict[str, Any] = {self.field: found}
                changed[n + 1] = replace(request, **more)
        return changed


class StopTokensBeside(_Beside):
    """A request without stop tokens has those of the one before it in its batch."""

    field = "stop_token_ids"


class BiasBeside(_Beside):
    """A request without a bias has that of the one before it in its batch."""

    field = "logit_bias"


class PromptLogprobsCached(OwnServer):
    """A prompt that was met before has no log-probabilities of its first eight tokens."""

    def make_prompt_logprobs(
        self, request: GenerationRequest, entries: Sequence[TokenLogprobs | None]
    ) -> list[dict[str, Any] | None]:
        met: set[tuple[int, ...]] = self.__dict__.setdefault("met", set())
        told = super().make_prompt_logprobs(request, entries)
        if request.prompt_token_ids in met:
            told[:8] = [None] * 8
        met.add(request.prompt_token_ids)
        return told


class CutBesideBad(OwnServer):
    """A bad request ends the answers that are computed at that time."""

    bad = False

    def make_refusal(self, error: BadRequest) -> tuple[int, Mapping[str, Any]]:
        self.bad = True
        return super().make_refusal(error)

    def make_results(
        self, requests: Sequence[GenerationRequest], results: list[GenerationResult]
    ) -> list[GenerationResult]:
        bad, self.bad = self.bad, False
        return [cut(result, 1) for result in results] if bad else results


class RewardsIgnored(OwnServer):
    """Penalties below 0 are ignored."""

    def make_request(self, body: Mapping[str, Any]) -> GenerationRequest:
        r = super().make_request(body)
        return replace(
            r, presence_penalty=max(r.presence_penalty, 0.0), frequency_penalty=max(r.frequency_penalty, 0.0)
        )


class RepetitionBelowOneIgnored(OwnServer):
    """A repetition penalty below 1 is ignored."""

    def make_request(self, body: Mapping[str, Any]) -> GenerationRequest:
        request = super().make_request(body)
        return replace(request, repetition_penalty=max(request.repetition_penalty, 1.0))


class AllowedIgnored(OwnServer):
    """allowed_token_ids is ignored."""

    def make_request(self, body: Mapping[str, Any]) -> GenerationRequest:
        return replace(super().make_request(body), allowed_token_ids=())


class TopPIgnoredWithTopK(OwnServer):
    """top-p is ignored if there is a top-k."""

    def make_request(self, body: Mapping[str, Any]) -> GenerationRequest:
        request = super().make_request(body)
        return replace(request, top_p=1.0) if request.top_k else request
