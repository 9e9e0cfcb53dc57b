"""Broken runners as engines: ``--engine runner_mutants:<name>``, each the reference with one fault."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from verispec.engines.adapters.reference import Reference
from verispec.engines.protocol.generation import GenerationRequest, LoadOptions
from verispec.reference.models import AuxiliaryStates, Eagle3Head
from verispec.reference.models.kv_cache import PAD_SLOT
from verispec.reference.runners.cpu import CPURunner
from verispec.reference.runners.scheduler import Scheduled, Scheduler
from verispec.reference.sampler import ops


def change_calls(op: str, parameter: str, change: Callable[[Any], Any]) -> None:
    """From now on the op `op` is called with its argument `parameter`, where it has one, changed."""
    run = ops.run

    def changed(name: str, device: torch.device, **arguments: Any) -> None:
        if name == op and arguments.get(parameter) is not None:
            arguments[parameter] = change(arguments[parameter])
        run(name, device, **arguments)

    ops.run = changed


def follows_rejection(part: Scheduled) -> bool:
    steps = part.request.steps
    return bool(steps) and steps[-1].accepted < steps[-1].drafted


class KVNotRolledBack(CPURunner):
    """The recovered token is not written to the cache: the draft's key and value stay."""

    def _prepare(self, scheduled: Any) -> Any:
        inputs = super()._prepare(scheduled)
        for part, start in zip(scheduled, inputs.query_start_loc.tolist(), strict=False):
            if follows_rejection(part):
                inputs.paged.slot_mapping[start] = PAD_SLOT
        return inputs


class PositionOffByOne(CPURunner):
    """After a rejection the target's next tokens stand one position too far."""

    def _prepare(self, scheduled: Any) -> Any:
        inputs = super()._prepare(scheduled)
        ahead = torch.tensor([int(follows_rejection(part)) for part in scheduled])
        inputs.positions.add_(ahead.repeat_interleave(torch.from_numpy(inputs.query_lens)))
        return inputs


class AuxLayersShifted(CPURunner):
    """The head reads the layers one past those that it was trained on."""

    def _set_up_auxiliary_states(self, head: Eagle3Head) -> None:
        layers = head.config.aux_layers(self._model.config.num_hidden_layers)
        self._aux = AuxiliaryStates(self._forward, [layer + 1 for layer in layers])


class D2tIgnored(CPURunner):
    """Ids of the draft vocabulary are taken for the target's."""

    def _make_proposer(self, num_blocks: int) -> Any:
        proposer = super()._make_proposer(num_blocks)
        if self.options.method == "eagle3":
            proposer._to_target = lambda ids: ids
        return proposer


class BonusLost(CPURunner):
    """When all drafts are accepted the step ends with the last of them."""

    def _advance(self, scheduled: Any, sampling: Any, emitted: Any, *rest: Any) -> None:
        for part, row in zip(sampling, emitted, strict=True):
            if 0 < part.num_drafts == len(row) - 1:
                row.pop()
        before = [(part.request, len(part.request.steps), part.num_drafts) for part in sampling]
        super()._advance(scheduled, sampling, emitted, *rest)
        for request, count, drafted in before:
            step = request.steps[count]
            if 0 < drafted == step.accepted + 1:
                request.steps[count] = replace(step, accepted=drafted)


class BatchOrderByDict(CPURunner):
    """Places of finished requests are taken by new ones, and the tokens are read in the order of places."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        self._places: dict[int, int] = {}

    def _advance(self, scheduled: Any, sampling: Any, emitted: Any, *rest: Any) -> None:
        for part in sampling:
            free = next(place for place in itertools.count() if place not in self._places.values())
            self._places.setdefault(part.request.index, free)
        order = sorted(range(len(sampling)), key=lambda row: self._places[sampling[row].request.index])
        mixed = [emitted[row] for row in order]
        if all(len(row) - 1 <= part.num_drafts for row, part in zip(mixed, sampling, strict=True)):
            emitted = mixed
        super()._advance(scheduled, sampling, emitted, *rest)
        for part in sampling:
            if part.request.finish_reason is not None:
                del self._places[part.request.index]


class StaleDraftsAfterPreemption(CPURunner):
    """A preempted request keeps its drafts and verifies them when it resumes."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        self._scheduler.__class__ = KeepsDrafts


