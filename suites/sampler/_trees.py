"""Draft trees for the cases of tree ops: random selections of candidates, links, and rows of probabilities.

Probabilities are multiples of a power of two, and uniform samples lie between such multiples: a first acceptance and
a first draw are then decided alike in float32 and in float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from verispec.judge import Failure, Kind, Mismatch
from verispec.suites.sampler._edges import PEAKS, places_of
from verispec.suites.sampler._special import past

Array = np.ndarray[Any, Any]
Rng = np.random.Generator

VARIANTS = 24
"""Different trees of the same size in a large batch; further requests repeat them."""
REACH = "every verification of a draft tree goes through this kernel with tensors of these dtypes"


@dataclass(slots=True)
class Trees:
    """Trees of a batch, [B, D] each; nodes past a request's count are padding.

    Attributes:
        parents: parent of each node, -1 for the root and for padding.
        tokens: token of each node.
        next_token: first child of each node, or -1.
        next_sibling: next sibling of each node, or -1.
        places: place of each node in the batch.
        depth: draft tokens of the longest path.
    """

    parents: Array
    tokens: Array
    next_token: Array
    next_sibling: Array
    places: Array
    depth: int

    @property
    def requests(self) -> int:
        return int(self.parents.shape[0])

    @property
    def nodes(self) -> int:
        return int(self.parents.shape[1])

    def links(self) -> dict[str, Array]:
        """Return the parameters that the verifying ops share."""
        return {
            "candidates": self.tokens,
            "retrieve_index": self.places,
            "retrieve_next_token": self.next_token,
            "retrieve_next_sibling": self.next_sibling,
        }

    def shapes(self, depth: int | None = None) -> dict[str, tuple[int, ...]]:
        """Return the shape of accept_index for paths of `depth` draft tokens, or as many as there are."""
        return {"accept_index": (self.requests, (self.depth if depth is None else depth) + 1)}

    def by_place(self, values: Array) -> Array:
        """Return values of nodes [B, D] in the order of the places."""
        flat = np.zeros(values.size, values.dtype)
        flat[self.places.reshape(-1)] = values.reshape(-1)
        return flat.reshape(values.shape)


def linked(parents: Sequence[Sequence[int]], tokens: Any = None, order: Rng | None = None) -> Trees:
    """Return trees with the given parents, -1 for the root and for padding.

    Args:
        parents: parent of each node of each tree; trees of different sizes are padded.
        tokens: token of each node, or None for its number.
        order: source of the order of siblings; None for ascending numbers.
    """
    nodes = max([1, *map(len, parents)])
    shape = (len(parents), nodes)
    of, first, following = (np.full(shape, -1) for _ in range(3))
    depth = 0
    for b, row in enumerate(parents):
        of[b, : len(row)] = row
        children: dict[int, list[int]] = {}
        for node, parent in enumerate(row):
            if parent >= 0:
                children.setdefault(parent, []).append(node)
        for parent, nodes_of in children.items():
            listed = nodes_of if order is None else order.permutation(nodes_of).tolist()
            first[b, parent] = listed[0]
            following[b, listed[:-1]] = listed[1:]
        level = {0: 0}
        waiting = [0]
        while waiting:
            node = waiting.pop()
            depth = max(depth, level[node])
            for child in children.get(node, ()):
                level[child] = level[node] + 1
                waiting.append(child)
    ids = np.broadcast_to(np.arange(nodes), shape) if tokens is None else np.asarray(tokens)
    return Trees(of, ids.copy(), first, following, np.arange(of.size).reshape(shape), depth)


def random_parents(rng: Rng, count: int, nodes: int, kind: str = "any") -> list[int]:
    """Return the parents of a tree with `count` nodes after its root, among `nodes`.

    The numbers of the nodes have no order, but for a chain's, which ascend.

    Args:
        rng: source of the tree.
        count: nodes after the root.
        nodes: nodes with padding.
        kind: "chain", "star", or "any" for each node below any earlier one.
    """
    earlier = {"chain": np.arange(count), "star": np.zeros(count, np.int64)}.get(kind)
    if earlier is None:
        earlier = (rng.random(count) * np.arange(1, count + 1)).astype(np.int64)
    numbers = np.concatenate(([0], 1 + rng.permutation(nodes - 1)[:count]))
    if kind == "chain":
        numbers = np.arange(count + 1)
    parents = np.full(nodes, -1)
    parents[numbers[1:]] = numbers[earlier]
    return [int(parent) for parent in parents]


def random_trees(rng: Rng, counts: Sequence[int], vocab: int, kind: str = "any") -> Trees:
    """Return trees with `counts` nodes after their roots, siblings in any order, over `vocab` tokens."""
    nodes = max([0, *counts]) + 1
    keys = [(count, b % VARIANTS if len(counts) > 8 * VARIANTS else b) for b, count in enumerate(counts)]
    distinct = dict.fromkeys(keys)
    made = linked([random_parents(rng, count, nodes, kind) for count, _ in distinct], order=rng)
    row = {key: i for i, key in enumerate(distinct)}
    rows = np.array([row[key] for key in keys], dtype=np.int64)
    shape = (len(counts), nodes)
    return Trees(
        made.parents[rows].reshape(shape),
        rng.integers(0, vocab, shape),
        made.next_token[rows].reshape(shape),
        made.next_sibling[rows].reshape(shape),
        np.arange(len(counts) * nodes).reshape(shape),
        max(made.depth, 1),
    )


def shuffle_places(rng: Rng, trees: Trees) -> None:
    """Give the nodes of the batch places in any order."""
    trees.places = rng.permutation(trees.places.size).reshape(trees.places.shape)


def some_child(rng: Rng, trees: Trees) -> Array:
    """Return a child of each node, one of the first four of its list, -1 for nodes without children [B, D]."""
    child = trees.next_token
    for _ in range(3):
        following = np.where(child >= 0, np.take_along_axis(trees.next_sibling, np.maximum(child, 0), axis=1), -1)
        child = np.where((following >= 0) & (rng.random(child.shape) < 0.6), following, child)
    return child


def greedy_arguments(
    rng: Rng, trees: Trees, vocab: int, agree: float = 0.8, depth: int | None = None
) -> tuple[dict[str, Any], dict[str, tuple[int, ...]]]:
    """Return arguments of verify_tree_greedy, and shapes of its outputs.

    Args:
        rng: source of the target's tokens.
        trees: trees of the batch.
        vocab: tokens of the vocabulary.
        agree: share of nodes whose argmax is the token of one of their children.
        depth: maximum draft tokens of a path, or None for as many as there are.
    """
    child = some_child(rng, trees)
    agreed = np.take_along_axis(trees.tokens, np.maximum(child, 0), axis=1)
    is_agreed = (child >= 0) & (rng.random(child.shape) < agree)
    argmax = np.where(is_agreed, agreed, rng.integers(0, vocab, child.shape))
    return {**trees.links(), "target_predict": trees.by_place(argmax)}, trees.shapes(depth)


def rows(rng: Rng, shape: tuple[int, ...], vocab: int, out: Array | None = None, edges: Sequence[int] = ()) -> Array:
    """Return rows of probabilities [*shape, V] that are multiples of a power of two.

    Args:
        rng: source of all values.
        shape: shape of the batch of rows.
        vocab: vocabulary size V.
        out: mask of impossible tokens, or None.
        edges: ids among which the likeliest tokens of each row are, or empty.
    """
    steps = 2 ** max(6, int(vocab).bit_length() + 2)
    weights = np.exp(2 * rng.normal(size=(*shape, vocab)))
    if out is not None:
        weights[out] = 0.0
    if edges:
        places = places_of(rng, int(np.prod(shape)), edges).reshape(*shape, PEAKS)
        np.put_along_axis(weights, places, weights.sum(axis=-1, keepdims=True) * [0.8, 0.6, 0.3, 0.3], -1)
    cells = np.floor(steps * weights / weights.sum(axis=-1, keepdims=True))
    top = weights.argmax(axis=-1)[..., None]
    np.put_along_axis(cells, top, np.take_along_axis(cells, top, -1) + steps - cells.sum(-1, keepdims=True), -1)
    return np.asarray(cells / steps)


def between(rng: Rng, shape: Any) -> Array:
    """Return uniform samples of 17 bits that no multiple of 2^-16 equals."""
    return np.asarray((rng.integers(0, 2**16, shape) + 0.5) / 2**16)


def drawn_tokens(rng: Rng, trees: Trees, of_parent: Array) -> Array:
    """Return a token of each node, drawn from the row of its parent in `of_parent` [B, D, V]."""
    parents = np.maximum(trees.parents, 0)[..., None]
    sums = np.cumsum(np.take_along_axis(of_parent, parents, axis=1), axis=-1)
    return np.asarray((rng.random((*parents.shape[:2], 1)) >= sums[..., :-1]).sum(axis=-1))


def sampled_arguments(
    rng: Rng,
    trees: Trees,
    vocab: int,
    *,
    draft: bool = True,
    without_replacement: bool = False,
    out: Any = None,
    edges: Sequence[int] = (),
) -> dict[str, Any]:
    """Return arguments of verify_tree_sampled; tokens are drawn from the draft's rows where there are any.

    Args:
        rng: source of all values.
        trees: trees of the batch, whose tokens change.
        vocab: vocabulary size V.
        draft: False omits the draft's probabilities.
        without_replacement: the op's flag.
        out: mask of the target's impossible tokens [B, D, V], or None.
        edges: ids among which the likeliest tokens of each row are, or empty.
    """
    shape = trees.parents.shape
    target = rows(rng, shape, vocab, out, edges)
    q = rows(rng, shape, vocab, edges=edges) if draft else None
    # Deterministic drafts are likely ones: half of them from the target.
    trees.tokens = drawn_tokens(rng, trees, rows(rng, shape, vocab, edges=edges) if q is None else q)
    if q is None or out is not None:
        likely = rng.random(shape) < (0.7 if out is not None else 0.5)
        trees.tokens = np.where(likely, drawn_tokens(rng, trees, target), trees.tokens)
    prefer_some_child(rng, trees, target)
    return {
        **trees.links(),
        "uniform_samples": between(rng, shape),
        "uniform_samples_for_final_sampling": between(rng, shape[0]),
        "target_probs": target,
        "draft_probs": q,
        "WITHOUT_REPLACEMENT": without_replacement,
    }


def prefer_some_child(rng: Rng, trees: Trees, target: Array) -> None:
    """Move half of the mass of most rows to a child's token, so that paths go on after rejections."""
    child = some_child(rng, trees)
    token = np.take_along_axis(trees.tokens, np.maximum(child, 0), axis=1)
    chance = np.take_along_axis(target, token[..., None], axis=-1)[..., 0]
    for b, node in np.argwhere((child >= 0) & (chance > 0) & (rng.random(child.shape) < 0.7)).tolist():
        target[b, node] /= 2
        target[b, node, token[b, node]] += 0.5


