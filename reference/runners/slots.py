"""From positions and block tables to KV slots, by the op compute_slot_mapping."""

from __future__ import annotations

import torch

from verispec.reference.models.kv_cache import PAD_SLOT
from verispec.reference.sampler import ops

_TILE = 1024


def slot_mapping(
    query_start_loc: torch.Tensor, positions: torch.Tensor, block_table: torch.Tensor, block_size: int
) -> torch.Tensor:
    """Return the slot of each token, [T] int64.

    Args:
        query_start_loc: [B + 1] int32 first token of each request, and the end of the last.
        positions: [T] int64 position of each token in its sequence.
        block_table: [B, blocks] int32.
        block_size: tokens a block.
    """
    num_tokens = positions.shape[0]
    slots = torch.empty(num_tokens, dtype=torch.int64, device=positions.device)
    ops.run(
        "compute_slot_mapping",
        positions.device,
        num_tokens=num_tokens,
        max_num_tokens=num_tokens,
        query_start_loc_ptr=query_start_loc,
        positions_ptr=positions,
        block_table_ptr=block_table,
        block_table_stride=block_table.stride(0),
        slot_mapping_ptr=slots,
        KV_CACHE_BLOCK_SIZE=block_size,
        TOTAL_CP_WORLD_SIZE=1,
        TOTAL_CP_RANK=0,
        CP_KV_CACHE_INTERLEAVE_SIZE=1,
        PAD_ID=PAD_SLOT,
        BLOCK_SIZE=_TILE,
    )
    return slots
