"""Runners whose requests see others or the past, as engines: ``--engine independence_mutants:<name>``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from runner_mutants import engine_with

from verispec.engines.protocol.generation import GenerationRequest, LoadOptions
from verispec.reference.proposers import ngram
from verispec.reference.runners import sampling, verification
from verispec.reference.runners.cpu import CPURunner
from verispec.reference.runners.request import RequestState


class NeighboursTopK(CPURunner):
    """A request without top-k takes the largest one of its batch."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        tensors = sampling.sampling_tensors

        def shared(requests: Any, logits: torch.Tensor) -> Any:
            made = tensors(requests, logits)
            if made.top_k is None:
                return made
            free = made.top_k == logits.shape[1]
            return replace(made, top_k=torch.where(free, made.top_k.masked_fill(free, 0).max(), made.top_k))

        sampling.sampling_tensors = shared


class CallsRepeat(CPURunner):
    """Each call numbers its requests from 0, and the number is the seed of those without one."""

    def generate(self, requests: Any, on_emit: Any = None) -> Any:
        self._arrived = 0
        return super().generate(requests, on_emit)


class AloneRepeats(CPURunner):
    """A request without a seed that is alone in its call has the numbers of the engine's first one."""

    def generate(self, requests: Any, on_emit: Any = None) -> Any:
        arrived = self._arrived
        if len(requests) == 1:
            self._arrived = 0
        results = super().generate(requests, on_emit)
        self._arrived = max(arrived, self._arrived)
        return results


class NumbersAfterPreemption(CPURunner):
    """A preempted request starts its random numbers again."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        preempt = self._scheduler._preempt_youngest

        def again() -> RequestState:
            request = preempt()
            request.generator.manual_seed(request.seed)
            return request

        self._scheduler._preempt_youngest = again  # type: ignore[method-assign]


class DrawsForTheLongest(CPURunner):
    """A request draws a number for each draft of the batch, past its own ones too."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)

        def drafting(requests: Any, num_drafts: Any) -> Any:
            temperatures = [request.params.temperature for request in requests]
            generators = [request.generator for request in requests]
            return lambda logits, pos, step: sampling.sample_drafts(logits, temperatures, generators)

        self._sampling.drafting = drafting  # type: ignore[method-assign]


class VerifiesTheLongest(CPURunner):
    """A request without drafts draws the acceptance numbers of the drafts of its neighbours."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        sample = self._sampling.sample

        def longest(logits: torch.Tensor, parts: Any) -> torch.Tensor:
            most = max(part.num_drafts for part in parts)
            for part in parts:
                if not part.num_drafts and not part.request.params.greedy:
                    torch.rand(most, generator=part.request.generator)
            return sample(logits, parts)

        self._sampling.sample = longest  # type: ignore[method-assign]


class Parallel(CPURunner):
    """Base of the runners whose parallel drafts have other distributions in verification."""

    def _make_proposer(self, num_blocks: int) -> Any:
        proposer: Any = super()._make_proposer(num_blocks)
        self.change(proposer)
        return proposer

    def change(self, proposer: Any) -> None:
        """Change how the proposer draws, or what it returns."""
        raise NotImplementedError


class ParallelAsFirst(Parallel):
    """Each draft of a step is drawn as the first one, over whose logits it writes its own."""

    def change(self, proposer: Any) -> None:
        draw = proposer._draw
        proposer._draw = lambda function, rows, followed, ahead: draw(function, rows, followed + ahead, 0)


class ParallelSwapped(Parallel):
    """The distributions of the drafts of a step are in the order of the last draft first."""

    def change(self, proposer: Any) -> None:
        draft = proposer.draft

        def swapped(step: Any) -> Any:
            token_ids, probs = draft(step)
            return token_ids, None if probs is None else probs.flip(1)

        proposer.draft = swapped


class SeedZeroIsNone(CPURunner):
    """A seed of 0 counts as none."""

    def _admit(self, index: int, request: GenerationRequest) -> Any:
        return super()._admit(index, replace(request, seed=request.seed or None))


class CutProbsFromTheEnd(CPURunner):
    """Drafts that a budget cut are verified by the distributions of the last ones."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        probs = sampling._draft_probs

        def last(parts: Any, logits: torch.Tensor) -> Any:
            for part in parts:
                own = part.request.draft_probs
                if own is not None and part.num_drafts:
                    part.request.draft_probs = own[-part.num_drafts :]
            return probs(parts, logits)

        sampling._draft_probs = last


class ZeroLogprobsProcessed(CPURunner):
    """If no request wants the most likely tokens, raw log-probabilities are those of the processed logits."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        gather = verification.gather_logprobs
        sample = self._sampling.sample
        kept: list[torch.Tensor] = []

        def noting(logits: torch.Tensor, parts: Any) -> torch.Tensor:
            kept[:] = [logits]
            return sample(logits, parts)

        self._sampling.sample = noting  # type: ignore[method-assign]
        verification.gather_logprobs = lambda raw, emitted, counts, wanted: gather(
            raw if any(wanted) else kept[0], emitted, counts, wanted
        )


class RecentText(CPURunner):
    """Stop strings are sought in the text of the last three tokens."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)

        def ends(self: RequestState, new: int) -> bool:
            if self.decode is None:
                return False
            text = self.decode(self.tokens[self.num_prompt_tokens : self.num_tokens + new].tolist()[-3:])
            return any(stop in text for stop in self.params.stop)

        RequestState._ends_by_text = ends  # type: ignore[method-assign]


class LookupWindow(CPURunner):
    """Prompt lookup reads the last 80 tokens."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        lookup = ngram.lookup
        ngram.lookup = lambda sequence, *rest: lookup(sequence[-80:], *rest)


neighbours_top_k = engine_with(NeighboursTopK)
calls_repeat = engine_with(CallsRepeat)
alone_repeats = engine_with(AloneRepeats)
numbers_after_preemption = engine_with(NumbersAfterPreemption)
seed_zero_is_none = engine_with(SeedZeroIsNone)
cut_probs_from_the_end = engine_with(CutProbsFromTheEnd)
zero_logprobs_processed = engine_with(ZeroLogprobsProcessed)
recent_text = engine_with(RecentText)
lookup_window = engine_with(LookupWindow)
draws_for_the_longest = engine_with(DrawsForTheLongest)
verifies_the_longest = engine_with(VerifiesTheLongest)
parallel_as_first = engine_with(ParallelAsFirst)
parallel_swapped = engine_with(ParallelSwapped)