def typical_arguments(
    rng: Rng,
    trees: Trees,
    vocab: int,
    thresholds: tuple[float, float] = (1.0, 1.0),
    out: Any = None,
    edges: Sequence[int] = (),
) -> dict[str, Any]:
    """Return arguments of verify_tree_typical; see `sampled_arguments`."""
    values = sampled_arguments(rng, trees, vocab, draft=False, out=out, edges=edges)
    del values["draft_probs"], values["WITHOUT_REPLACEMENT"]
    return values | {"threshold_single": thresholds[0], "threshold_acc": thresholds[1]}


def make_sure(trees: Trees, values: dict[str, Any]) -> None:
    """Let every draft of a batch of chains pass, but the last one of requests 1, 3, 5, ..."""
    vocab = values["target_probs"].shape[2]
    certain = np.zeros_like(trees.tokens)
    b, node = np.nonzero(trees.next_token >= 0)
    child = trees.next_token[b, node]
    is_wrong = (trees.next_token[b, child] < 0) & (b % 2 == 1)
    certain[b, node] = (trees.tokens[b, child] + is_wrong) % vocab
    values["target_probs"] = np.eye(vocab)[certain]
    if values.get("draft_probs") is not None:
        drafts = np.take_along_axis(trees.tokens, np.maximum(trees.next_token, 0), axis=1)
        values["draft_probs"] = np.eye(vocab)[drafts]


