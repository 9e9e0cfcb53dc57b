"""Engines whose ranks differ without noticing; each runs several ranks, and returns what rank 0 has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import rank_mutants
import torch
import torch.distributed as dist

from verispec.engines import Unsupported
from verispec.engines.adapters.reference import Reference
from verispec.engines.protocol.generation import LoadOptions
from verispec.reference.models import sharding
from verispec.reference.runners.base import BaseRunner
from verispec.reference.runners.cpu import CPURunner
from verispec.reference.runners.rank import RankMixin
from verispec.reference.runners.ranks import RankedRunner


class Unchecked(RankMixin, CPURunner):
    """A rank that does not compare itself with the others."""

    def step(self, on_emit: Any = None) -> None:
        BaseRunner.step(self, on_emit)


class OwnNoise(Unchecked, rank_mutants.OwnNoise):
    """Draws with the number of the rank in the seed (flagos-ai/vllm-plugin-FL#318)."""


class GatheredOnOneRank(Unchecked):
    """Has all logits on rank 0 alone; rank 1 knows its own half of the vocabulary."""

    def _callable(self, model: Any) -> Any:
        found = super()._callable(model)
        if model is self._model and dist.get_rank():
            found.register_forward_hook(self._forget_half)
        return found

    def _forget_half(self, module: Any, arguments: Any, output: Any) -> Any:
        output.logits[..., : self.vocab_size // dist.get_world_size()] = float("-inf")
        return output


class DraftsOnRankZero(Unchecked):
    """Drafts and decides on rank 0 alone: rank 1 knows the number of drafts and reads token 0 in their places."""

    def _advance(self, scheduled: Any, sampling: Any, emitted: Any, *rest: Any) -> None:
        decided = [emitted]
        dist.broadcast_object_list(decided)
        super()._advance(scheduled, sampling, decided[0], *rest)

    def _draft(self, scheduled: Any, *rest: Any) -> None:
        super()._draft(scheduled, *rest)
        for part in scheduled if dist.get_rank() else ():
            request = part.request
            request.tokens[request.num_tokens : request.num_tokens + request.drafts] = 0


class LastOfATie(Unchecked, rank_mutants.LastOfATie):
    """Takes the last of equally likely tokens on rank 1, where rank 0 takes the first."""


class PaddingKept(Unchecked):
    """Joins parts of other sizes with the padding between them."""

    def _load_model(self, folder: Path) -> Any:
        def padded(sizes: list[int], module: Any, arguments: Any, output: torch.Tensor) -> torch.Tensor:
            mine = torch.nn.functional.pad(output, (0, max(sizes) - output.shape[-1]))
            parts = [torch.empty_like(mine) for _ in sizes]
            dist.all_gather(parts, mine)
            return torch.cat(parts, dim=-1)[..., : sum(sizes)]

        with patch.object(sharding, "_gather", padded):
            return super()._load_model(folder)


class BiasOnEachRank(Unchecked):
    """Adds the bias of a projection whose columns are divided once per rank."""

    def _load_model(self, folder: Path) -> Any:
        right = sharding._split

        def split(module: Any, style: str, *rest: int) -> None:
            bias = module.bias
            right(module, style, *rest)
            if style == "rowwise":
                module.bias = bias

        with patch.object(sharding, "_split", split):
            return super()._load_model(folder)


class RankZero(RankedRunner):
    """Returns the results of rank 0 without a look at the others."""

    def generate(self, requests: Sequence[Any], on_emit: Any = None) -> list[Any]:
        for number in range(len(self.processes)):
            self._send(number, "generate", list(requests), on_emit is not None and number == 0)
        results: list[Any] = self._answers(on_emit)[0]
        return results


class Ranked(Reference):
    """The reference, with this `runner` on each rank; without float64 if `single`."""

    def __init__(self, runner: str, *, single: bool) -> None:
        super().__init__("verispec.reference.cpu", "reference", "cpu", {})
        self._runner, self._single = runner, single

    def load(self, target: Path, **options: Any) -> Any:
        wanted = LoadOptions(**options)
        if self._single and wanted.dtype == "float64":
            return Unsupported("no float64")
        if wanted.tensor_parallel_size == 1:
            return super().load(target, **options)
        return RankZero(target, wanted, f"rank_engines:{self._runner}")


def engine_with(runner: str, *, single: bool = False) -> Callable[[], Ranked]:
    return lambda: Ranked(runner, single=single)


own_noise = engine_with("OwnNoise")
own_noise_in_float32 = engine_with("OwnNoise", single=True)
gathered_on_one_rank = engine_with("GatheredOnOneRank")
right_in_float32 = engine_with("Unchecked", single=True)
drafts_on_rank_zero = engine_with("DraftsOnRankZero")
last_of_a_tie = engine_with("LastOfATie")
padding_kept = engine_with("PaddingKept")
bias_on_each_rank = engine_with("BiasOnEachRank")
