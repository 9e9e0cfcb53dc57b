"""Paged attention for models of transformers: the attention function ``verispec_paged``.

A model loaded with ``attn_implementation="verispec_paged"`` runs on the flattened tokens of a ragged batch, [1, T]. The
batch may mix prefill chunks, single decode tokens, and tokens with draft tokens. Pass ``paged=PagedBatch(...)`` and
``use_cache=False`` to its forward call. The function writes new keys and values through the slot mapping and gathers
those of each sequence through its block table. Every query sees its own sequence up to its own position. transformers'
masks are not used.

Requests with the same number of queries form a group and are attended together, so that no query is padding.

Float32 models run on kernels of the reference instead (`fused`). `PagedBatch.kernel` is the batch for those in C++.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from verispec.errors import VerispecError
from verispec.reference.cpu import kernel

from .kv_cache import KVCache

ATTENTION = "verispec_paged"
_UNSUPPORTED = ("softcap", "s_aux", "position_bias")


@dataclass(frozen=True, slots=True)
class TreeQueries:
    """Queries of draft trees, whose nodes have the places from their root's on.

    Attributes:
        roots: [B] int64 place of each request's root in its sequence, -1 without a tree.
        sees: [D, D] bool, True where the node of a row attends to that of a column.
        positions: [T] int64 position of each token in its branch, to which queries and keys rotate.
    """

    roots: torch.Tensor
    sees: torch.Tensor
    positions: torch.Tensor

    def hidden(self, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        """Return the keys [B, Q, K] of other branches, for places of queries [B, Q, 1] and of keys [K].

        Keys after their query are hidden anyway.
        """
        roots, last = self.roots[:, None, None], len(self.sees) - 1
        query, key = (queries - roots).clamp(max=last), (keys - roots).clamp(max=last)
        return (roots >= 0) & (query >= 0) & (key >= 0) & ~self.sees[query.clamp(min=0), key.clamp(min=0)]


class _Group:
    """Requests with the same number of queries."""

    def __init__(
        self,
        rows: torch.Tensor | None,
        query_positions: torch.Tensor,
        slots: torch.Tensor,
        num_keys: int,
        tree: TreeQueries | None,
    ) -> None:
        self.rows = rows
        self.batch, self.num_queries = query_positions.shape
        self.slots = slots
        self.num_keys = num_keys
        self._query_positions = query_positions
        self._tree = tree
        self._masks: dict[tuple[int, int | None], torch.Tensor] = {}

    def mask(self, heads_per_kv: int, window: int | None, dtype: torch.dtype) -> torch.Tensor:
        """Return the additive mask [batch, 1, heads per key-value head * queries, keys]; all layers share it."""
        made = self._masks.get((heads_per_kv, window))
        if made is None:
            keys = torch.arange(self.num_keys, device=self.slots.device)
            queries = self._query_positions[:, :, None]
            hidden = keys > queries
            if window is not None:
                hidden |= keys <= queries - window
            if self._tree is not None:
                hidden |= self._tree.hidden(queries, keys)
            made = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(hidden, float("-inf"))
            made = made[:, None].repeat(1, 1, heads_per_kv, 1)
            self._masks[heads_per_kv, window] = made
        return made


class PagedBatch:
    """The batch of one forward pass: slots of the new keys, and the old keys that each query sees.

    Args:
        cache: KV cache of the model.
        slot_mapping: [T] int64 slot of each token; negative for padding.
        positions: [T] int64 position of each token in its sequence.
        block_table: [B, blocks] int32 blocks of each sequence.
        query_lens: tokens of each request in this pass.
        query_start_loc: [B + 1] int32 first token of each request, and the end of the last one.
        seq_lens: [B] int32 tokens of each sequence after this pass; no later token is read.
        max_seq_lens: `seq_lens` or upper bounds that the host knows without asking the device.
        block_size: tokens per block.
        tree: queries that are nodes of draft trees; None for tokens of sequences and chains.
    """

    def __init__(
        self,
        cache: KVCache,
        slot_mapping: torch.Tensor,
        positions: torch.Tensor,
        block_table: torch.Tensor,
        query_lens: np.ndarray,
        query_start_loc: torch.Tensor,
        seq_lens: torch.Tensor,
        max_seq_lens: np.ndarray,
        block_size: int,
        tree: TreeQueries | None = None,
    ) -> None:
        self.tree = tree
        self.cache = cache
        self.slot_mapping = slot_mapping
        self.positions = positions
        self.block_table = block_table
        self.query_lens = query_lens
        self.query_start_loc = query_start_loc
        self.seq_lens = seq_lens
        self.max_seq_lens = max_seq_lens
        self.block_size = block_size

    @cached_property
    def write_slots(self) -> torch.Tensor:
        """Slot of each token, [T]; padding gets the null block."""
        return self.slot_mapping.clamp(min=0)

    @cached_property
    def groups(self) -> list[_Group]:
        """The requests, grouped by number of queries."""
        starts = np.cumsum(self.query_lens) - self.query_lens
        groups = []
        for num_queries in np.unique(self.query_lens).tolist():
            members = np.flatnonzero(self.query_lens == num_queries)
            positions, block_table, seq_lens, rows = self.positions, self.block_table, self.seq_lens, None
            tree = self.tree
            if len(members) < len(self.query_lens):
                rows = torch.from_numpy((starts[members, None] + np.arange(num_queries)).reshape(-1)).to(
                    positions.device
                )
                member_ids = torch.from_numpy(members).to(positions.device)
                positions, block_table, seq_lens = positions[rows], block_table[member_ids], seq_lens[member_ids]
                tree = None if tree is None else replace(tree, roots=tree.roots[member_ids])
            num_keys = int(self.max_seq_lens[members].max())
            slots = _visible_slots(block_table, seq_lens, num_keys, self.block_size)
            groups.append(_Group(rows, positions.view(len(members), num_queries), slots, num_keys, tree))
        return groups

    @cached_property
    def kernel(self) -> Any:
        """The batch for C++ kernels; all its tensors are contiguous and on the CPU."""
        rows, (requests, blocks) = self.positions.shape[0], self.block_table.shape
        return kernel("PagedBatch")(
            _address(self.positions, torch.int64),
            _address(self.slot_mapping, torch.int64),
            rows,
            _address(self.query_start_loc, torch.int32),
            _address(self.seq_lens, torch.int32),
            requests,
            _address(self.block_table, torch.int32),
            blocks,
            self.block_size,
            self.cache.num_slots,
            *(() if (tree := self.tree) is None else _tree_arguments(tree)),
        )


def _address(tensor: torch.Tensor, dtype: torch.dtype) -> int:
    assert tensor.dtype == dtype and tensor.is_contiguous()
    address: int = tensor.data_ptr()
    return address


def _tree_arguments(tree: TreeQueries) -> tuple[int, ...]:
    """Return the addresses of the tensors of trees, and the number of nodes, for C++ kernels."""
    nodes = len(tree.sees)
    return (
        _address(tree.positions, torch.int64),
        _address(tree.roots, torch.int64),
        _address(tree.sees, torch.bool),
        nodes,
    )


def _visible_slots(block_table: torch.Tensor, seq_lens: torch.Tensor, num_keys: int, block_size: int) -> torch.Tensor:
    """Return the slots of positions 0 to `num_keys` - 1, [batch * keys]; past a sequence's end, the null block's."""
    positions = torch.arange(num_keys, device=block_table.device)
    slots = block_table[:, positions // block_size] * block_size + positions % block_size
    return torch.where(positions < seq_lens[:, None], slots, 0).view(-1)


def paged_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    paged: PagedBatch | None = None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attend [1, heads, T, head size] queries to the paged cache; see the module docstring.

    Raises:
        VerispecError: V-RUN-ATTENTION without `paged`, or for an attention variant other than softmax(q k^T) v.
    """
    unknown = [name for name in _UNSUPPORTED if kwargs.get(name) is not None]
    if paged is None or unknown:
        raise VerispecError(
            "V-RUN-ATTENTION",
            f"the model's attention needs {', '.join(unknown)}"
            if unknown
            else f"{ATTENTION} was called without a batch",
            hint="use a Llama-like or Qwen-like checkpoint",
        )
    cache = paged.cache
    layer: int = module.layer_idx
    _, num_heads, num_tokens, head_dim = query.shape
    kv_heads = cache.num_kv_heads
    per_kv = num_heads // kv_heads
    stored = cache.layers[layer]
    stored.index_copy_(
        0, paged.write_slots, torch.stack((key[0], value[0])).permute(2, 0, 1, 3).reshape(num_tokens, -1)
    )

    tokens = query[0].transpose(0, 1)
    out = torch.empty_like(tokens) if len(paged.groups) > 1 else None
    for group in paged.groups:
        seen = stored.index_select(0, group.slots).view(group.batch, group.num_keys, 2, kv_heads, head_dim)
        seen_keys, seen_values = seen.permute(2, 0, 3, 1, 4)
        # Treat the query heads of one key-value head as further queries, so that no key is repeated.
        rows = tokens if group.rows is None else tokens.index_select(0, group.rows)
        rows = rows.reshape(group.batch, group.num_queries, kv_heads, per_kv, head_dim).permute(0, 2, 3, 1, 4)
        mixed = scaled_dot_product_attention(
            rows.reshape(group.batch, kv_heads, per_kv * group.num_queries, head_dim),
            seen_keys,
            seen_values,
            attn_mask=group.mask(per_kv, sliding_window, query.dtype),
            scale=scaling,
        )
        mixed = mixed.view(group.batch, kv_heads, per_kv, group.num_queries, head_dim).permute(0, 3, 1, 2, 4)
        mixed = mixed.reshape(-1, num_heads, head_dim)
        if out is None or group.rows is None:
            return mixed[None], None
        out.index_copy_(0, group.rows, mixed)
    assert out is not None
    return out[None], None


AttentionInterface.register(ATTENTION, paged_attention)