def spoil(rng: Rng, trees: Trees, values: dict[str, Any], vocab: int) -> None:
    """Put padding tokens and ids past the vocabulary among the drafts, and numbers that are none among the others.

    Rows hold NaN, infinite and negative probabilities, random samples NaN.
    """
    wrong = rng.random(trees.tokens.shape) < 0.15
    values["candidates"] = np.where(wrong, rng.choice([-1, -1, *past(vocab)], trees.tokens.shape), trees.tokens)
    for name in ("target_probs", "draft_probs"):
        if values.get(name) is not None:
            wrong = rng.random(values[name].shape) < 0.03
            values[name][wrong] = rng.choice([np.nan, np.nan, np.inf, -0.25], int(wrong.sum()))
    for name in ("uniform_samples", "uniform_samples_for_final_sampling"):
        if name in values:
            values[name][rng.random(values[name].shape) < 0.05] = np.nan


@dataclass(slots=True)
class Selection:
    """Candidates of a batch as drafters select them.

    Attributes:
        parent_list: candidate of each beam [B, P].
        selected: candidate of each node after the root [B, D - 1], -1 for padding.
        topk: candidates of each beam.
        depth: draft steps.
    """

    parent_list: Array
    selected: Array
    topk: int
    depth: int


def _select(rng: Rng, count: int, topk: int) -> tuple[list[list[int]], list[int]]:
    """Return the beams of each step and the `count` selected candidates of one request."""
    steps: list[list[int]] = []
    selected: list[int] = []
    open_beams: list[int] = []
    while len(selected) < count:
        step = len(steps)
        first = topk + topk * topk * (step - 1)
        every = list(range(topk)) if step == 0 else list(range(first, first + topk * topk))
        allowed = every if step == 0 else [first + topk * beam + rank for beam in open_beams for rank in range(topk)]
        chosen = rng.permutation(allowed)[: min(count - len(selected), int(rng.integers(1, len(allowed) + 1)))].tolist()
        selected += chosen
        is_chosen = set(chosen)
        others = [c for c in every if c not in is_chosen]
        beams = every if step == 0 else [*chosen[:topk], *rng.permutation(others).tolist()][:topk]
        if step > 0:
            beams = rng.permutation(beams).tolist()
        open_beams = [beam for beam, candidate in enumerate(beams) if candidate in is_chosen]
        steps.append(beams)
    return steps, sorted(selected)


