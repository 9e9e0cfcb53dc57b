"""block_verification: verify the drafts of a request as one block."""

from verispec.reference.contracts._model import Clause, Contract, Role, Tensor
from verispec.reference.contracts._request_state import (
    AXES,
    BLOCK_PAPER,
    DRAW,
    EXPANDED,
    LOGITS,
    REQUESTS,
    VERDICT,
    VLLM,
)

_KERNEL = f"{VLLM}._rejection_kernel, USE_BLOCK_VERIFICATION"

CONTRACT = Contract(
    name="block_verification",
    family="request_state",
    summary="Accept the longest prefix of the drafts that passes its own test; the block rule of Sun et al.",
    axes=AXES,
    params=(
        *VERDICT,
        Tensor(
            "log_prefix_ratio",
            ("B",),
            ("float32",),
            "log of the joint ratio r at the last accepted draft",
            role=Role.OUT,
            production="float32",
        ),
        *LOGITS,
        *REQUESTS,
        *EXPANDED,
        *DRAW,
    ),
    clauses=(
        Clause(
            "BLK-1", "The joint ratio is r[0] = 1 and r[i] = min(r[i - 1] p[i] / q[i], 1) at the drafts.", BLOCK_PAPER
        ),
        Clause(
            "BLK-2",
            "The threshold of the prefix of i drafts is h[i] = m / (m + 1 - r[i]) with m the sum over the vocabulary "
            "of "
            "max(r[i] p - q, 0) at the row after it, and 1 where that is 0/0.",
            BLOCK_PAPER,
        ),
        Clause("BLK-3", "The threshold of the whole block is r itself.", BLOCK_PAPER),
        Clause(
            "BLK-4",
            "The longest prefix with u <= h is accepted, be shorter ones accepted or not; each prefix has its own u, "
            "the "
            "acceptance number of the position and step of its last draft's row.",
            f"{BLOCK_PAPER}; vllm-ascend#7808",
        ),
        Clause(
            "BLK-5",
            "Without draft logits q is 1 at the draft and 0 elsewhere, so that m is r[i] (1 - p) at the next draft.",
            _KERNEL,
        ),
        Clause(
            "BLK-6",
            "A placeholder ends the block: the prefix before it is judged as a whole block, and neither it nor "
            "anything "
            "after it is accepted or indexes.",
            "vllm#50939",
        ),
        Clause(
            "BLK-7",
            "At temperature 0 a draft is accepted while it is the target's argmax, and the argmax stands at the first "
            "rejected position.",
            _KERNEL,
        ),
        Clause(
            "BLK-8",
            "Accepted drafts stand at the positions of their steps; what stands after them is not defined until "
            "resampling, but for the argmax of BLK-7.",
            _KERNEL,
        ),
        Clause(
            "BLK-9",
            "target_logsumexp, draft_logsumexp and log_prefix_ratio receive those of the row after the accepted prefix "
            "where that is a rejected draft's, log_prefix_ratio being 0 when no draft was accepted.",
            _KERNEL,
        ),
        Clause(
            "BLK-10",
            "Ids that only the target has, past the draft's vocabulary, count neither in p nor in q.",
            "vllm 0.27.0: MiMo v2.5 Pro with DFlash",
        ),
        Clause(
            "BLK-11",
            "A padding request, state -1, reads no state and writes nothing; a request without drafts accepts none.",
            "vllm#47066",
        ),
        Clause(
            "BLK-12",
            "NaN counts as minus infinity; a draft without target probability has r = 0, and r stays 0 after it.",
            _KERNEL,
        ),
        Clause(
            "BLK-13",
            "Ratios are computed in float32 or better; where u and the float64 threshold differ by less than 2^-14 "
            "times "
            "the largest of 1 and the rows' |logits| either answer is right.",
            "contract: rounding of a float32 softmax and of a sum over the vocabulary",
        ),
        Clause("BLK-14", "Strides are honoured and rows past 2^31 elements are found, in every pass.", "vllm#47383"),
    ),
    law=(
        "With drafts from q the emitted tokens are distributed as p, and no rule that is lossless accepts more on "
        "average."
    ),
)
