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
        tree, first = self._tree, step.positions[step.query_start_loc[:-1].long()].numpy(force=True)
        lens = step.context_lens - first
        spans = [slice(*span) for span in zip(first, step.context_lens, strict=True)]
        known = np.concatenate([np.arange(span.start, span.stop) for span in spans])
        texts = np.concatenate([tokens[span] for tokens, span in zip(step.sequences, spans, strict=True)])
        logits = self._run(step.block_table, lens, known, known, texts, None)
        drafts = np.full((len(lens), tree.nodes), -1)
        roots = step.context_lens - 1
        room = step.block_table.shape[1] * self._block_size
        # The nodes of a level that have children, with their requests; their logits are those of `logits`.
        owners = np.flatnonzero(step.num_drafts)
        nodes = np.zeros_like(owners)
        logits = logits[torch.from_numpy(owners)]
        for depth in range(1, int(tree.depths.max()) + 1):
            if not len(owners):
                break
            self._draft_children(drafts, owners, nodes, logits)
            inner, requests = tree.inner_nodes(depth), np.unique(owners)
            fits = roots[requests, None] + inner < room
            requests, fits = requests[fits.any(axis=1)], fits[fits.any(axis=1)]
            owners, nodes = requests.repeat(fits.sum(axis=1)), inner[np.nonzero(fits)[1]]
            if len(owners):
                logits = self._run(
                    step.block_table[torch.from_numpy(requests)],
                    fits.sum(axis=1),
                    roots[owners] + nodes,
                    roots[owners] + depth,
                    drafts[owners, nodes],
                    roots[requests],
                )
        return Drafts([_whole(row) for row in drafts[:, 1:].tolist()])

    def _draft_children(self, drafts: np.ndarray, owners: np.ndarray, nodes: np.ndarray, logits: torch.Tensor) -> None:
        """Write the children of nodes [n] to the `drafts` [B, D] of their `owners` [n], from their logits [n, V]."""
        likely = most_likely(logits, int(self._tree.ranks.max()) + 1).numpy(force=True)
        for node in np.unique(nodes):
            children = np.flatnonzero(self._tree.parents == node)
            at = np.flatnonzero(nodes == node)
            drafts[owners[at, None], children] = likely[at][:, self._tree.ranks[children]]

    def _run(
        self,
        block_table: torch.Tensor,
        lens: np.ndarray,
        places: np.ndarray,
        positions: np.ndarray,
        token_ids: np.ndarray,
        roots: np.ndarray | None,
    ) -> torch.Tensor:
        """Run the model and return the logits of all nodes, [T, V], or of the last token of each sequence, [B, V].

        Args:
            block_table: [B, blocks] of the requests.
            lens: [B] tokens of each request.
            places: [T] places of the tokens in their sequences.
            positions: [T] their positions.
            token_ids: [T] their ids.
            roots: place of each request's root, [B]; None for tokens of the sequence.
        """
        device = block_table.device
        bounds = np.concatenate(([0], np.cumsum(lens)))
        ends = places[bounds[1:] - 1] + 1
        starts = torch.from_numpy(bounds.astype(np.int32)).to(device)
        where, position_ids = (torch.from_numpy(array).to(device) for array in (places, positions))
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
            None if roots is None else TreeQueries(torch.from_numpy(roots).to(device), self._sees, position_ids),
        )
        output = self._model(
            input_ids=torch.from_numpy(token_ids).to(device)[None],
            position_ids=position_ids[None],
            logits_to_keep=0 if roots is not None else torch.from_numpy(bounds[1:] - 1).to(device),
            use_cache=False,
            paged=paged,
        )
        logits: torch.Tensor = output.logits[0]
        return logits


def most_likely(logits: torch.Tensor, count: int) -> torch.Tensor:
    """Return the `count` most likely tokens of each row of `logits` [n, V], equal ones in order of their ids."""
    rest, found = logits.clone(), []
    for _ in range(count):
        found.append(rest.argmax(dim=-1, keepdim=True))
        rest.scatter_(-1, found[-1], float("-inf"))
    return torch.cat(found, dim=-1)


def _whole(tokens: list[int]) -> list[int]:
    """Return the tokens before the first missing one."""
    return tokens[: tokens.index(-1)] if -1 in tokens else tokens