def random_selection(rng: Rng, counts: Sequence[int], topk: int, special: bool = False) -> Selection:
    """Return the selection of trees with `counts` nodes after their roots, by the steps of beam search.

    A `special` one has padding among the nodes, children before their parents, and parents that only the next request
    selects.
    """
    keys = [(count, b % VARIANTS if len(counts) > 8 * VARIANTS else b) for b, count in enumerate(counts)]
    made = {key: _select(rng, key[0], topk) for key in dict.fromkeys(keys)}
    depth = max([1, *(len(steps) for steps, _ in made.values())])
    width = max([0, *counts])
    entries = 1 + topk * (depth - 1) if depth > 1 else 0
    lists = np.full((len(counts), entries), -1)
    selected = np.full((len(counts), width), -1)
    for b, key in enumerate(keys):
        steps, chosen = made[key]
        listed = [-1, *(beam for beams in steps for beam in beams)][:entries]
        lists[b, : len(listed)] = listed
        selected[b, : len(chosen)] = chosen
    if special and selected.size:
        shuffled = rng.random(len(selected)) < 0.2
        selected[shuffled] = rng.permuted(selected[shuffled], axis=1)
        selected[rng.random(selected.shape) < 0.05] = -1
        wrong = np.argwhere(rng.random(lists.shape) < 0.1)
        lists[tuple(wrong.T)] = selected[(wrong[:, 0] + 1) % len(selected), 0]
    return Selection(lists, selected, topk, depth)


def build_arguments(
    selection: Selection, lengths: Any, mode: int = 0, spare: int = 0
) -> tuple[dict[str, Any], dict[str, tuple[int, ...]]]:
    """Return arguments of build_draft_tree, and the shape of its mask with `spare` more elements."""
    lengths = np.asarray(lengths)
    requests, nodes = len(lengths), selection.selected.shape[1] + 1
    size = requests * nodes * nodes + (int(lengths.sum()) * nodes if mode == 0 else 0)
    links = np.full((requests, nodes), -1)
    arguments = {
        "parent_list": selection.parent_list,
        "selected_index": selection.selected,
        "verified_seq_len": lengths,
        "retrieve_next_token": links,
        "retrieve_next_sibling": links.copy(),
        "topk": selection.topk,
        "depth": selection.depth,
        "draft_token_num": nodes,
        "tree_mask_mode": mode,
    }
    return arguments, {"tree_mask": (size + spare,)}


def emitted(outputs: dict[str, Array], b: int) -> Array:
    """Return the tokens that request b emits: those after each accepted node, by a verification's outputs."""
    path = outputs["accept_index"][b, : max(int(outputs["accept_token_num"][b]) + 1, 0)]
    return tokens_at(outputs["predicts"], path)


def tokens_at(predicts: Array, path: Array) -> Array:
    """Return the tokens after accepted nodes.

    Args:
        predicts: token after each node.
        path: places of nodes, as an engine wrote them.

    Raises:
        Mismatch: a place is none of a node.
    """
    outside = path[(path < 0) | (path >= len(predicts))]
    if outside.size:
        message = f"the place of an accepted node is {int(outside[0])}, expected 0 to {len(predicts) - 1}"
        raise Mismatch(Failure(Kind.VALUE, message, "accept_index", wrong=outside.size, total=path.size))
    return predicts[path]
