"""Oracle of build_draft_tree: the contract's clauses, executed."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from verispec.reference.oracle._rows import Array


def build_draft_tree(
    *,
    parent_list: Array,
    selected_index: Array,
    verified_seq_len: Array,
    tree_mask: Array,
    positions: Array,
    retrieve_index: Array,
    retrieve_next_token: Array,
    retrieve_next_sibling: Array,
    topk: int,
    depth: int,
    draft_token_num: int,
    tree_mask_mode: int,
) -> dict[str, Array]:
    mask, where, index = tree_mask.copy(), positions.copy(), retrieve_index.copy()
    first_child, sibling = retrieve_next_token.copy(), retrieve_next_sibling.copy()
    nodes = draft_token_num
    start = 0
    for b in range(len(verified_seq_len)):
        length = int(verified_seq_len[b])
        selected = [int(candidate) for candidate in selected_index[b]]
        parent: list[int | None] = [None]
        for candidate in selected:
            entry = candidate // topk
            if candidate < 0 or entry >= max(parent_list.shape[1], 1):
                parent.append(None)
            elif entry == 0:
                parent.append(0)
            else:
                wanted = int(parent_list[b, entry])
                parent.append(selected.index(wanted) + 1 if wanted in selected else None)
        children: dict[int, list[int]] = {}
        for j in range(1, nodes):
            of = parent[j]
            if of is not None:
                children.setdefault(of, []).append(j)
        paths: list[Array] = []
        for i in range(nodes):
            index[b, i] = b * nodes + i
            of = parent[i]
            # Most parents come before their children, so that long chains reuse their paths.
            if of is None or of >= i:
                ancestors = np.array(path(i, parent, depth), dtype=np.int64)
            else:
                ancestors = np.append(i, paths[of])[:depth]
            paths.append(ancestors)
            where[b * nodes + i] = length + len(ancestors)
            before = length if tree_mask_mode == 0 else 0
            begin = start + i * (before + nodes) + before
            mask[begin : begin + nodes] = False
            mask[begin + np.append(0, ancestors)] = True
            if i in children:
                first_child[b, i] = children[i][0]
                for j, following in pairwise(children[i]):
                    sibling[b, j] = following
        start += nodes * (nodes + (length if tree_mask_mode == 0 else 0))
    return {
        "tree_mask": mask,
        "positions": where,
        "retrieve_index": index,
        "retrieve_next_token": first_child,
        "retrieve_next_sibling": sibling,
    }


def path(node: int | None, parent: list[int | None], depth: int) -> list[int]:
    """Return a node and its ancestors below the root, at most `depth` of them."""
    nodes: list[int] = []
    while node is not None and node != 0 and len(nodes) < depth:
        nodes.append(node)
        node = parent[node]
    return nodes
