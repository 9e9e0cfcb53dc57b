"""The GPU runner."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel

from verispec.reference.models import Eagle3Head
from verispec.reference.proposers.eagle3 import Head

from .base import BaseRunner


class GPURunner(BaseRunner):
    """Tensors are copied to the current CUDA device; the ops are the Triton kernels."""

    device = torch.device("cuda")

    def _callable(self, model: PreTrainedModel) -> nn.Module:
        return model

    def _callable_head(self, head: Eagle3Head) -> Head:
        return head

    def _upload(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).pin_memory().to(self.device, non_blocking=True)
