"""The GPU runner."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel

from verispec.reference.models import Eagle3Head, MTPHead
from verispec.reference.models.decode_graphs import GraphedHead, GraphedModel, Recorder, record_cuda_graph
from verispec.reference.models.fused import Parts, fuse, fuse_head
from verispec.reference.proposers.head import Head

from .base import BaseRunner
from .draft_depth import GPU_SPEEDS


class GPURunner(BaseRunner):
    """Tensors are copied to the current CUDA device; the ops are the Triton kernels, decode passes CUDA graphs."""

    device = torch.device("cuda")
    speeds = GPU_SPEEDS
    fuses_trees = False
    recorder: Recorder | None = staticmethod(record_cuda_graph)

    def _callable(self, model: PreTrainedModel) -> nn.Module:
        parts = _parts()
        return GraphedModel(model if parts is None else fuse(model, parts))

    def _callable_head(self, head: Eagle3Head | MTPHead) -> Head:
        parts = _parts()
        return GraphedHead(head if parts is None else fuse_head(head, parts))

    def _set_up_auxiliary_states(self, head: Eagle3Head | MTPHead) -> None:
        super()._set_up_auxiliary_states(head)
        # The target of a rank waits for other ranks and runs outside graphs; its hooks alone fill the states.
        if isinstance(self._forward, GraphedModel) and self._aux is not None:
            self._forward.watch(self._aux)

    @staticmethod
    def _upload(array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).pin_memory().to(GPURunner.device, non_blocking=True)


def _parts() -> Parts | None:
    """Return the kernels of models; None for a device without TF32, in which they multiply."""
    if torch.cuda.get_device_capability() < (8, 0):
        return None
    # The import needs Triton, which machines without a GPU may lack.
    from verispec.reference.models.fused_gpu import PARTS

    return PARTS
