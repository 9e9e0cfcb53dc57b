"""Runners with one fault in their draft trees: ``--engine tree_mutants:<name>``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from runner_mutants import engine_with

from verispec.engines.protocol.generation import LoadOptions
from verispec.reference.runners import base
from verispec.reference.runners.cpu import CPURunner
from verispec.reference.runners.scheduler import Scheduled
from verispec.reference.runners.step_inputs import StepInputs
from verispec.reference.sampler import ops


class BranchesSeen(CPURunner):
    """A node attends to its siblings and to their children too."""

    def _prepare(self, scheduled: Sequence[Scheduled]) -> StepInputs:
        inputs = super()._prepare(scheduled)
        tree = inputs.paged.tree
        if tree is not None:
            inputs.paged.tree = replace(tree, sees=torch.ones_like(tree.sees))
        return inputs


class PathNotMoved(CPURunner):
    """Keys and values of accepted nodes stay at the places of the tree."""

    def step(self, on_emit: Any = None) -> None:
        right = base.compact
        base.compact = lambda *given: None  # type: ignore[assignment]
        try:
            super().step(on_emit)
        finally:
            base.compact = right


class PositionsOfPlaces(CPURunner):
    """Nodes have the positions of their places instead of their depths."""

    def _prepare(self, scheduled: Sequence[Scheduled]) -> StepInputs:
        inputs = super()._prepare(scheduled)
        tree = inputs.paged.tree
        if tree is not None:
            inputs.paged.tree = replace(tree, positions=inputs.positions)
        return replace(inputs, position_ids=inputs.positions)


class OneNumberForAll(CPURunner):
    """All drafts of a request are compared with the same random number."""

    def step(self, on_emit: Any = None) -> None:
        right = ops.run

        def shared(name: str, device: torch.device, **given: Any) -> None:
            if name == "verify_tree_sampled":
                given["uniform_samples"] = given["uniform_samples"][:, 1:2].expand_as(given["uniform_samples"]).clone()
            right(name, device, **given)

        ops.run = shared
        try:
            super().step(on_emit)
        finally:
            ops.run = right


branches_seen = engine_with(BranchesSeen)
path_not_moved = engine_with(PathNotMoved)
positions_of_places = engine_with(PositionsOfPlaces)
one_number_for_all = engine_with(OneNumberForAll)


class RankTwoIsThree(CPURunner):
    """Nodes of rank 2 get the fourth most likely token."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        if self._tree is not None:
            self._tree.ranks[self._tree.ranks == 2] = 3


rank_two_is_three = engine_with(RankTwoIsThree)


class BranchesDraftedTogether(CPURunner):
    """A node of the drafter attends to all nodes before it, those of other branches too."""

    def _make_proposer(self, num_blocks: int) -> Any:
        proposer: Any = super()._make_proposer(num_blocks)
        proposer._sees = torch.ones_like(proposer._sees).tril()
        return proposer


branches_drafted_together = engine_with(BranchesDraftedTogether)
