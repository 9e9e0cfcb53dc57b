"""Runners with one fault in the states of recurrent layers: ``--engine hybrid_mutants:<name>``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from runner_mutants import engine_with

from verispec.engines.protocol.generation import LoadOptions
from verispec.reference.models import recurrent
from verispec.reference.models.recurrent import Key, RecurrentPart, RecurrentStates
from verispec.reference.runners.cpu import CPURunner
from verispec.reference.runners.request import RequestState

_read = recurrent._read


class Changed(CPURunner):
    """Base of the runners that read or write other checkpoints than those of the accepted tokens."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        if self._recurrent is not None:
            right = self._recurrent.select
            states = self._recurrent

            def select(parts: Sequence[RecurrentPart]) -> None:
                before = states._last - states._first
                right(parts)
                self.change(states, parts, before)

            states.select = select  # type: ignore[method-assign]

    def change(self, states: RecurrentStates, parts: Sequence[RecurrentPart], before: np.ndarray) -> None:
        """Change the passes of a step; `before` [slots] are the drafts of each slot's last step."""
        raise NotImplementedError


class NoRollback(Changed):
    """A step starts from the state after all drafts of the last one, rejected ones included."""

    def change(self, states: RecurrentStates, parts: Sequence[RecurrentPart], before: np.ndarray) -> None:
        for part in certain(states):
            part.read.copy_(torch.from_numpy(before)[part.slots].clamp(min=0))


class OneTooMany(Changed):
    """A step starts from the state before the last accepted draft."""

    def change(self, states: RecurrentStates, parts: Sequence[RecurrentPart], before: np.ndarray) -> None:
        for part in certain(states):
            part.read.sub_(1).clamp_(min=0)


class Neighbour(Changed):
    """A step of several requests starts from the states of their neighbours."""

    def change(self, states: RecurrentStates, parts: Sequence[RecurrentPart], before: np.ndarray) -> None:
        for part in certain(states):
            if not part.begins.any():
                part.slots.copy_(part.slots.roll(1))


class AcceptedOfNeighbour(Changed):
    """A request reads the checkpoint of its neighbour's number of accepted drafts."""

    def change(self, states: RecurrentStates, parts: Sequence[RecurrentPart], before: np.ndarray) -> None:
        for part in certain(states):
            if not part.begins.any():
                most = torch.from_numpy(before)[part.slots]
                part.read.copy_(part.read.roll(1).minimum(most))


class FirstCheckpoint(Changed):
    """A step without drafts reads the first checkpoint, where those with drafts begin (vllm#39273)."""

    def change(self, states: RecurrentStates, parts: Sequence[RecurrentPart], before: np.ndarray) -> None:
        if not any(part.num_drafts for part in parts):
            for part in certain(states):
                part.read.zero_()


class Finished(Changed):
    """A request starts from the state of the one that had its place before."""

    used: torch.Tensor | None = None

    def change(self, states: RecurrentStates, parts: Sequence[RecurrentPart], before: np.ndarray) -> None:
        used = self.used = torch.zeros(len(before), dtype=torch.bool) if self.used is None else self.used
        for part in certain(states):
            part.begins.logical_and_(~used[part.slots])
            used[part.slots] = True


class ChunkForgotten(Changed):
    """Each chunk of a prompt starts from the empty state."""

    def change(self, states: RecurrentStates, parts: Sequence[RecurrentPart], before: np.ndarray) -> None:
        for part in certain(states):
            if part.length > 1:
                part.begins.fill_(True)


class WindowOfChunksForgotten(Changed):
    """Each chunk of a prompt starts with an empty window of its convolution; the state of the scan is right."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)

        def read(states: dict[Key, torch.Tensor], part: Any) -> dict[Key, torch.Tensor]:
            made = _read(states, part)
            if part.length > 1:
                made |= {key: torch.zeros_like(state) for key, state in made.items() if key[0] == "conv"}
            return made

        recurrent._read = read

    def change(self, states: RecurrentStates, parts: Sequence[RecurrentPart], before: np.ndarray) -> None:
        """Change nothing else."""


class Padded(Changed):
    """Requests with fewer tokens than the longest of a step are padded, and their states read the padding."""

    short: frozenset[int] = frozenset()

    def change(self, states: RecurrentStates, parts: Sequence[RecurrentPart], before: np.ndarray) -> None:
        for part in certain(states):
            for slot, read, row in zip(part.slots, part.read, part.rows[:: part.length], strict=True):
                if int(slot) in self.short and not part.begins.any():
                    one = (row[None], slot[None], read[None], torch.tensor([False]))
                    states._passes.insert(0, recurrent._Pass(1, *one, write=int(read)))
        longest = max(part.num_tokens for part in parts)
        self.short = frozenset(part.slot for part in parts if part.num_tokens < longest)


class Preempted(Changed):
    """A preempted request goes on with the state that it had."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        self.kept: set[int] = set()
        right = self._scheduler._preempt_youngest

        def preempt() -> RequestState:
            self.kept.add(self._scheduler.running[-1].slot)
            return right()

        self._scheduler._preempt_youngest = preempt  # type: ignore[method-assign]

    def change(self, states: RecurrentStates, parts: Sequence[RecurrentPart], before: np.ndarray) -> None:
        for part in certain(states):
            for place, slot in enumerate(part.slots.tolist()):
                if part.begins[place] and slot in self.kept:
                    part.begins[place] = False
                    self.kept.remove(slot)


class KindNotRolledBack(Changed):
    """States of one kind, conv or recurrent, are those after all drafts of the last step; the others are right."""

    kind: str

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)

        def read(states: dict[Key, torch.Tensor], part: Any) -> dict[Key, torch.Tensor]:
            made = _read(states, part)
            if part.write == 0:
                last = part._replace(read=torch.from_numpy(self.before)[part.slots].clamp(min=0))
                made |= {key: state for key, state in _read(states, last).items() if key[0] == self.kind}
            return made

        recurrent._read = read

    def change(self, states: RecurrentStates, parts: Sequence[RecurrentPart], before: np.ndarray) -> None:
        self.before = before


class ConvNotRolledBack(KindNotRolledBack):
    """The window of the convolution keeps the rejected drafts."""

    kind = "conv"


class MatrixNotRolledBack(KindNotRolledBack):
    """The state of the scan keeps the rejected drafts."""

    kind = "recurrent"


def certain(states: RecurrentStates) -> list[Any]:
    """Return the passes of the tokens that are no drafts."""
    return [part for part in states._passes if part.write == 0]


no_rollback = engine_with(NoRollback)
one_too_many = engine_with(OneTooMany)
neighbour = engine_with(Neighbour)
accepted_of_neighbour = engine_with(AcceptedOfNeighbour)
first_checkpoint = engine_with(FirstCheckpoint)
finished = engine_with(Finished)
chunk_forgotten = engine_with(ChunkForgotten)
window_of_chunks_forgotten = engine_with(WindowOfChunksForgotten)
padded = engine_with(Padded)
preempted = engine_with(Preempted)
conv_not_rolled_back = engine_with(ConvNotRolledBack)
matrix_not_rolled_back = engine_with(MatrixNotRolledBack)
