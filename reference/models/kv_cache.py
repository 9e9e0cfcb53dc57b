"""The paged KV cache of one model.

A slot stores keys and values of one token; slot = block * block size + offset. Block tables assign blocks to sequences.
Block 0 is the null block: no sequence owns it. Padding is written to it and masked reads go to it, so that no
sequence's slots are accessed for another.
"""

from __future__ import annotations

import numpy as np
import torch
from transformers import PretrainedConfig

NULL_BLOCK = 0
PAD_SLOT = -1

_LINE = 64
"""Bytes of a cache line."""


class KVCache:
    """Keys and values of one model, by layer and slot.

    A target and its drafter have separate caches under the same block tables.

    Args:
        config: configuration of the model, for its key-value heads and head size.
        num_layers: layers with attention, numbered by their `layer_idx`.
        num_slots: blocks times block size.
        ranks: processes that share the heads among them.

    Attributes:
        layers: one [slots, 2 * key-value heads * head size] tensor per layer: a token's keys, then its values.
        addresses: address of the first element of each layer, for kernels.
        num_slots: slots of every layer.
    """

    def __init__(
        self,
        config: PretrainedConfig,
        num_layers: int,
        num_slots: int,
        dtype: torch.dtype,
        device: torch.device,
        ranks: int = 1,
    ) -> None:
        heads: int = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        self.num_kv_heads = heads // ranks
        self.head_dim: int = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        shape = (num_slots, 2 * self.num_kv_heads * self.head_dim)
        self.layers = [_zeros(shape, dtype, device) for _ in range(num_layers)]
        self.addresses = [layer.data_ptr() for layer in self.layers]
        self.num_slots = num_slots

    def poison(self, slots: torch.Tensor) -> None:
        """Fill `slots` with NaN, so that a read of them shows."""
        for layer in self.layers:
            layer[slots] = float("nan")


def _zeros(shape: tuple[int, int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return zeros; on the CPU from NumPy, whose pages take no memory and no time before they are used."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    size = shape[0] * shape[1] * dtype.itemsize
    pages = np.zeros(size + _LINE, dtype=np.uint8)
    start = -pages.ctypes.data % _LINE
    return torch.from_numpy(pages[start : start + size]).view(dtype).view(shape)
