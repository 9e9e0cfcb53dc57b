"""Runners with and without recorded passes, on machines with CUDA and without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from verispec.engines.protocol.generation import GenerationRequest
from verispec.reference.models import Eagle3Head
from verispec.reference.models.decode_graphs import GraphedHead, GraphedModel
from verispec.reference.proposers.head import Head
from verispec.reference.runners.base import BaseRunner
from verispec.reference.runners.cpu import CPURunner
from verispec.reference.runners.gpu import GPURunner

Tensors = tuple[torch.Tensor, ...]


class Replays:
    """A recorder for machines without CUDA: a replay runs the recorded function again, into the same memory."""

    def __init__(self) -> None:
        self.recorded = 0
        self.replayed = 0

    def __call__(self, run: Callable[[], Tensors]) -> tuple[Tensors, Callable[[], None]]:
        outputs = run()
        self.recorded += 1

        def replay() -> None:
            self.replayed += 1
            for output, again in zip(outputs, run(), strict=True):
                output.copy_(again)

        return outputs, replay


class EagerRunner(CPURunner):
    """Runs transformers' own modules."""

    def _callable(self, model: PreTrainedModel) -> nn.Module:
        return model

    def _callable_head(self, head: Eagle3Head) -> Head:
        return head


class ReplayRunner(CPURunner):
    """Runs recorded passes, as the GPU runner does."""

    def __init__(self, *args: Any) -> None:
        self.recorder = self.replays = Replays()
        super().__init__(*args)

    def _callable(self, model: PreTrainedModel) -> nn.Module:
        return GraphedModel(model, self.replays)

    def _callable_head(self, head: Eagle3Head) -> Head:
        return GraphedHead(head, self.replays)

    def _set_up_auxiliary_states(self, head: Eagle3Head) -> None:
        super()._set_up_auxiliary_states(head)
        assert isinstance(self._forward, GraphedModel) and self._aux is not None
        self._forward.watch(self._aux)


class EagerGPURunner(GPURunner):
    """Runs transformers' own modules and launches every kernel from the host."""

    recorder = None

    def _callable(self, model: PreTrainedModel) -> nn.Module:
        return model

    def _callable_head(self, head: Eagle3Head) -> Head:
        return head

    def _set_up_auxiliary_states(self, head: Eagle3Head) -> None:
        BaseRunner._set_up_auxiliary_states(self, head)


def tokens(runner: BaseRunner, requests: list[GenerationRequest]) -> list[tuple[int, ...]]:
    return [result.token_ids for result in runner.generate(requests)]
