"""Runners that lose one feature of a request beside another: ``--engine pair_mutants:<name>``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from runner_mutants import engine_with

from verispec.engines.protocol.generation import LoadOptions
from verispec.reference.runners import base, verification
from verispec.reference.runners.cpu import CPURunner
from verispec.reference.runners.request import RequestState
from verispec.reference.runners.scheduler import Scheduled


class PenaltiesOfTheLastChunk(CPURunner):
    """A repetition penalty counts the tokens of a prompt that its last chunk has."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        whole = verification.verify

        def of_chunks(sampling: Any, logits: Any, parts: Sequence[Scheduled], mode: str) -> Any:
            kept = [part.request.params for part in parts]
            for part in parts:
                request = part.request
                rest = request.params.prompt_token_ids[request.num_computed :]
                if rest:
                    request.params = replace(request.params, prompt_token_ids=rest)
            found = whole(sampling, logits, parts, mode)
            for part, params in zip(parts, kept, strict=True):
                part.request.params = params
            return found

        base.verify = of_chunks


class AdapterLostOnResuming(CPURunner):
    """A preempted request computes its tokens again without its adapter."""

    def _launch(self, scheduled: Sequence[Scheduled], on_emit: Any) -> None:
        resumed = [part.request for part in scheduled if part.request.preemptions and not part.request.num_computed]
        kept = [request.params for request in resumed]
        for request in resumed:
            request.params = replace(request.params, lora_adapter=None)
        super()._launch(scheduled, on_emit)
        for request, params in zip(resumed, kept, strict=True):
            request.params = params


class StopStringsBesideStopTokens(CPURunner):
    """A request with stop tokens ends at the first of its stop strings alone."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        ends = RequestState._ends_by_text

        def first_alone(self: RequestState, new: int) -> bool:
            kept = self.params
            if kept.stop_token_ids:
                self.params = replace(kept, stop=kept.stop[:1])
            found = ends(self, new)
            self.params = kept
            return found

        RequestState._ends_by_text = first_alone  # type: ignore[method-assign]


penalties_of_the_last_chunk = engine_with(PenaltiesOfTheLastChunk)
adapter_lost_on_resuming = engine_with(AdapterLostOnResuming)
stop_strings_beside_stop_tokens = engine_with(StopStringsBesideStopTokens)
