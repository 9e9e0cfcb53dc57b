"""Runners for ranks: one that reports what its rank holds, and the GPU runner's set-up on a CPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from verispec.reference.models import Eagle3Head
from verispec.reference.models.fused import fuse_head
from verispec.reference.models.fused_cpu import PARTS
from verispec.reference.proposers.head import Head
from verispec.reference.runners.cpu import CPURunner
from verispec.reference.runners.gpu import GPURunner
from verispec.reference.runners.rank import RankMixin


class Tells(RankMixin, CPURunner):
    """Puts the shapes of this rank's weights into the text of each result."""

    def generate(self, *arguments: Any) -> Any:
        layer = self._model.model.layers[0].self_attn
        shapes = [tuple(m.weight.shape) for m in (layer.q_proj, layer.o_proj, self._model.lm_head)]
        width = self.cache.layers[0].shape[1]
        text = f"q {shapes[0]} o {shapes[1]} head {shapes[2]} cache {width}"
        return [replace(result, text=text) for result in super().generate(*arguments)]


class OnHost(RankMixin, GPURunner):
    """The GPU runner with tensors and ops of the CPU, and with the head outside graphs."""

    device = torch.device("cpu")
    recorder = None

    def _callable_head(self, head: Eagle3Head) -> Head:
        return fuse_head(head, PARTS)

    def _upload(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array)


class Refuses(RankMixin, CPURunner):
    """Fails to start, without a word."""

    def __init__(self, *arguments: Any) -> None:
        method = arguments[1].method
        assert method is None
