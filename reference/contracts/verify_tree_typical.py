"""verify_tree_typical: verify draft trees by the target's probabilities alone, with thresholds."""

from verispec.reference.contracts._model import FLOATS, PROBS, Clause, Contract, Scalar, Tensor
from verispec.reference.contracts._tree import AXES, DECISION, TREE

_SGLANG = "sglang 0.5.23 TreeSpeculativeSamplingTargetOnly (sgl_kernel/speculative/sampling.cuh)"

CONTRACT = Contract(
    name="verify_tree_typical",
    family="tree",
    summary="Accept a child by its siblings' cumulative target probability, or if its own reaches a threshold.",
    axes=AXES | {"V": "vocabulary"},
    params=(
        *DECISION,
        *TREE,
        Tensor(
            "uniform_samples",
            ("B", "D"),
            FLOATS,
            "u: uniform sample in [0, 1) of each node, shared by its children",
            production="float32",
        ),
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
        Scalar("threshold_single", float, "probability from which a child is accepted whatever u is", minimum=0),
        Scalar("threshold_acc", float, "divisor of the cumulative probability, 10^-9 at the lowest", minimum=0),
    ),
    law=(
        "With both thresholds 1 and different tokens among siblings, emitted tokens follow the target's p. With lower "
        "thresholds drafts are accepted more often than p allows, as Medusa's typical acceptance does: text then does "
        "not follow the target, by choice."
    ),
    effect="drafts are accepted by another rule than the configured thresholds, or emitted tokens are wrong",
    clauses=(
        Clause(
            "VTT-1",
            "A child x is accepted exactly if p(x) > 0 and u < a / threshold_acc, where u is its parent's and a is the "
            "sum of p over x and the siblings tried before it.",
            _SGLANG,
            mistakes=(
                "the probabilities of rejected siblings were not added up",
                "the sum of rejected siblings were kept for the next node",
                "threshold_acc did not count",
            ),
        ),
        Clause(
            "VTT-2",
            "A child x with 0 < p(x) >= threshold_single is accepted whatever u is.",
            _SGLANG,
            mistakes=("threshold_single did not count",),
        ),
        Clause(
            "VTT-3",
            "The last token is drawn from p of the last node without its rejected children: the first token whose "
            "cumulative probability exceeds the final uniform sample. Every id of the vocabulary can be the token.",
            _SGLANG,
            mistakes=(
                "the rejected children of the node before counted as a node's own",
                "the mass before the last token still counted that of rejected drafts",
                "the mass before a block of 1,024 ids were that of the block before it alone",
                "the whole mass of the last draw still counted that of rejected drafts",
            ),
        ),
        Clause(
            "VTT-4",
            "A node without children, and the last of K draft tokens, whose children are neither tried nor left out, "
            "emits a token drawn from its own p.",
            _SGLANG,
            mistakes=("children that a full path does not try counted as rejected",),
        ),
        Clause(
            "VTT-5",
            "predicts, accept_index and accept_token_num hold tokens, places and length of the path, as those of "
            "verify_tree_sampled; all other places keep their value.",
            _SGLANG,
            forbids="unwritten",
        ),
        Clause(
            "VTT-6",
            "A token that two siblings share counts twice in the cumulative probability.",
            _SGLANG,
            mistakes=("a token that two siblings share counted once",),
        ),
        Clause("VTT-7", "A threshold_acc below 10^-9 counts as 10^-9.", _SGLANG),
        Clause(
            "VTT-8",
            "A padding token, -1, is rejected and adds nothing to the cumulative probability.",
            "contract: no unchecked id is an index",
            unreachable="SGLang's drafters make no padding tokens",
        ),
        Clause(
            "VTT-9",
            "So is a token outside of the vocabulary and a node whose place is outside of the batch, whose token can "
            "still be drawn; a link outside of the tree ends a list, and a root outside of the batch emits nothing.",
            "contract: no unchecked id is an index",
            unreachable="drafters share the target's vocabulary; links come from build_draft_tree or its like",
            mistakes=("a child whose place is outside of the batch counted as rejected",),
        ),
        Clause(
            "VTT-10",
            "A probability that is NaN, infinite or negative counts as 0; NaN as u accepts by threshold_single alone.",
            "contract: no comparison with NaN accepts",
            unreachable="probabilities come from a softmax of finite logits",
        ),
        Clause(
            "VTT-11",
            "Strides are honoured.",
            "contract: tensors, not pointers",
            unreachable="callers allocate these tensors themselves, contiguous",
            fault="strides ignored",
        ),
        Clause("VTT-12", "Ids and places of int32 and of int64 give the same tokens, in any mix.", _SGLANG),
        Clause("VTT-13", "A tree of the root alone emits a token drawn from the root's p.", _SGLANG),
        Clause("VTT-14", "With both thresholds 1, emitted tokens follow the target's distribution.", _SGLANG),
        Clause(
            "VTT-15",
            "Uniform samples are compared in their own precision, never narrowed.",
            "contract: no rounding beyond the input's",
            rare="a float64 draw within a float32 rounding of a cumulative probability comes once in 2^25 at most",
            fault="random numbers narrowed",
        ),
    ),
)