class KeepsDrafts(Scheduler):
    def _preempt_youngest(self) -> Any:
        youngest = self.running[-1]
        drafts, probs = youngest.drafts, youngest.draft_probs
        request = super()._preempt_youngest()
        request.drafts, request.draft_probs = drafts, probs
        return request


class DraftProbsLost(CPURunner):
    """Drafts are drawn from a distribution, and verified as if they had been certain."""

    def _draft(self, scheduled: Any, inputs: Any, verified: Any) -> None:
        super()._draft(scheduled, inputs, verified)
        for part in scheduled:
            part.request.draft_probs = None


class RecoveredFromTarget(CPURunner):
    """The recovered token is drawn from the target's distribution, not from max(p - q, 0)."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        change_calls("sample_recovered_tokens", "draft_probs_ptr", torch.zeros_like)


class TooCold(CPURunner):
    """Temperatures are taken 15 % too low."""

    def _admit(self, index: int, request: GenerationRequest) -> Any:
        return super()._admit(index, replace(request, temperature=0.85 * request.temperature))


class SeedIgnored(CPURunner):
    """Every request draws from the seed 0."""

    def _admit(self, index: int, request: GenerationRequest) -> Any:
        return super()._admit(index, replace(request, seed=0))


class CountsFromOne(CPURunner):
    """The token behind the drafts is drawn with the numbers of the next position."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        change_calls("residual_resample", "pos", lambda pos: pos + 1)


class DraftsCountFromOne(CPURunner):
    """Drafts are drawn with the numbers of the next position."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        change_calls("gumbel_sample", "pos", lambda pos: pos + 1)


class OneSalt(CPURunner):
    """Drafts are drawn with the numbers of the target's tokens."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        change_calls("gumbel_sample", "is_drafting", lambda drafting: False)


class SlotsMixedUp(CPURunner):
    """A request's drafts are drawn by, and kept for, the request beside it."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        change_calls("gumbel_sample", "expanded_idx_mapping", lambda slots: slots.roll(1))


class SlotNotWritten(CPURunner):
    """A slot keeps the seed and the temperature of its first request."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        write, written = self._sampling._write, set()

        def once(request: Any) -> None:
            if request.slot not in written:
                written.add(request.slot)
                write(request)

        self._sampling._write = once


class SamplesOnResuming(CPURunner):
    """A request that was preempted samples without the drafts that it would have had, with other numbers."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        self._scheduler.repeatable = False


class Mutant(Reference):
    """The reference engine with another runner."""

    def __init__(self, runner: type[CPURunner]) -> None:
        super().__init__("verispec.reference.cpu", runner.__name__, "cpu", {"fault": str(runner.__doc__)})
        self._runner = runner

    def load(self, target: Path, **options: Any) -> CPURunner:
        return self._runner(target, LoadOptions(**options))


def engine_with(runner: type[CPURunner]) -> Callable[[], Mutant]:
    return lambda: Mutant(runner)


kv_not_rolled_back = engine_with(KVNotRolledBack)
position_off_by_one = engine_with(PositionOffByOne)
aux_layers_shifted = engine_with(AuxLayersShifted)
d2t_ignored = engine_with(D2tIgnored)
bonus_lost = engine_with(BonusLost)
batch_order_by_dict = engine_with(BatchOrderByDict)
stale_drafts_after_preemption = engine_with(StaleDraftsAfterPreemption)
draft_probs_lost = engine_with(DraftProbsLost)
recovered_from_target = engine_with(RecoveredFromTarget)
too_cold = engine_with(TooCold)
seed_ignored = engine_with(SeedIgnored)
counts_from_one = engine_with(CountsFromOne)
drafts_count_from_one = engine_with(DraftsCountFromOne)
one_salt = engine_with(OneSalt)
slots_mixed_up = engine_with(SlotsMixedUp)
slot_not_written = engine_with(SlotNotWritten)
samples_on_resuming = engine_with(SamplesOnResuming)
