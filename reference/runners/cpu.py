"""The CPU runner."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from verispec.reference.models.packing import pack

from .base import BaseRunner


class CPURunner(BaseRunner):
    """Tensors share the memory of the host's arrays; the ops are the C++ kernels."""

    device = torch.device("cpu")

    def _tune(self, model: nn.Module) -> None:
        pack(model)

    def _upload(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array)
