"""Drafting of a tree by a draft model: the most likely tokens after each node, one pass per level.

The nodes of a tree have the places after the sequence, in the order of the tree, in the KV caches of both models. A
node attends to the sequence and to its ancestors. Its position is that of its depth.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from torch import nn

from verispec.reference.models.attention import PagedBatch, TreeQueries
from verispec.reference.models.kv_cache import KVCache
from verispec.reference.runners.slots import slot_mapping

from .protocol import Drafts, VerifiedStep


class DraftTree:
    """The shape of a draft tree; node 0 is its root, the last token of the sequence.

    Args:
        paths: ranks from the root to each other node, shorter paths first: (1, 0) is the most likely child of the
            second most likely token.
    """

    def __init__(self, paths: Sequence[tuple[int, ...]]) -> None:
        number = {(): 0} | {path: node for node, path in enumerate(paths, start=1)}
        self.nodes = len(number)
        parents = [number[path[:-1]] for path in paths]
        self.parents = np.array([-1, *parents])
        self.ranks = np.array([0, *(path[-1] for path in paths)])
        self.depths = np.array([0, *map(len, paths)])
        self.next_token, self.next_sibling = np.full(self.nodes, -1), np.full(self.nodes, -1)
        for node in range(self.nodes - 1, 0, -1):
            self.next_sibling[node] = self.next_token[self.parents[node]]
            self.next_token[self.parents[node]] = node

    @cached_property
    def sees(self) -> np.ndarray:
        """Nodes that each node attends to, its ancestors and itself, [D, D]."""
        sees = np.eye(self.nodes, dtype=bool)
        for node in range(1, self.nodes):
            sees[node] |= sees[self.parents[node]]
        return sees

    def inner_nodes(self, depth: int) -> np.ndarray:
        """Return the nodes at `depth` that have children."""
        return np.flatnonzero((self.depths == depth) & (self.next_token >= 0))


class TreeProposer:
    """Drafts trees by a causal model loaded with ``verispec_paged`` attention.

    Args:
        model: the draft model.
        cache: its KV cache, under the target's block tables.
        tree: shape of the trees.
        block_size: tokens per block.
    """

    reads_last_tokens = False
    catches_up = False

    def __init__(self, model: nn.Module, cache: KVCache, tree: DraftTree, block_size: int) -> None:
        self.lookahead = tree.nodes - 1
        self._model, self._cache, self._tree, self._block_size = model, cache, tree, block_size
        self._sees = torch.from_numpy(tree.sees).to(cache.layers[0].device)

    def propose(self, step: VerifiedStep) -> Drafts:
        """Return a tree's tokens per request; one without room for all levels is cut."""
        tree, first = self._tree, step.positions[step.query_start_loc[:-1].long()].tolist()
        known = [np.arange(start, end) for start, end in zip(first, step.context_lens.tolist(), strict=True)]
        texts = [tokens[places] for tokens, places in zip(step.sequences, known, strict=True)]
        rows = np.cumsum([len(places) for places in known]) - 1
        logits = self._run(step.block_table, known, known, texts, None)[torch.from_numpy(rows)]
        requests = np.flatnonzero(step.num_drafts)
        drafts = np.full((len(known), tree.nodes), -1)
        roots = step.context_lens - 1
        room = step.block_table.shape[1] * self._block_size
        parents = [np.array([0])] * len(requests)
        logits = logits[torch.from_numpy(requests)]
        for depth in range(1, int(tree.depths.max()) + 1):
            if not len(requests):
                break
            for b, node, row in zip(
                np.repeat(requests, [len(nodes) for nodes in parents]), np.concatenate(parents), logits, strict=True
            ):
                children = np.flatnonzero(tree.parents == node)
                likely = row.argsort(descending=True, stable=True)[: int(tree.ranks[children].max()) + 1].tolist()
                drafts[b, children] = [likely[rank] for rank in tree.ranks[children]]
            inner = tree.inner_nodes(depth)
            requests = requests[[bool((roots[b] + inner < room).any()) for b in requests]] if len(inner) else inner
            parents = [inner[roots[b] + inner < room] for b in requests]
            if len(requests):
                logits = self._run(
                    step.block_table[torch.from_numpy(requests)],
                    [roots[b] + nodes for b, nodes in zip(requests, parents, strict=True)],
                    [np.full(len(nodes), roots[b] + depth) for b, nodes in zip(requests, parents, strict=True)],
                    [drafts[b, nodes] for b, nodes in zip(requests, parents, strict=True)],
                    roots[requests],
                )
        return Drafts([_whole(row[1:].tolist()) for row in drafts])

    def _run(
        self,
        block_table: torch.Tensor,
        places: Sequence[np.ndarray],
        positions: Sequence[np.ndarray],
        token_ids: Sequence[np.ndarray],
        roots: np.ndarray | None,
    ) -> torch.Tensor:
        """Run the model and return the logits of all tokens, [T, V].

        Args:
            block_table: [B, blocks] of the requests.
            places: places of each request's tokens in its sequence.
            positions: their positions.
            token_ids: their ids.
            roots: place of each request's root, [B]; None for tokens of the sequence.
        """
        device = block_table.device
        lens = np.array([len(row) for row in places])
        ends = np.array([row[-1] + 1 for row in places])
        starts = torch.from_numpy(np.concatenate(([0], np.cumsum(lens))).astype(np.int32)).to(device)
        where = torch.from_numpy(np.concatenate(places)).to(device)
        paged = PagedBatch(
            self._cache,
            slot_mapping(starts, where, block_table, self._block_size),
            where,
            block_table,
            lens,
            starts,
            torch.from_numpy(ends.astype(np.int32)).to(device),
            ends,
            self._block_size,
            None if roots is None else TreeQueries(torch.from_numpy(roots).to(device), self._sees),
        )
        output = self._model(
            input_ids=torch.from_numpy(np.concatenate(token_ids)).to(device)[None],
            position_ids=torch.from_numpy(np.concatenate(positions)).to(device)[None],
            use_cache=False,
            paged=paged,
        )
        logits: torch.Tensor = output.logits[0]
        return logits


def _whole(tokens: list[int]) -> list[int]:
    """Return the tokens before the first missing one."""
    return tokens[: tokens.index(-1)] if -1 in tokens else tokens
