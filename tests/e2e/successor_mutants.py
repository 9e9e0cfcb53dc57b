"""Runners that keep what an earlier request had, or stream too much: ``--engine successor_mutants:<name>``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from runner_mutants import engine_with

from verispec.engines.protocol.generation import FinishReason, LoadOptions, TokenKind
from verispec.reference.runners import step_inputs
from verispec.reference.runners.cpu import CPURunner
from verispec.reference.runners.request import RequestState
from verispec.reference.runners.sampling import RequestStateSampling


class SlotsStay(CPURunner):
    """A slot keeps the parameters of a request that had the same number in its call."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        states = RequestStateSampling.states

        def kept(self: RequestStateSampling, requests: Any) -> Any:
            for request in requests:
                owner = self._owners[request.slot]
                if owner is not None and owner.index == request.index:
                    self._owners[request.slot] = request
            return states(self, requests)

        RequestStateSampling.states = kept  # type: ignore[method-assign]


class SeedsStay(CPURunner):
    """The first request of a call has the seed of the first one that the engine ever had."""

    first: int | None = None

    def generate(self, requests: Any, on_emit: Any = None) -> Any:
        seed = requests[0].seed
        if self.first is None:
            self.first = seed
        if seed is not None and self.first is not None:
            requests = [replace(requests[0], seed=self.first), *requests[1:]]
        return super().generate(requests, on_emit)


class TopPStays(CPURunner):
    """A request without top-p has that of the one that had its slot before."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        write = RequestStateSampling._write

        def kept(self: RequestStateSampling, request: RequestState) -> None:
            before = self._top_p[request.slot].item()
            write(self, request)
            if request.params.top_p == 1 and before:
                self._top_p[request.slot] = before

        RequestStateSampling._write = kept  # type: ignore[method-assign]


class NumbersOfTheLastPlace(CPURunner):
    """When a request ends while others wait, the first running one draws from the generator of the last one."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        finish = self._scheduler.finish

        def finished(request: RequestState) -> None:
            running = self._scheduler.running
            if self._scheduler.waiting:
                running[0].generator = running[-1].generator
            finish(request)

        self._scheduler.finish = finished


class LastTokenTwice(CPURunner):
    """A caller hears of a stop token once more when its request has ended."""

    def generate(self, requests: Any, on_emit: Any = None) -> Any:
        results = super().generate(requests, on_emit)
        for n, result in enumerate(results):
            if on_emit is not None and result.finish_reason is FinishReason.STOP:
                on_emit(n, result.token_ids[-1:], (TokenKind.PLAIN,))
        return results


class PromptRowsAfterPreemption(CPURunner):
    """The rows of a prompt that is read anew after a preemption are not gathered."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        positions = step_inputs.prompt_positions

        def first_reading(part: Any) -> range:
            request: RequestState = part.request
            return range(0) if request.preemptions else positions(part)

        step_inputs.prompt_positions = first_reading


slots_stay = engine_with(SlotsStay)
seeds_stay = engine_with(SeedsStay)
top_p_stays = engine_with(TopPStays)
numbers_of_the_last_place = engine_with(NumbersOfTheLastPlace)
last_token_twice = engine_with(LastTokenTwice)
prompt_rows_after_preemption = engine_with(PromptRowsAfterPreemption)
