"""build_draft_tree: parents of the selected candidates, then links, depth and attention row of each node.

    parent(i) = 0 if selected_i // topk = 0, else the node j with selected_j = parent_list[selected_i // topk]

Two launches: parents in blocks of nodes, then one program per node.

Source: SGLang 0.5.23, build_tree_kernel_efficient.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def _parents_kernel(parents, parent_list, entries, selected, topk, nodes, BLOCK: tl.constexpr):
    request = tl.program_id(0).to(tl.int64)
    node = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    selected += request * (nodes - 1)
    candidate = tl.load(selected + node - 1, mask=(node > 0) & (node < nodes), other=-1).to(tl.int64)
    entry = candidate // topk
    is_later = (candidate >= topk) & (entry < entries)
    wanted = tl.load(parent_list + request * entries + entry, mask=is_later, other=0).to(tl.int64)
    parent = tl.where((candidate >= 0) & (candidate < topk), 0, -1).to(tl.int64)
    for j in range(1, nodes):
        other = tl.load(selected + j - 1).to(tl.int64)
        parent = tl.where(is_later & (parent < 0) & (other == wanted), j, parent)
    tl.store(parents + request * nodes + node, parent, mask=node < nodes)


@triton.jit
def _tree_kernel(
    parents,
    verified_seq_len,
    tokens_before,
    tree_mask,
    mask_stride,
    mask_size,
    positions,
    positions_stride,
    retrieve_index,
    index_stride_0,
    index_stride_1,
    next_token,
    token_stride_0,
    token_stride_1,
    next_sibling,
    sibling_stride_0,
    sibling_stride_1,
    depth,
    nodes,
    FULL_MASK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    place = tl.program_id(0).to(tl.int64)
    request, node = place // nodes, place % nodes
    parents += request * nodes
    length = tl.load(verified_seq_len + request).to(tl.int64)
    if FULL_MASK:
        begin = nodes * (nodes * request + tl.load(tokens_before + request).to(tl.int64))
        begin += node * (length + nodes) + length
    else:
        begin = nodes * nodes * request + node * nodes
    parent = tl.load(parents + node)
    level = tl.zeros((), tl.int64)
    first, following = tl.zeros((), tl.int64) + nodes, tl.zeros((), tl.int64) + nodes
    for start in range(0, nodes, BLOCK):
        column = start + tl.arange(0, BLOCK).to(tl.int64)
        attended = column == 0
        level = tl.zeros((), tl.int64)
        ancestor = node
        while (ancestor > 0) & (level < depth):
            attended = attended | (column == ancestor)
            ancestor = tl.load(parents + ancestor)
            level += 1
        inside = (column < nodes) & (begin + column >= 0) & (begin + column < mask_size)
        tl.store(tree_mask + (begin + column) * mask_stride, attended, mask=inside)
        of_column = tl.load(parents + column, mask=(column > 0) & (column < nodes), other=-2)
        first = tl.minimum(first, tl.min(tl.where(of_column == node, column, nodes), axis=0))
        is_sibling = (of_column == parent) & (column > node) & (parent >= 0)
        following = tl.minimum(following, tl.min(tl.where(is_sibling, column, nodes), axis=0))
    tl.store(positions + place * positions_stride, length + level)
    tl.store(retrieve_index + request * index_stride_0 + node * index_stride_1, place)
    if first < nodes:
        tl.store(next_token + request * token_stride_0 + node * token_stride_1, first)
    if following < nodes:
        tl.store(next_sibling + request * sibling_stride_0 + node * sibling_stride_1, following)


def build_draft_tree(
    *,
    parent_list: Any,
    selected_index: Any,
    verified_seq_len: Any,
    tree_mask: Any,
    positions: Any,
    retrieve_index: Any,
    retrieve_next_token: Any,
    retrieve_next_sibling: Any,
    topk: int,
    depth: int,
    draft_token_num: int,
    tree_mask_mode: int,
) -> None:
    requests, nodes = verified_seq_len.shape[0], draft_token_num
    if requests == 0:
        return
    lengths = verified_seq_len.contiguous()
    block = min(triton.next_power_of_2(nodes), 256)
    parents = torch.empty((requests, nodes), dtype=torch.int64, device=lengths.device)
    _parents_kernel[(requests, triton.cdiv(nodes, block))](
        parents,
        parent_list.contiguous(),
        parent_list.shape[1],
        selected_index.contiguous(),
        topk,
        nodes,
        BLOCK=block,
        num_warps=1,
    )
    _tree_kernel[(requests * nodes,)](
        parents,
        lengths,
        torch.cumsum(lengths, dim=0, dtype=torch.int64) - lengths if tree_mask_mode == 0 else None,
        tree_mask,
        tree_mask.stride(0),
        tree_mask.shape[0],
        positions,
        positions.stride(0),
        retrieve_index,
        *retrieve_index.stride(),
        retrieve_next_token,
        *retrieve_next_token.stride(),
        retrieve_next_sibling,
        *retrieve_next_sibling.stride(),
        depth,
        nodes,
        FULL_MASK=tree_mask_mode == 0,
        BLOCK=block,
        num_warps=1,
    )
