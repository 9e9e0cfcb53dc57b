"""Faults of drafts that a budget cuts, and of what other requests leave: ``--engine cut_mutants:<name>``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from runner_mutants import engine_with

from verispec.engines.protocol.generation import LoadOptions
from verispec.reference.proposers.protocol import Drafts, VerifiedStep
from verispec.reference.proposers.suffix import SuffixProposer
from verispec.reference.runners import sampling
from verispec.reference.runners.cpu import CPURunner
from verispec.reference.runners.request import RequestState
from verispec.reference.runners.scheduler import Scheduled


class LastDraftsVerified(CPURunner):
    """Of drafts that a budget cuts, the last ones are compared with the target's tokens."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)

        def last_drafts(part: Scheduled) -> np.ndarray:
            end = part.request.num_tokens + part.request.drafts
            return part.request.tokens[end - part.num_drafts : end]

        Scheduled.draft_token_ids = property(last_drafts)  # type: ignore[assignment, method-assign]


class LastDistributions(CPURunner):
    """Of drafts that a budget cuts, the first ones are verified with the distributions of the last ones."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        first = sampling._draft_probs

        def last(parts: Sequence[Scheduled], logits: torch.Tensor) -> torch.Tensor | None:
            for part in parts:
                if (probs := part.request.draft_probs) is not None:
                    part.request.draft_probs = probs[len(probs) - part.num_drafts :]
            return first(parts, logits)

        sampling._draft_probs = last


class CutDraftsCounted(CPURunner):
    """Counters include the drafts that a step left out."""

    def _advance(self, scheduled: Any, sampling: Sequence[Scheduled], *rest: Any) -> None:
        self._num_draft_tokens += sum(part.request.drafts - part.num_drafts for part in sampling)
        super()._advance(scheduled, sampling, *rest)


class DraftsCutForAll(CPURunner):
    """Drafts are cut to the rest of a step's budget where a counter draws them too."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        self._scheduler.repeatable = False


class LogitsOfSlotZero(CPURunner):
    """A request without drafts writes the logits of its drafts over those of slot 0."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        draw_rows = sampling.RequestStateSampling.draft_rows

        def without_padding(own: Any, owners: torch.Tensor, states: Any) -> Any:
            return draw_rows(own, owners.clamp(min=0), states)

        sampling.RequestStateSampling.draft_rows = without_padding  # type: ignore[method-assign]


class ChunksBehindThePromptSample(CPURunner):
    """A chunk of a resumed request samples if it reaches the end of the prompt (vllm-ascend#11334)."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        part_of = self._scheduler._part

        def sampling(request: RequestState, budget: int) -> Scheduled | None:
            part = part_of(request, budget)
            if part is None or request.num_computed + part.num_tokens < request.num_prompt_tokens:
                return part
            return part._replace(samples=True, drafts=True)

        self._scheduler._part = sampling


class StopsInThePrompt(CPURunner):
    """A stop string may begin in the last token of the prompt."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)

        def ends(request: RequestState, new: int) -> bool:
            assert request.decode is not None
            known = request.tokens[request.num_prompt_tokens - 1 : request.num_tokens + new]
            return any(stop in request.decode(known.tolist()) for stop in request.params.stop)

        RequestState._ends_by_text = ends  # type: ignore[method-assign]


class DraftsListedTwice(CPURunner):
    """Suffix decoding lists the drafts of each request twice, so that the next request gets them."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        propose = SuffixProposer.propose

        def twice(proposer: SuffixProposer, step: VerifiedStep) -> Drafts:
            return Drafts([ids for ids in propose(proposer, step).token_ids for _ in range(2)])

        SuffixProposer.propose = twice  # type: ignore[method-assign]


last_drafts_verified = engine_with(LastDraftsVerified)
last_distributions = engine_with(LastDistributions)
cut_drafts_counted = engine_with(CutDraftsCounted)
drafts_cut_for_all = engine_with(DraftsCutForAll)
logits_of_slot_zero = engine_with(LogitsOfSlotZero)
chunks_behind_the_prompt_sample = engine_with(ChunksBehindThePromptSample)
stops_in_the_prompt = engine_with(StopsInThePrompt)
drafts_listed_twice = engine_with(DraftsListedTwice)
