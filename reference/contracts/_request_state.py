"""Axes and parameters shared by the contracts of the slot-indexed family.

This family verifies draft tokens from logits. Requests occupy slots ("states"). A batch names the slot of each of its
requests, and every target row belongs to one request. Request b has the rows ``cu_num_logits[b]`` to ``cu_num_logits[b
+ 1] - 1``. Row i of a request is the target's distribution after its first i draft tokens. The last row, the bonus row,
therefore verifies no draft token. Row r verifies the input token of the next row, ``draft_sampled[r + 1]``.

Target logits are already divided by the request's temperature. Draft logits are stored as the drafter's model returned
them, and the reader divides them by the temperature.
"""

from verispec.reference.contracts._model import INTS, PROBS, Cumulative, Role, Tensor

AXES = {
    "B": "requests of the batch, padding included",
    "L": "target rows: per request one per draft token and the bonus row; then padding",
    "R": "request states",
    "K": "draft steps per state",
    "S": "columns of the sampled tokens: at least the maximum number of draft tokens per request, plus one",
    "V": "vocabulary of the target",
    "W": "vocabulary of the draft",
}

PAPER = "Leviathan et al. 2023 (arXiv 2211.17192), algorithm 1"
BLOCK_PAPER = "Sun et al. 2024 (arXiv 2403.10444), algorithm 2"
VLLM = "vllm 0.33.0 vllm.v1.worker.gpu.spec_decode.rejection_sampler_utils"

SAMPLED = Tensor("sampled", ("B", "S"), INTS, "emitted tokens", role=Role.OUT, production="int64")
ACCEPTED = Tensor(
    "num_accepted",
    ("B",),
    INTS,
    "accepted draft tokens, which is the step of the rejected or bonus row",
    role=Role.OUT,
    production="int32",
)
TARGET_LOGITS = Tensor(
    "target_logits", ("L", "V"), PROBS, "the target's logits, temperature applied", production="float32"
)
DRAFT_LOGITS = Tensor(
    "draft_logits",
    ("R", "K", "W"),
    PROBS,
    "the draft's logits before temperature; None if drafts are one-hot",
    production="float32",
    also=("bfloat16",),
    optional=True,
)
DRAFT_SAMPLED = Tensor(
    "draft_sampled", ("L",), INTS, "input token of each row; -1 is a padding token", production="int32"
)
CU_NUM_LOGITS = Tensor(
    "cu_num_logits",
    ("B+1",),
    INTS,
    "first row of each request, and the end of the last one",
    production="int32",
    cumulative=Cumulative("L", "S"),
)
POS = Tensor("pos", ("L",), INTS, "position of each row's input token", production="int64")
IDX_MAPPING = Tensor(
    "idx_mapping", ("B",), INTS, "state of each request; -1 is a padding row", production="int32", indexes="R"
)
EXPANDED_IDX_MAPPING = Tensor(
    "expanded_idx_mapping",
    ("L",),
    INTS,
    "state of each target row; -1 is a padding row",
    production="int32",
    indexes="R",
)
EXPANDED_LOCAL_POS = Tensor(
    "expanded_local_pos", ("L",), INTS, "step of each target row in its request", production="int32"
)
TEMPERATURE = Tensor("temperature", ("R",), ("float32",), "temperature; 0 is greedy", production="float32", minimum=0.0)
SEED = Tensor("seed", ("R",), ("int64",), "seed of the request's random samples", production="int64")


def logsumexp(name: str, role: Role) -> Tensor:
    """Return the parameter that passes the normaliser of the rejected row from verification to resampling."""
    return Tensor(name, ("B",), ("float32",), "log of the row's normaliser", role=role, production="float32")


VERDICT = (SAMPLED, ACCEPTED, logsumexp("target_logsumexp", Role.OUT), logsumexp("draft_logsumexp", Role.OUT))
"""Outputs of every verification, which resampling reads."""
LOGITS = (TARGET_LOGITS, DRAFT_LOGITS)
"""The logits of both models."""
REQUESTS = (DRAFT_SAMPLED, CU_NUM_LOGITS, POS, IDX_MAPPING)
"""Mapping from rows to requests and their positions."""
EXPANDED = (EXPANDED_IDX_MAPPING, EXPANDED_LOCAL_POS)
"""The same mapping, per row."""
DRAW = (TEMPERATURE, SEED)
"""Sampling parameters per state."""
