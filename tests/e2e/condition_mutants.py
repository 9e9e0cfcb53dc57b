"""Runners with faults that act under one condition, as engines: ``--engine condition_mutants:<name>``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from runner_mutants import engine_with

from verispec.engines.protocol.generation import LoadOptions
from verispec.reference.runners import base, step_inputs
from verispec.reference.runners.cpu import CPURunner
from verispec.reference.runners.request import RequestState
from verispec.reference.runners.scheduler import Scheduled


class ChainStateKept(CPURunner):
    """Every later draft of a chain reads the state of the first one."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        proposer: Any = self.proposer
        run = proposer._run

        def kept(ids: Any, positions: Any, hidden: Any, paged: Any, rows: Any) -> Any:
            logits, following = run(ids, positions, hidden, paged, rows)
            return logits, following if rows is not None else hidden

        proposer._run = kept


class DrawsForAll(CPURunner):
    """A step that drafts uses random numbers of all its requests, those that read their prompts included."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        sampling: Any = self._sampling
        drafting = sampling.drafting
        sampling.drafting = lambda requests, wanted: drafting(requests, [True] * len(requests))


class PromptLogprobsAgain(CPURunner):
    """A prompt that is read again after a preemption has its log-probabilities again."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)

        def positions(part: Any) -> range:
            request = part.request
            if request.params.prompt_logprobs is None:
                return range(0)
            start = request.num_computed
            return range(start, min(start + part.num_tokens, request.num_prompt_tokens - 1))

        step_inputs.prompt_positions = positions


def first_listed(request: RequestState) -> str:
    """Return the text before the stop string that the request lists first, of those that occur."""
    text = request.decode(request.output_token_ids.tolist()) if request.decode else ""
    return text[: next((text.find(stop) for stop in request.params.stop if stop in text), len(text))]


class FirstListedStop(CPURunner):
    """The text ends before the first stop string of the request's list."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        RequestState.text = property(first_listed)  # type: ignore[assignment, method-assign]


class MildTopPIgnored(CPURunner):
    """A top-p of 0.99 or more counts as none where no request of the step has a smaller one."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        sampling: Any = self._sampling
        states = sampling.states

        def mild(requests: Sequence[RequestState]) -> Any:
            made = states(requests)
            return replace(made, top_p=None) if all(r.params.top_p >= 0.99 for r in requests) else made

        sampling.states = mild


class LogprobsOfNoneForgotten(CPURunner):
    """A greedy batch whose requests want only the log-probabilities of their own tokens gets none."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        plain: Any = RequestState.plain
        zero = property(lambda r: plain.fget(r) or (r.params.greedy and r.params.logprobs == 0))
        RequestState.plain = zero  # type: ignore[assignment, method-assign]


class RawOfTempered(CPURunner):
    """Raw log-probabilities are read after sampling has tempered the logits in place, but where a processor ran."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        verify: Any = base.verify

        def uncopied(sampling: Any, logits: Any, parts: Sequence[Scheduled], mode: str) -> Any:
            return verify(sampling, logits, parts, mode if any(p.request.is_processed for p in parts) else "processed")

        base.verify = uncopied


chain_state_kept = engine_with(ChainStateKept)
draws_for_all = engine_with(DrawsForAll)
prompt_logprobs_again = engine_with(PromptLogprobsAgain)
first_listed_stop = engine_with(FirstListedStop)
mild_top_p_ignored = engine_with(MildTopPIgnored)
logprobs_of_none_forgotten = engine_with(LogprobsOfNoneForgotten)
raw_of_tempered = engine_with(RawOfTempered)
