"""build_draft_tree: links, positions and attention mask of the selected nodes of a draft tree."""

from verispec.reference.contracts._model import INTS, Clause, Contract, Role, Scalar, Symbol, Tensor
from verispec.reference.contracts._tree import SGLANG

_SGLANG = f"{SGLANG}.sgl_build_tree_kernel_triton"
_INVALID = "drafters select the parent of a node with the node, unless scores are NaN"

CONTRACT = Contract(
    name="build_draft_tree",
    family="tree",
    summary="Compute links, positions and attention mask of the draft trees whose nodes were selected.",
    axes={
        "B": "requests",
        "D": "nodes of each tree, its root included",
        "P": "entries of parent_list per request",
        "M": "elements of the attention mask",
    },
    params=(
        Tensor(
            "parent_list",
            ("B", "P"),
            INTS,
            "candidate that each expanded beam stands for: entry 0 is the root, entry 1 + topk * step + beam the rest",
            production="int64",
        ),
        Tensor(
            "selected_index",
            ("B", "D-1"),
            INTS,
            "candidate of each node after the root; candidate c is drafted from beam entry c // topk",
            production="int64",
        ),
        Tensor(
            "verified_seq_len",
            ("B",),
            INTS,
            "tokens of each request before its root",
            production="int64",
            minimum=0,
        ),
        Tensor(
            "tree_mask",
            ("M",),
            ("bool",),
            "which columns each node attends to, row by row; columns of the text keep the caller's value",
            role=Role.OUT,
            production="bool",
        ),
        Tensor("positions", ("B*D",), INTS, "position of each node in its text", role=Role.OUT, production="int64"),
        Tensor("retrieve_index", ("B", "D"), INTS, "place of each node", role=Role.OUT, production="int64"),
        Tensor(
            "retrieve_next_token",
            ("B", "D"),
            INTS,
            "first child of each node, filled with -1 by the caller",
            role=Role.INOUT,
            production="int64",
        ),
        Tensor(
            "retrieve_next_sibling",
            ("B", "D"),
            INTS,
            "next sibling of each node, filled with -1 by the caller",
            role=Role.INOUT,
            production="int64",
        ),
        Scalar("topk", int, "candidates drafted from each beam", minimum=1),
        Scalar("depth", int, "draft steps: levels of the tree below its root", minimum=1),
        Scalar("draft_token_num", int, "nodes of each tree", axis="D", minimum=1),
        Scalar(
            "tree_mask_mode", int, "0: columns of the text and of the tree; 1: columns of the tree alone", minimum=0
        ),
    ),
    effect="nodes attend to wrong tokens, have wrong positions, or are verified as children of others",
    clauses=(
        Clause(
            "BDT-1",
            "Candidate c of entry c // topk = 0 is a child of the root; any other is a child of the node whose "
            "candidate is parent_list[c // topk].",
            _SGLANG,
            outputs=("retrieve_next_token", "positions"),
        ),
        Clause(
            "BDT-2",
            "retrieve_next_token of a node is its child with the lowest number; a node without children keeps -1.",
            _SGLANG,
            outputs=("retrieve_next_token",),
        ),
        Clause(
            "BDT-3",
            "retrieve_next_sibling of a node is the next higher child of the same parent; the last child keeps -1.",
            _SGLANG,
            outputs=("retrieve_next_sibling",),
        ),
        Clause(
            "BDT-4",
            "retrieve_index of node i of request b is b * D + i.",
            _SGLANG,
            outputs=("retrieve_index",),
        ),
        Clause(
            "BDT-5",
            "The position of a node is the request's verified_seq_len plus its depth, which is 0 for the root.",
            _SGLANG,
            outputs=("positions",),
        ),
        Clause(
            "BDT-6",
            "A node attends to the root, to its ancestors and to itself, and to no other node of the tree.",
            _SGLANG,
            outputs=("tree_mask",),
        ),
        Clause(
            "BDT-7",
            "In mode 0 a row has verified_seq_len + D columns, those of the text keep their value, and the rows of a "
            "request follow those of all requests before it. In any mode what follows the last row keeps its value.",
            _SGLANG,
            outputs=("tree_mask",),
            mistakes=(
                "mask rows stood as if every request had the text of the first",
                "mask rows stood as if a request without text had a token",
            ),
        ),
        Clause(
            "BDT-8",
            "In mode 1 a row has D columns, whatever the length of the text.",
            _SGLANG,
            outputs=("tree_mask",),
        ),
        Clause("BDT-9", "A tree of the root alone has one row, no links, and the root's position.", _SGLANG),
        Clause(
            "BDT-10",
            "A node whose parent is not selected is in no list of children; it attends to the root and to the "
            "ancestors that are selected, and its depth counts those and itself.",
            _SGLANG,
            unreachable=_INVALID,
        ),
        Clause(
            "BDT-11",
            "A negative candidate is a padding node: a node without a parent.",
            "contract: trees of unequal size in one batch",
            unreachable="SGLang selects the same number of nodes for every request",
        ),
        Clause(
            "BDT-12",
            "No index past parent_list is read, and no walk from a node to the root is longer than depth.",
            "contract: no unchecked id is an index",
            unreachable=_INVALID,
        ),
        Clause(
            "BDT-13",
            "Strides are honoured.",
            "contract: tensors, not pointers",
            unreachable="callers allocate these tensors themselves, contiguous",
            fault="strides ignored",
        ),
        Clause("BDT-14", "Indices and lengths of int32 and of int64 give the same trees, in any mix.", _SGLANG),
    ),
    symbols=(Symbol("sglang", _SGLANG.partition(" ")[2].partition(" ")[2], since="0.5.23"),),
)
