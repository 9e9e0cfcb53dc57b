"""verify_tree_greedy: verify draft trees by the target's argmax at each node."""

from verispec.reference.contracts._model import INTS, Clause, Contract, Symbol, Tensor
from verispec.reference.contracts._tree import AXES, DECISION, SGLANG, TREE

_SGLANG = f"{SGLANG}.verify_tree_greedy_triton"

CONTRACT = Contract(
    name="verify_tree_greedy",
    family="tree",
    summary="Walk from the root to the child whose token is the target's argmax, and emit the argmax of the last node.",
    axes=AXES,
    params=(
        *DECISION,
        *TREE,
        Tensor(
            "target_predict",
            ("B", "D"),
            INTS,
            "the target's most likely token after the node of each place, row by row",
            production="int64",
        ),
    ),
    effect="a greedy request emits other tokens than the target's own",
    clauses=(
        Clause(
            "VTG-1",
            "From the root on, the walk goes to the child whose token is the target's argmax at the node, which is "
            "accepted; accept_index holds the places of the path, root first.",
            _SGLANG,
            outputs=("accept_index",),
        ),
        Clause("VTG-2", "A node without such a child ends the walk, and its argmax is emitted.", _SGLANG),
        Clause(
            "VTG-3",
            "predicts holds the argmax at the place of every node of the path, the last included.",
            _SGLANG,
            forbids="unwritten",
            outputs=("predicts",),
        ),
        Clause(
            "VTG-4",
            "accept_token_num is the number of nodes of the path after the root.",
            _SGLANG,
            outputs=("accept_token_num",),
        ),
        Clause(
            "VTG-5",
            "predicts of other nodes and accept_index past the path keep their value.",
            _SGLANG,
        ),
        Clause("VTG-6", "All siblings are tried, in the order of their list; of equal tokens the first wins.", _SGLANG),
        Clause(
            "VTG-7",
            "A path has K draft tokens at most: the children of the last one are not tried.",
            _SGLANG,
            unreachable="callers give accept_index a column per level of the tree, or one per node",
        ),
        Clause("VTG-8", "A tree of the root alone emits the argmax of the root.", _SGLANG),
        Clause("VTG-9", "Nodes that no link names are padding: neither their tokens nor their argmax matter.", _SGLANG),
        Clause("VTG-10", "A padding token, -1, is never accepted.", "contract: the target emits no negative token"),
        Clause(
            "VTG-11",
            "predicts and target_predict are indexed by retrieve_index, links and candidates by the node's number.",
            _SGLANG,
        ),
        Clause(
            "VTG-12",
            "A link outside of the tree ends a list, and a list is followed for D nodes at most.",
            "contract: no unchecked id is an index",
            unreachable="links come from build_draft_tree or its like",
        ),
        Clause(
            "VTG-13",
            "A node whose place is outside of the batch is rejected; a root outside of it emits nothing.",
            "contract: no unchecked id is an index",
            unreachable="places come from build_draft_tree or its like",
        ),
        Clause(
            "VTG-14",
            "Strides are honoured.",
            "contract: tensors, not pointers",
            unreachable="callers allocate these tensors themselves, contiguous",
            fault="strides ignored",
        ),
        Clause("VTG-15", "Ids and places of int32 and of int64 give the same tokens, in any mix.", _SGLANG),
    ),
    symbols=(Symbol("sglang", _SGLANG.partition(" ")[2].partition(" ")[2], since="0.5.23"),),
)
