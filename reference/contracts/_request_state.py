"""What the contracts of the request-state family share: axes and parameters.

The family verifies drafts from logits. Requests live in slots ("states"); a batch names the slot of
each of its requests, and every target row belongs to one request. The rows of request b are
``cu_num_logits[b]`` to ``cu_num_logits[b + 1] - 1``: row i of a request is the target's distribution
after its first i drafts, so the last row, the bonus row, has no draft of its own. The draft that row
r verifies is the input token of the next row, ``draft_sampled[r + 1]``.

Target logits carry the request's temperature already; draft logits are kept as the drafter's model
gave them and are divided by the temperature where they are read.
"""

from verispec.reference.contracts._model import INTS, PROBS, Cumulative, Role, Tensor

AXES = {
    "B": "requests of the batch, padding included",
    "L": "target rows: for each request one a draft and the bonus row, and padding",
    "R": "request states",
    "K": "draft steps that a state holds",
    "S": "columns of the sampled tokens: at least most drafts of a request plus one",
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
    "accepted drafts, which is the step of the rejected or bonus row",
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
    "the draft's logits before temperature; None when drafts are one-hot",
    production="float32",
    also=("bfloat16",),
    optional=True,
)
DRAFT_SAMPLED = Tensor(
    "draft_sampled", ("L",), INTS, "input token of each row; -1 is a placeholder draft", production="int32"
)
CU_NUM_LOGITS = Tensor(
    "cu_num_logits",
    ("B+1",),
    INTS,
    "first row of each request, and the end of the last",
    production="int32",
    cumulative=Cumulative("L", "S"),
)
POS = Tensor("pos", ("L",), INTS, "position of each row's input token", production="int64")
IDX_MAPPING = Tensor("idx_mapping", ("B",), INTS, "state of each request; -1 is a padding row", production="int32")
EXPANDED_IDX_MAPPING = Tensor(
    "expanded_idx_mapping", ("L",), INTS, "state of each target row; -1 is a padding row", production="int32"
)
EXPANDED_LOCAL_POS = Tensor(
    "expanded_local_pos", ("L",), INTS, "step of each target row in its request", production="int32"
)
TEMPERATURE = Tensor("temperature", ("R",), ("float32",), "temperature; 0 is greedy", production="float32")
SEED = Tensor("seed", ("R",), ("int64",), "seed of the request's random numbers", production="int64")


def logsumexp(name: str, role: Role) -> Tensor:
    """The parameter that hands the normaliser of the rejected row from verification to resampling."""
    return Tensor(name, ("B",), ("float32",), "log of the row's normaliser", role=role, production="float32")


VERDICT = (SAMPLED, ACCEPTED, logsumexp("target_logsumexp", Role.OUT), logsumexp("draft_logsumexp", Role.OUT))
"""What every verification hands to resampling,"""
LOGITS = (TARGET_LOGITS, DRAFT_LOGITS)
"""what it reads,"""
REQUESTS = (DRAFT_SAMPLED, CU_NUM_LOGITS, POS, IDX_MAPPING)
"""how that belongs to requests,"""
EXPANDED = (EXPANDED_IDX_MAPPING, EXPANDED_LOCAL_POS)
"""the same by row,"""
DRAW = (TEMPERATURE, SEED)
"""and what a request draws with."""
