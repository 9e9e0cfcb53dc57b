"""verify_tree_sampled: verify draft trees so that emitted tokens follow the target's distribution exactly."""

from verispec.reference.contracts._model import FLOATS, PROBS, Clause, Contract, Scalar, Tensor
from verispec.reference.contracts._tree import AXES, DECISION, SGLANG, TREE

_PAPER = "Miao et al. 2023 (arXiv 2305.09781), multi-step speculative sampling"
_WITHOUT = "Jeon et al. 2024 (arXiv 2402.14160), recursive rejection sampling"
_LAYOUT = f"{SGLANG} (layout)"

CONTRACT = Contract(
    name="verify_tree_sampled",
    family="tree",
    summary="Try the children of each node in turn against what is left of the target's probabilities.",
    axes=AXES | {"V": "vocabulary"},
    params=(
        *DECISION,
        *TREE,
        Tensor("uniform_samples", ("B", "D"), FLOATS, "u: uniform sample in [0, 1) of each node", production="float32"),
        Tensor(
            "uniform_samples_for_final_sampling",
            ("B",),
            FLOATS,
            "uniform sample in [0, 1) of each request's last token",
            production="float32",
        ),
        Tensor(
            "target_probs",
            ("B", "D", "V"),
            PROBS,
            "p: the target's probabilities after each node",
            production="float32",
        ),
        Tensor(
            "draft_probs",
            ("B", "D", "V"),
            PROBS,
            "q: the distribution that the children of each node were drawn from; None if they were not drawn",
            production="float32",
            optional=True,
            required_if="WITHOUT_REPLACEMENT",
        ),
        Scalar("WITHOUT_REPLACEMENT", bool, "children of a node were drawn without replacement", flag=True),
    ),
    law=(
        "If the children of each node are drawn from q in the order of their list, every emitted token is distributed "
        "as the target's p; likewise without q, for children that do not depend on the random numbers."
    ),
    effect="drafts are accepted wrongly, or sampled text does not follow the target",
    clauses=(
        Clause(
            "VTS-1",
            "A child x is accepted exactly if u * q(x) < p(x), with u of the child and p and q of its parent.",
            _PAPER,
        ),
        Clause(
            "VTS-2",
            "After a rejection p becomes norm(max(p - q, 0)), against which the next sibling is tried; every other "
            "node begins with its own p and q.",
            _PAPER,
            mistakes=(
                "a node started from what the rejections of the node before left",
                "the sum of p after rejections were kept for the next node",
                "the sums of p and q after rejections were kept for the next node",
            ),
        ),
        Clause(
            "VTS-3",
            "Without draft probabilities q is 1 at the child: it is accepted exactly if u < p(x), and p(x) becomes 0 "
            "after a rejection.",
            _PAPER,
        ),
        Clause(
            "VTS-4",
            "Without replacement q(x) becomes 0 and q is normalised after each rejection; else q stays.",
            _WITHOUT,
            mistakes=(
                "q were not normalised again after a rejection",
                "the sum of q without rejected drafts were kept for the next node",
            ),
        ),
        Clause(
            "VTS-5",
            "The last token is drawn from what is left of p at the last node: the first token whose cumulative "
            "probability exceeds the final uniform sample. Every id of the vocabulary can be the token.",
            _PAPER,
            mistakes=(
                "the mass before the last token still counted that of rejected drafts",
                "the mass before a block of 1,024 ids were that of the block before it alone",
                "the whole mass of the last draw still counted that of rejected drafts",
            ),
        ),
        Clause(
            "VTS-6",
            "A node without children, and the last of K draft tokens, whose children are neither tried nor left out, "
            "emits a token drawn from its own p.",
            _PAPER,
            mistakes=("children that a full path does not try counted as rejected",),
        ),
        Clause(
            "VTS-7",
            "predicts holds at the place of each node of the path the token of the next one, and at the last one's the "
            "drawn token; accept_index holds the path's places and accept_token_num its length after the root.",
            _LAYOUT,
            forbids="unwritten",
        ),
        Clause("VTS-8", "predicts of other nodes and accept_index past the path keep their value.", _LAYOUT),
        Clause("VTS-9", "A child with the token of an earlier rejected sibling is rejected.", _PAPER),
        Clause(
            "VTS-10",
            "A padding token, -1, is rejected and leaves p and q as they are.",
            "contract: a token that does not exist was not drawn",
        ),
        Clause(
            "VTS-11",
            "A token outside of the vocabulary, and one with q = 0, is rejected and leaves p and q as they are.",
            "contract: no unchecked id is an index",
            unreachable="a drafter never samples such a token",
        ),
        Clause(
            "VTS-12",
            "A probability that is NaN, infinite or negative counts as 0; NaN as u rejects.",
            "contract: no comparison with NaN accepts",
            unreachable="probabilities come from a softmax of finite logits",
        ),
        Clause(
            "VTS-13",
            "If nothing is left of p, the node's remaining children are rejected and p is what it was before.",
            "contract: no division by zero",
            unreachable="a child whose rejection leaves nothing is always accepted, but for rounding",
        ),
        Clause(
            "VTS-14",
            "A link outside of the tree ends a list, a list is followed for D nodes at most, a node whose place is "
            "outside of the batch is rejected like a padding token, and a root outside of it emits nothing.",
            "contract: no unchecked id is an index",
            unreachable="links and places come from build_draft_tree or its like",
        ),
        Clause(
            "VTS-15",
            "Uniform samples are compared in their own precision, never narrowed.",
            "contract: no rounding beyond the input's",
            rare="a float64 draw within a float32 rounding of p/q comes once in 2^25 at most",
            fault="random numbers narrowed",
        ),
        Clause(
            "VTS-16",
            "Strides are honoured.",
            "contract: tensors, not pointers",
            unreachable="callers allocate these tensors themselves, contiguous",
            fault="strides ignored",
        ),
        Clause("VTS-17", "Ids and places of int32 and of int64 give the same tokens, in any mix.", _LAYOUT),
        Clause("VTS-18", "A tree of the root alone emits a token drawn from the root's p.", _PAPER),
        Clause("VTS-19", "Emitted tokens follow the target's distribution at every node of the path.", _PAPER),
    ),
)
