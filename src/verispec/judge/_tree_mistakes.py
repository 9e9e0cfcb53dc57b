"""Mistakes of the verification of draft trees: the oracles' walks, in which one node changes the next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from verispec.judge._compare import Array
from verispec.judge._mistake import Inputs, Outputs, Rule
from verispec.reference.oracle._tree import Step, children, draw, power_of_two, total, walk, weights

Draw = Callable[[Array, Array, float], int]
"""Function of a node's weights, of those that are left of them, and of the final sample: the last token."""


@dataclass(slots=True)
class _Node:
    """The weights of a node while its children are tried: each rejection leaves fewer.

    Attributes:
        p: weights of the target; their sum is `p_sum`.
        q: weights of the draft; their sum is `q_sum`. None if drafts were not drawn.
        without_replacement: True if a rejected token leaves `q`.
        rejected: tokens of rejected children.
        tried: sum of the probabilities of tried children.
        keeps_sum: True if `q_sum` still counts rejected tokens, which is wrong.
    """

    p: Array
    q: Array | None = None
    without_replacement: bool = False
    p_sum: float = 1.0
    q_sum: float = 1.0
    rejected: list[int] = field(default_factory=list)
    tried: float = 0.0
    keeps_sum: bool = False

    def reject(self, token: int) -> bool:
        """Replace the weights by the residual of a rejection; return False and keep them if it has no mass."""
        left = self.p.copy()
        left[token] = 0.0
        if self.q is not None:
            left = np.maximum(self.q_sum * self.p - self.p_sum * self.q, 0.0)
        if not total(left) > 0:
            return False
        scale = power_of_two(total(left))
        self.p, self.p_sum = left * scale, total(left) * scale
        if self.q is not None and self.without_replacement:
            self.q[token] = 0.0
            scale = power_of_two(total(self.q))
            self.q, self.q_sum = self.q * scale, (self.q_sum if self.keeps_sum else total(self.q)) * scale
        self.rejected.append(token)
        return True


Begin = Callable[[_Node, _Node], None]
"""Function that changes a node as it begins by the node before it on the path."""


def _nothing(node: _Node, before: _Node) -> None:
    pass


def _own(whole: Array, left: Array, u: float) -> int:
    return draw(left, u)


def _lost(given: Inputs, b: int, node: int) -> list[int]:
    """Return the tokens of the children of a node whose places are outside of the batch."""
    vocab, places = given["target_probs"].shape[2], len(given["predicts"])
    found = children(given["retrieve_next_token"][b, node], given["retrieve_next_sibling"][b])
    lost = [int(given["candidates"][b, c]) for c in found if not 0 <= given["retrieve_index"][b, c] < places]
    return [token for token in lost if 0 <= token < vocab]


def _tokens(given: Inputs, b: int, node: int, is_full: bool) -> list[tuple[int, int]]:
    """Return the children of a node that can be tried, each with its token."""
    vocab, places = given["target_probs"].shape[2], len(given["predicts"])
    links = given["retrieve_next_token"][b, node], given["retrieve_next_sibling"][b]
    found = [(child, int(given["candidates"][b, child])) for child in (() if is_full else children(*links))]
    return [(c, token) for c, token in found if 0 <= token < vocab and 0 <= given["retrieve_index"][b, c] < places]


def _walk(given: Inputs, step: Step) -> Outputs:
    tokens, path, counts = given["predicts"], given["accept_index"], given["accept_token_num"]
    return walk(tokens, path, counts, given["retrieve_index"], step)


def sampled(
    begin: Begin = _nothing,
    last: Draw = _own,
    *,
    rejects_untried: bool = False,
    drawn: bool | None = None,
    keeps_sum: bool = False,
) -> Rule:
    """Return a mistake of `verify_tree_sampled`.

    Args:
        begin: change of a node by the one before it.
        last: draw of the last token.
        rejects_untried: True takes children that a full path does not try for rejected ones.
        drawn: True for a mistake with draft probabilities alone, False for one without them.
        keeps_sum: True if the sum of q still counts rejected tokens.
    """

    def rule(op: str, inputs: Inputs) -> Outputs | None:
        given = dict(inputs)
        if drawn is not None and drawn != (given["draft_probs"] is not None):
            return None
        before: dict[int, _Node] = {}

        def step(b: int, at: int, place: int, is_full: bool) -> tuple[int | None, int]:
            draft = given["draft_probs"]
            whole = weights(given["target_probs"][b, at])
            q = None if draft is None else weights(draft[b, at])
            node = _Node(whole, q, bool(given["WITHOUT_REPLACEMENT"]), keeps_sum=keeps_sum)
            if b in before:
                begin(node, before[b])
            before[b] = node
            for child, token in _tokens(given, b, at, is_full and not rejects_untried):
                q_token = 1.0 if node.q is None else float(node.q[token])
                if not q_token > 0:
                    continue
                number = np.float64(given["uniform_samples"][b, child])
                if not is_full and number * (node.p_sum * q_token) < node.q_sum * node.p[token]:
                    return child, token
                if not node.reject(token):
                    break
            return None, last(whole, node.p, given["uniform_samples_for_final_sampling"][b])

        return _walk(given, step)

    return rule


