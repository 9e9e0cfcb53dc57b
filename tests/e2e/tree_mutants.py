"""Runners with one fault in their draft trees: ``--engine tree_mutants:<name>``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
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


class LoneNodeNotMoved(CPURunner):
    """Keys and values of a node that is accepted alone stay at its place of the tree."""

    def step(self, on_emit: Any = None) -> None:
        right = base.compact

        def compact(cache: Any, parts: Any, paths: Any, block_size: int) -> None:
            long = [n for n, path in enumerate(paths) if len(path) > 2]
            if long:
                right(cache, [parts[n] for n in long], [paths[n] for n in long], block_size)

        base.compact = compact
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

    def sources(self) -> torch.Tensor:
        """Return for each node the node whose random number it gets."""
        return torch.ones(self._tree.nodes, dtype=torch.int64)

    def share(self, given: dict[str, Any]) -> None:
        """Change the random numbers of a verification."""
        given["uniform_samples"] = given["uniform_samples"][:, self.sources()].clone()

    def step(self, on_emit: Any = None) -> None:
        right = ops.run

        def shared(name: str, device: torch.device, **given: Any) -> None:
            if name == "verify_tree_sampled":
                self.share(given)
            right(name, device, **given)

        ops.run = shared
        try:
            super().step(on_emit)
        finally:
            ops.run = right


class OneNumberALevel(OneNumberForAll):
    """The drafts of a level are compared with the same random number."""

    def sources(self) -> torch.Tensor:
        return torch.from_numpy(self._tree.depths)


class NumberOfTheLastNode(OneNumberForAll):
    """The token behind a path is drawn by the number of the tree's last node."""

    def share(self, given: dict[str, Any]) -> None:
        given["uniform_samples_for_final_sampling"] = given["uniform_samples"][:, -1].clone()


class NumberOfTheFirstNode(OneNumberForAll):
    """The token behind a path is drawn by the number of the tree's first node."""

    def share(self, given: dict[str, Any]) -> None:
        given["uniform_samples_for_final_sampling"] = given["uniform_samples"][:, 1].clone()


branches_seen = engine_with(BranchesSeen)
lone_node_not_moved = engine_with(LoneNodeNotMoved)
path_not_moved = engine_with(PathNotMoved)
positions_of_places = engine_with(PositionsOfPlaces)
number_of_the_first_node = engine_with(NumberOfTheFirstNode)
number_of_the_last_node = engine_with(NumberOfTheLastNode)
one_number_a_level = engine_with(OneNumberALevel)
one_number_for_all = engine_with(OneNumberForAll)


class RankTwoIsThree(CPURunner):
    """Nodes of rank 2 get the fourth most likely token."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        if self._tree is not None:
            self._tree.ranks[self._tree.ranks == 2] = 3


rank_two_is_three = engine_with(RankTwoIsThree)


class RootsOfTheFirstRows(CPURunner):
    """The children of roots are those of the step's first requests, of which some may not draft."""

    def _make_proposer(self, num_blocks: int) -> Any:
        proposer: Any = super()._make_proposer(num_blocks)
        propose, run = proposer.propose, proposer._run
        owners: list[int] = []

        def proposed(step: Any) -> Any:
            owners[:] = [n for n, count in enumerate(step.num_drafts) if count]
            return propose(step)

        def moved(*given: Any) -> torch.Tensor:
            logits: torch.Tensor = run(*given)
            if given[-1] is None:  # the pass over the sequences
                logits[owners] = logits[: len(owners)].clone()
            return logits

        proposer.propose, proposer._run = proposed, moved
        return proposer


roots_of_the_first_rows = engine_with(RootsOfTheFirstRows)


class BranchesDraftedTogether(CPURunner):
    """A node of the drafter attends to all nodes before it, those of other branches too."""

    def _make_proposer(self, num_blocks: int) -> Any:
        proposer: Any = super()._make_proposer(num_blocks)
        proposer._sees = torch.ones_like(proposer._sees).tril()
        return proposer


branches_drafted_together = engine_with(BranchesDraftedTogether)


class DraftedAtPlaces(CPURunner):
    """A node has for the drafter the position of its place, not of its depth."""

    def _make_proposer(self, num_blocks: int) -> Any:
        proposer: Any = super()._make_proposer(num_blocks)
        run = proposer._run
        proposer._run = lambda table, lens, places, positions, *more: run(table, lens, places, places, *more)
        return proposer


drafted_at_places = engine_with(DraftedAtPlaces)


class DrafterSees(CPURunner):
    """Base of the runners whose drafter lets the nodes of a tree attend to other ones."""

    def _make_proposer(self, num_blocks: int) -> Any:
        proposer: Any = super()._make_proposer(num_blocks)
        proposer._sees = torch.from_numpy(self.sees(proposer._tree))
        return proposer

    def sees(self, tree: Any) -> np.ndarray:
        """Return the nodes that each node attends to, [D, D]."""
        raise NotImplementedError


class PlacesOfTheLevel(DrafterSees):
    """A node attends to the nodes of its place in the levels above it, and not to its ancestors (sglang#8409)."""

    def sees(self, tree: Any) -> np.ndarray:
        sees = np.eye(tree.nodes, dtype=bool)
        sees[:, 0] = True
        for depth in range(1, int(tree.depths.max()) + 1):
            level = np.flatnonzero(tree.depths == depth)
            for above in range(1, depth):
                kept = np.flatnonzero(tree.depths == above)
                sees[level, kept[np.minimum(np.arange(len(level)), len(kept) - 1)]] = True
        return sees


class LastOfTheLevel(DrafterSees):
    """The last inner node of the second level attends to the parent of the one before it too."""

    def sees(self, tree: Any) -> np.ndarray:
        sees = tree.sees.copy()
        *_, before, last = (0, 0, *tree.inner_nodes(2))
        sees[last, tree.parents[before]] = True
        return sees


places_of_the_level = engine_with(PlacesOfTheLevel)
last_of_the_level = engine_with(LastOfTheLevel)
