"""block_verification: verify the draft tokens of a request as one block."""

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
    summary="Accept the longest prefix of the draft tokens that passes its own test; the block rule of Sun et al.",
    axes=AXES,
    params=(
        *VERDICT,
        Tensor(
            "log_prefix_ratio",
            ("B",),
            ("float32",),
            "log of the joint ratio r at the last accepted draft token",
            role=Role.OUT,
            production="float32",
        ),
        *LOGITS,
        *REQUESTS,
        *EXPANDED,
        *DRAW,
    ),
    effect="drafts are accepted wrongly, or sampled text does not follow the target",
    clauses=(
        Clause(
            "BLK-1",
            "The joint ratio is r[0] = 1 and r[i] = min(r[i - 1] p[i] / q[i], 1) at the draft tokens. p and q are "
            "softmaxes over every id that target and draft share.",
            BLOCK_PAPER,
            mistakes=("the joint ratio were cut at 1 behind the last draft alone",),
        ),
        Clause(
            "BLK-2",
            "The threshold of a prefix of i draft tokens is h[i] = m / (m + 1 - r[i]), and 1 for 0/0; m is the sum of "
            "max(r[i] p - q, 0) over the vocabulary at the next row.",
            BLOCK_PAPER,
        ),
        Clause("BLK-3", "The threshold of the whole block is r itself.", BLOCK_PAPER),
        Clause(
            "BLK-4",
            "The longest prefix with u <= h is accepted, even if shorter ones fail; u is the acceptance sample at the "
            "position and step of the prefix's last row.",
            f"{BLOCK_PAPER}; vllm-ascend#7808",
            outputs=("num_accepted",),
        ),
        Clause(
            "BLK-5",
            "Without draft logits q is 1 at the draft token and 0 elsewhere, so that m is r[i] (1 - p) at the next "
            "one.",
            _KERNEL,
        ),
        Clause(
            "BLK-6",
            "A padding token ends the block: the prefix before it is tested as a whole block, and no later token is "
            "accepted or used as an index.",
            "vllm#50939",
        ),
        Clause(
            "BLK-7",
            "At temperature 0 a draft token is accepted while it is the target's argmax, and the first rejected "
            "position receives the argmax.",
            _KERNEL,
        ),
        Clause(
            "BLK-8",
            "Accepted draft tokens are stored at the positions of their steps; later positions are undefined until "
            "resampling, except for the argmax of BLK-7.",
            _KERNEL,
            outputs=("sampled",),
        ),
        Clause(
            "BLK-9",
            "If a draft token is rejected, target_logsumexp and draft_logsumexp are those of its row, and "
            "log_prefix_ratio is that of the accepted tokens before it (0 for none); else a request's may have any "
            "value.",
            _KERNEL,
            outputs=("target_logsumexp", "draft_logsumexp", "log_prefix_ratio"),
        ),
        Clause(
            "BLK-10",
            "Ids past the draft's vocabulary contribute neither to p nor to q.",
            "vllm 0.27.0: MiMo v2.5 Pro with DFlash",
        ),
        Clause(
            "BLK-11",
            "A padding request, state -1, reads no state and writes nothing; a request without drafts accepts none.",
            "vllm#47066",
        ),
        Clause(
            "BLK-12",
            "NaN counts as minus infinity; a draft token with p = 0 has r = 0, and r stays 0 after it.",
            _KERNEL,
        ),
        Clause(
            "BLK-13",
            "Ratios are computed in float32 or better; if u is within 2^-14 times the largest of 1 and the rows' "
            "|logits| of the float64 threshold, either decision is correct.",
            "contract: rounding of a float32 softmax and of a sum over the vocabulary",
        ),
        Clause("BLK-14", "Strides are honoured, and every pass reads rows past 2^31 elements correctly.", "vllm#47383"),
    ),
    law=(
        "With draft tokens from q the emitted tokens are distributed as p, and no lossless rule accepts more on "
        "average."
    ),
)
