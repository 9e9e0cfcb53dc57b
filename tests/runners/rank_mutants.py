"""Runners in which one rank does something else than the others; `test_ranks.py` says how that shows."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from verispec.reference.runners.cpu import CPURunner
from verispec.reference.runners.rank import RankMixin


class OwnNoise(RankMixin, CPURunner):
    """Seeds requests by the number of the rank too."""

    def _admit(self, index: int, request: Any) -> Any:
        from dataclasses import replace

        return super()._admit(index, replace(request, seed=(request.seed or 0) + 1000 * dist.get_rank()))


class GatheredOnOneRank(RankMixin, CPURunner):
    """Has all logits on rank 0 alone; the other ranks keep zeros for the vocabulary of others."""

    def _callable(self, model: Any) -> Any:
        found = super()._callable(model)
        if model is self._model and dist.get_rank():
            half = self.vocab_size // dist.get_world_size()

            def own_part(module: Any, arguments: Any, output: Any) -> Any:
                output.logits[..., :half] = 0
                return output

            found.register_forward_hook(own_part)
        return found


class DraftsOnRankZero(RankMixin, CPURunner):
    """Drafts on rank 0 alone."""

    def _draft(self, *step: Any) -> None:
        if dist.get_rank() == 0:
            super()._draft(*step)


class LastOfATie(RankMixin, CPURunner):
    """Takes the last of equally likely tokens on rank 1, where rank 0 takes the first."""

    def _callable(self, model: Any) -> Any:
        found = super()._callable(model)
        if model is self._model and dist.get_rank():
            found.register_forward_hook(_last_of_a_tie)
        return found


def _last_of_a_tie(module: Any, arguments: Any, output: Any) -> Any:
    logits = output.logits
    most = logits == logits.amax(-1, keepdim=True)
    last = logits.shape[-1] - 1 - most.flip(-1).to(torch.int8).argmax(-1, keepdim=True)
    logits.scatter_add_(-1, last, torch.ones_like(last, dtype=logits.dtype) * 1e-3)
    return output


class DiesAtStep(RankMixin, CPURunner):
    """Rank 1 is killed before its third forward pass, while rank 0 is in it."""

    steps = 0

    def step(self, on_emit: Callable[..., None] | None = None) -> None:
        self.steps += 1
        if self.steps == 3 and dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        super().step(on_emit)


class RaisesAtStep(RankMixin, CPURunner):
    """Rank 1 raises before its third forward pass."""

    steps = 0

    def step(self, on_emit: Callable[..., None] | None = None) -> None:
        self.steps += 1
        if self.steps == 3 and dist.get_rank() == 1:
            raise RuntimeError("out of memory on this rank")
        super().step(on_emit)


class DiesAtStart(RankMixin, CPURunner):
    """Rank 1 ends while the model loads."""

    def _load_model(self, folder: Any) -> Any:
        if dist.get_rank():
            os._exit(3)
        return super()._load_model(folder)
