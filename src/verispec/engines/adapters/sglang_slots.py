"""SGLang's kernels of KV slots behind the contract compute_slot_mapping.

SGLang has no blocks here: its table `req_to_token` names the slot of each position, in a row of the request's own. A
step writes the slots that were allocated for it into the table, and reads them from there to draft and to verify.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch

from verispec.engines import UnsupportedCall

TESTED = ("sglang.srt.mem_cache.allocation", "sglang.kernels.ops.speculative.cache_locs")
"""Modules of the kernel that writes the table, and of those that read it: from release 0.5.16 on."""
PARTS = ("srt.mem_cache",)
"""Package of the first module, whose ``__init__`` is not run."""
UNKNOWN = -1
"""Entry of the table at positions that the step does not write."""
REPLACED: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "sglang.srt.hardware_backend": {},
        "sglang.srt.hardware_backend.npu": {},
        "sglang.srt.hardware_backend.npu.dsv4": {},
        "sglang.srt.hardware_backend.npu.dsv4.dsv4_common_hooks": {},
        "sglang.srt.mem_cache.allocator": {},
        "sglang.srt.mem_cache.allocator.page_interleave": {},
        "sglang.srt.mem_cache.base_prefix_cache": {},
        "sglang.srt.mem_cache.common": {},
        "sglang.srt.mem_cache.memory_pool": {},
        "sglang.srt.runtime_context": {},
        "sglang.srt.utils.common": {},
        "sglang.kernels.ops.memory": {},
        "sglang.kernels.ops.memory.common": {},
    }
)
"""Modules that the first one imports and its kernel does not use."""


def map_slots(table: Any, slots: Any, **given: Any) -> None:
    """Write the step's slots into the table, and read them from there.

    Rows of the table are given in reverse order, so that a request's row is not its place. If all requests have the
    same number of tokens, the first half of them verifies and the others draft; other steps are verified as a whole.

    Args:
        table: the first module of `TESTED`.
        slots: the second one.
        **given: arguments of compute_slot_mapping.

    Raises:
        UnsupportedCall: a step has ranks, padding, a position outside of its table, or positions that do not follow
            one another, or a slot needs more than 32 bits.
    """
    ends = given["query_start_loc_ptr"].long()
    starts, lengths, total = ends[:-1], ends.diff(), int(ends[-1])
    requests = len(lengths)
    block, blocks = given["KV_CACHE_BLOCK_SIZE"], given["block_table_ptr"][:requests].long()
    positions = given["positions_ptr"][:total].long()
    owner = torch.arange(requests, device=ends.device).repeat_interleave(lengths)
    width = blocks.shape[1] * block
    _require(given, positions, owner, width)
    if not total:
        return
    first = positions[starts.clamp(max=total - 1)]
    allocated = blocks[owner, positions // block] * block + positions % block
    if int(allocated.max()) > torch.iinfo(torch.int32).max:
        raise UnsupportedCall("its table holds slots of 32 bits")
    pool = torch.full((requests, width), UNKNOWN, dtype=torch.int32, device=ends.device)
    rows = torch.arange(requests, device=ends.device).flip(0)
    step = (rows, pool, first, first + lengths)
    size = 1 << (requests - 1).bit_length()
    table.assign_req_to_token_pool[(requests,)](*step, allocated, width, size)
    out, count = given["slot_mapping_ptr"], int(lengths[0])
    is_even = len(lengths.unique()) == 1
    half = requests // 2 if is_even else requests
    uniform = getattr(slots, "assign_extend_cache_locs_uniform", None)
    if half and is_even and uniform is not None:
        uniform[(half,)](rows[:half], pool, first[:half], out, width, count)
    elif half:  # releases before 0.5.20 verify any step so
        slots.assign_extend_cache_locs[(half,)](*step, out, width, size)
    if half < requests:
        rest = (rows[half:], pool, first[half:], out[half * count :])
        slots.assign_draft_cache_locs_contiguous[(requests - half,)](*rest, width, 1, count)


def _require(given: Mapping[str, Any], positions: torch.Tensor, owner: torch.Tensor, width: int) -> None:
    if given["TOTAL_CP_WORLD_SIZE"] > 1:
        raise UnsupportedCall("its table of slots is that of one rank")
    if given["max_num_tokens"] > given["num_tokens"]:
        raise UnsupportedCall("it maps no padding tokens")
    if bool((positions.diff() != 1)[owner.diff() == 0].any()):
        raise UnsupportedCall("the positions of a request follow one another there")
    if bool(((positions < 0) | (positions >= width)).any()):
        raise UnsupportedCall("its scheduler allocates a slot for each position before the step")
