"""The CPU runner."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel

from verispec.engines.protocol.generation import OnEmit
from verispec.reference.models import Eagle3Head, MTPHead
from verispec.reference.models.fused import fuse, fuse_head
from verispec.reference.models.fused_cpu import PARTS
from verispec.reference.proposers.head import Head

from .base import BaseRunner
from .draft_depth import CPU_SPEEDS

_SMALL = 512
"""Hidden size below which a hybrid, which torch runs, gains less from a second thread than it waits for it."""


class CPURunner(BaseRunner):
    """Tensors share the memory of the host's arrays; the ops are the C++ kernels."""

    device = torch.device("cpu")
    speeds = CPU_SPEEDS
    fuses_trees = True

    def _callable(self, model: PreTrainedModel) -> nn.Module:
        return fuse(model, PARTS)

    def _callable_head(self, head: Eagle3Head | MTPHead) -> Head:
        return fuse_head(head, PARTS)

    def step(self, on_emit: OnEmit | None = None) -> None:
        """Run one step, that of a small hybrid in one thread."""
        threads = torch.get_num_threads()
        if self._recurrent is None or self._model.config.hidden_size >= _SMALL:
            super().step(on_emit)
            return
        torch.set_num_threads(1)
        try:
            super().step(on_emit)
        finally:
            torch.set_num_threads(threads)

    @staticmethod
    def _upload(array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array)
