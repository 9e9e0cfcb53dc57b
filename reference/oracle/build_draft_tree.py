"""Oracle of build_draft_tree: the contract's clauses, executed."""

from __future__ import annotations

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
    mask, first_child, sibling = tree_mask.copy(), retrieve_next_token.copy(), retrieve_next_sibling.copy()
    requests, nodes = len(verified_seq_len), draft_token_num
    parent = parents_of(parent_list, selected_index, topk)
    sees, level = ancestors_of(parent, depth)

    lengths = verified_seq_len.astype(np.int64)[:, None]
    before = lengths if tree_mask_mode == 0 else 0 * lengths
    begins = first_places(before[:, 0], nodes)[:, None] + np.arange(nodes) * (before + nodes) + before
    mask[begins[:, :, None] + np.arange(nodes)] = sees

    b, child = np.nonzero(parent >= 0)
    of = parent[b, child]
    order = np.lexsort((child, of, b))  # the children of a node stand together, in order of their numbers
    b, of, child = b[order], of[order], child[order]
    is_next = (b[1:] == b[:-1]) & (of[1:] == of[:-1])
    sibling[b[1:][is_next], child[:-1][is_next]] = child[1:][is_next]
    is_first = np.concatenate(([True], ~is_next))[: len(b)]
    first_child[b[is_first], of[is_first]] = child[is_first]

    where, index = positions.copy(), retrieve_index.copy()
    where[: requests * nodes] = (lengths + level).reshape(-1)
    index[:requests, :nodes] = np.arange(requests * nodes).reshape(requests, nodes)
    return {
        "tree_mask": mask,
        "positions": where,
        "retrieve_index": index,
        "retrieve_next_token": first_child,
        "retrieve_next_sibling": sibling,
    }


def first_places(before: Array, nodes: int) -> Array:
    """Return the place in the mask of each request's first row; `before` [B] are the columns before its nodes."""
    sizes: Array = nodes * (nodes + before)
    return np.cumsum(sizes) - sizes


def parents_of(parent_list: Array, selected_index: Array, topk: int) -> Array:
    """Return the parent of each node, [B, D] int64; -1 for the root and for a node without a selected parent."""
    selected = selected_index.astype(np.int64)
    entry = selected // topk
    is_listed = (selected >= 0) & (entry < max(parent_list.shape[1], 1))
    parent = np.where(is_listed & (entry == 0), 0, -1)
    b, j = np.nonzero(is_listed & (entry > 0))
    matches = selected[b] == parent_list[b, entry[b, j]].astype(np.int64)[:, None]
    others = selected.shape[1]
    first = np.where(matches, np.arange(others), others).min(axis=1, initial=others)
    parent[b, j] = np.where(first < others, first + 1, -1)
    return np.pad(parent, ((0, 0), (1, 0)), constant_values=-1)


def ancestors_of(parent: Array, depth: int) -> tuple[Array, Array]:
    """Return the nodes that each node sees, [B, D, D] bool, and its depth, [B, D].

    A node sees the root, itself and its ancestors, `depth` nodes below the root at most.
    """
    requests, nodes = parent.shape
    sees = np.zeros((requests, nodes, nodes), dtype=bool)
    sees[:, :, 0] = True
    level = np.zeros((requests, nodes), dtype=np.int64)
    # One index per array: long chains have millions of pairs of a node and an ancestor.
    node, ancestor = np.arange(requests * nodes), np.tile(np.arange(nodes), requests)
    of_root = node - ancestor
    for _ in range(depth):
        below = np.flatnonzero(ancestor > 0)
        if not len(below):
            break
        node, of_root, ancestor = node[below], of_root[below], ancestor[below]
        sees.reshape(-1)[node * nodes + ancestor] = True
        level.reshape(-1)[node] += 1
        ancestor = parent.reshape(-1)[of_root + ancestor]
    return sees, level
