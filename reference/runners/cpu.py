"""The CPU runner."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel

from verispec.reference.models import Eagle3Head, MTPHead
from verispec.reference.models.fused_cpu import compact, compact_head
from verispec.reference.proposers.head import Head

from .base import BaseRunner


class CPURunner(BaseRunner):
    """Tensors share the memory of the host's arrays; the ops are the C++ kernels."""

    device = torch.device("cpu")

    def _callable(self, model: PreTrainedModel) -> nn.Module:
        return compact(model)

    def _callable_head(self, head: Eagle3Head | MTPHead) -> Head:
        return compact_head(head)

    def _upload(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array)
