"""Parameters shared by the contracts of draft trees.

A tree has D nodes; node 0 is its root, the last token of the text. The links of a node name its first child and its
next sibling. All trees of a batch have the same D: nodes that no link names are padding.
"""

from verispec.reference.contracts._model import INTS, Role, Tensor

SGLANG = "sglang 0.5.23 sglang.kernels.ops.speculative.spec_tree"
"""Module of SGLang whose layouts the contracts of trees share."""

AXES = {
    "B": "requests",
    "D": "nodes of each tree, its root included",
    "K": "maximum number of draft tokens on a path",
}

DECISION = (
    Tensor(
        "predicts",
        ("B*D",),
        INTS,
        "token after each accepted node, at the node's place; other places keep their value",
        role=Role.OUT,
        production="int32",
    ),
    Tensor(
        "accept_index",
        ("B", "K+1"),
        INTS,
        "places of the accepted nodes, the root first, filled with -1 by the caller",
        role=Role.OUT,
        production="int32",
        indexes="B*D",
    ),
    Tensor(
        "accept_token_num",
        ("B",),
        INTS,
        "accepted draft tokens of each request, the root not counted",
        role=Role.OUT,
        production="int32",
    ),
)
"""Outputs of a verification."""

TREE = (
    Tensor(
        "candidates",
        ("B", "D"),
        INTS,
        "token of each node; -1 is a padding token, and that of the root is not read",
        production="int64",
    ),
    Tensor(
        "retrieve_index",
        ("B", "D"),
        INTS,
        "place of each node in the batch, from 0 to B*D - 1",
        production="int64",
        indexes="B*D",
    ),
    Tensor("retrieve_next_token", ("B", "D"), INTS, "first child of each node, or -1", production="int64"),
    Tensor("retrieve_next_sibling", ("B", "D"), INTS, "next sibling of each node, or -1", production="int64"),
)
"""Tokens and links of the trees."""