def typical(
    begin: Begin = _nothing,
    last: Draw = _own,
    *,
    rejects_untried: bool = False,
    is_alone: bool = False,
    is_once: bool = False,
    rejects_lost: bool = False,
) -> Rule:
    """Return a mistake of `verify_tree_typical`; see `sampled`.

    Args:
        begin: function that changes a node as it begins by the node before it.
        last: draw of the last token.
        rejects_untried: True if children that a full path does not try count as rejected.
        is_alone: True if tried children are not added up.
        is_once: True if a child with the token of a rejected sibling adds nothing.
        rejects_lost: True if children whose places are outside of the batch count as rejected.
    """

    def rule(op: str, inputs: Inputs) -> Outputs | None:
        given = dict(inputs)
        divisor = max(given["threshold_acc"], 1e-9)
        before: dict[int, _Node] = {}

        def step(b: int, at: int, place: int, is_full: bool) -> tuple[int | None, int]:
            whole = weights(given["target_probs"][b, at])
            node, number = _Node(whole), np.float64(given["uniform_samples"][b, at])
            if b in before:
                begin(node, before[b])
            before[b] = node
            for child, token in _tokens(given, b, at, is_full and not rejects_untried):
                own = 0.0 if is_once and token in node.rejected else float(whole[token])
                node.tried = own + (0.0 if is_alone else node.tried)
                likely = number < node.tried / divisor or whole[token] >= given["threshold_single"]
                if not is_full and whole[token] > 0 and likely:
                    return child, token
                node.rejected.append(token)
            left = whole.copy()
            left[node.rejected] = 0.0
            if rejects_lost and not is_full:
                left[_lost(given, b, at)] = 0.0
            return None, last(whole, left, given["uniform_samples_for_final_sampling"][b])

        return _walk(given, step)

    return rule


def _keep_weights(node: _Node, before: _Node) -> None:
    if before.rejected:
        node.p, node.rejected = before.p, before.rejected[:]
        node.q = before.q if node.without_replacement else node.q


def _keep_q_sum(node: _Node, before: _Node) -> None:
    node.q_sum = before.q_sum


def _keep_p_sum(node: _Node, before: _Node) -> None:
    node.p_sum = before.p_sum


def _keep_sums(node: _Node, before: _Node) -> None:
    node.p_sum, node.q_sum = before.p_sum, before.q_sum


def _keep_tried(node: _Node, before: _Node) -> None:
    node.tried = before.tried


def _keep_rejected(node: _Node, before: _Node) -> None:
    node.rejected = before.rejected[:]


def mass_before(whole: Array, left: Array, u: float) -> int:
    """Draw by cumulative weights that count tokens of which nothing is left, and by the sum of the others."""
    sums, bound = np.cumsum(whole), np.float64(u) * total(np.where(left > 0, whole, 0.0))
    above = np.flatnonzero((sums > bound) & (left > 0))
    return int(above[0]) if len(above) else draw(left, 1.0)


def whole_mass(whole: Array, left: Array, u: float) -> int:
    """Draw by cumulative weights of the tokens with something left, and by the sum of all tokens."""
    sums = np.cumsum(np.where(left > 0, whole, 0.0))
    above = np.flatnonzero(sums > np.float64(u) * total(whole))
    return int(above[0]) if len(above) else draw(left, 1.0)


def one_block_before(whole: Array, left: Array, u: float) -> int:
    """Draw by cumulative weights that count, before a block of `_BLOCK` ids, those of one block alone."""
    bound, before = np.float64(u) * total(left), 0.0
    for start in range(0, len(left), _BLOCK):
        block = left[start : start + _BLOCK]
        above = np.flatnonzero((before + np.cumsum(block) > bound) & (block > 0))
        if len(above):
            return start + int(above[0])
        before = total(block)
    return draw(left, 1.0)


_BLOCK = 1024
_UNTRIED = "children that a full path does not try counted as rejected"
_BEFORE = "the mass before the last token still counted that of rejected drafts"
_ONE_BLOCK = "the mass before a block of 1,024 ids were that of the block before it alone"
_WHOLE = "the whole mass of the last draw still counted that of rejected drafts"

SAMPLED: dict[str, Rule] = {
    "q were not normalised again after a rejection": sampled(drawn=True, keeps_sum=True),
    "the sum of q without rejected drafts were kept for the next node": sampled(_keep_q_sum, drawn=True),
    "the sum of p after rejections were kept for the next node": sampled(_keep_p_sum),
    "the sums of p and q after rejections were kept for the next node": sampled(_keep_sums, drawn=True),
    "a node started from what the rejections of the node before left": sampled(_keep_weights),
    _UNTRIED: sampled(rejects_untried=True),
    _ONE_BLOCK: sampled(last=one_block_before),
    _BEFORE: sampled(last=mass_before, drawn=False),
    _WHOLE: sampled(last=whole_mass, drawn=False),
}
"""Mistakes of `verify_tree_sampled` by their words."""

TYPICAL: dict[str, Rule] = {
    "the probabilities of rejected siblings were not added up": typical(is_alone=True),
    "a token that two siblings share counted once": typical(is_once=True),
    "a child whose place is outside of the batch counted as rejected": typical(rejects_lost=True),
    "the sum of rejected siblings were kept for the next node": typical(_keep_tried),
    "the rejected children of the node before counted as a node's own": typical(_keep_rejected),
    _UNTRIED: typical(rejects_untried=True),
    _ONE_BLOCK: typical(last=one_block_before),
    _BEFORE: typical(last=mass_before),
    _WHOLE: typical(last=whole_mass),
}
"""Mistakes of `verify_tree_typical` by their words."""
