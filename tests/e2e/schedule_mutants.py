"""Engines with one fault in a K that changes: ``--engine schedule_mutants:<name>``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from method_mutants import engine_with, with_options

from verispec.engines.protocol.generation import GenerationRequest, LoadOptions
from verispec.reference.proposers.protocol import Drafts, VerifiedStep
from verispec.reference.runners import base
from verispec.reference.runners.cpu import CPURunner
from verispec.reference.runners.draft_depth import Acceptance


class PauseForgets(CPURunner):
    """While K is 0 the drafter does not run, so that it never reads the tokens of the pause."""

    def _make_proposer(self, num_blocks: int) -> Any:
        proposer: Any = super()._make_proposer(num_blocks)
        propose = proposer.propose

        def paused(step: VerifiedStep) -> Drafts:
            return propose(step) if step.depth else Drafts([[] for _ in step.query_lens])

        proposer.propose = paused
        return proposer


class EndsExclusive(CPURunner):
    """The last batch size of a range belongs to the next one."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        self.options = _OneMore(options)  # type: ignore[assignment]


class _OneMore:
    def __init__(self, options: LoadOptions) -> None:
        self._options = options

    def __getattr__(self, name: str) -> Any:
        return getattr(self._options, name)

    def num_drafts(self, batch_size: int) -> int:
        return self._options.num_drafts(batch_size + 1)


class KOfTheLargestBatch(CPURunner):
    """Every step has the K of a full batch."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        given = options.num_speculative_tokens_per_batch_size
        full = ((1, 1, options.num_drafts(options.max_num_seqs)),) if given else None
        super().__init__(target, replace(options, num_speculative_tokens_per_batch_size=full))


schedule_ignored = with_options(num_speculative_tokens_per_batch_size=lambda options: None)
pause_forgets = engine_with(PauseForgets)
ends_exclusive = engine_with(EndsExclusive)
k_of_the_largest_batch = engine_with(KOfTheLargestBatch)


class AcceptanceIgnored(CPURunner):
    """A chosen K is always that of a request's first drafts."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        Acceptance.count = lambda self, drafted, accepted: None  # type: ignore[method-assign]
        super().__init__(target, options)


class BacklogDropped(CPURunner):
    """A drafter that drafts again reads the last token alone."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        read = base.read_backlog

        def read_last(requests: Any, *given: Any) -> Any:
            for request in requests:
                request.num_read = request.num_computed - 1
                request.unread_states[:] = [(rows, end - 1, end) for rows, _, end in request.unread_states[-1:]]
            return read(requests, *given)

        base.read_backlog = read_last


class KOfAllRequests(CPURunner):
    """The chosen K of a sampled request depends on the requests beside it."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        depths: Any = self._depths
        if depths is not None:
            depths.choose = lambda requests: depths._depths(requests) if requests else []


class DrawsForTheDeepest(CPURunner):
    """Every request of a step uses random numbers for as many drafts as the one with most."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        sampling: Any = self._sampling
        drafting = sampling.drafting
        sampling.drafting = lambda requests, counts: drafting(requests, [max(counts)] * len(counts))


acceptance_ignored = engine_with(AcceptanceIgnored)
backlog_dropped = engine_with(BacklogDropped)
k_of_all_requests = engine_with(KOfAllRequests)
draws_for_the_deepest = engine_with(DrawsForTheDeepest)


class ResumedUnread(CPURunner):
    """With a chosen K the drafter takes the tokens from before a preemption for read."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        preempt = self._scheduler._preempt_youngest

        def keep_read() -> Any:
            read = self._scheduler.running[-1].num_read
            request = preempt()
            request.num_read = read
            return request

        self._scheduler._preempt_youngest = keep_read  # type: ignore[method-assign]


class AcceptanceShared(CPURunner):
    """All requests of a runner share one record of acceptance, by which K is chosen."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        self._shared = Acceptance()

    def _admit(self, index: int, request: GenerationRequest) -> Any:
        state = super()._admit(index, request)
        state.acceptance = self._shared
        return state


resumed_unread = engine_with(ResumedUnread)
acceptance_shared = engine_with(AcceptanceShared)
