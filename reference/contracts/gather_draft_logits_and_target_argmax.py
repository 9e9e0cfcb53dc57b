"""gather_draft_logits_and_target_argmax: what verification reads, brought into the order of the target's rows."""

from verispec.reference.contracts._model import INTS, PROBS, Clause, Contract, Role, Scalar, Tensor
from verispec.reference.contracts._request_state import (
    AXES,
    DRAFT_LOGITS,
    EXPANDED_IDX_MAPPING,
    EXPANDED_LOCAL_POS,
    TARGET_LOGITS,
    TEMPERATURE,
    VLLM,
)

_STATS = f"{VLLM}._compute_local_logits_stats_kernel"

CONTRACT = Contract(
    name="gather_draft_logits_and_target_argmax",
    family="request_state",
    summary="Block maxima and argmaxes of the target's greedy rows, and the draft logits of the sampled ones.",
    axes={name: AXES[name] for name in ("L", "R", "K", "V", "W")}
    | {"G": "columns of the block statistics", "D": "columns of the gathered logits"},
    params=(
        Tensor(
            "local_max", ("L", "G"), ("float32",), "largest logit of each block", role=Role.OUT, production="float32"
        ),
        Tensor("local_argmax", ("L", "G"), INTS, "its token id", role=Role.OUT, production="int64"),
        Tensor(
            "gathered_draft_logits",
            ("L", "D"),
            PROBS,
            "draft logits of each row, before temperature",
            role=Role.OUT,
            production="float32",
            optional=True,
        ),
        TARGET_LOGITS,
        DRAFT_LOGITS,
        EXPANDED_IDX_MAPPING,
        EXPANDED_LOCAL_POS,
        TEMPERATURE,
        Scalar("BLOCK_SIZE", int, "vocabulary entries a block", flag=True, minimum=1),
    ),
    clauses=(
        Clause(
            "GDL-1",
            "In a row of temperature 0 entry g of local_max and local_argmax is the maximum of ids g * BLOCK_SIZE to "
            "(g + 1) * BLOCK_SIZE - 1 and the lowest id that has it, for every block of the vocabulary that has a "
            "column.",
            _STATS,
        ),
        Clause(
            "GDL-2",
            "In a row of another temperature gathered_draft_logits receives draft_logits[state, step], as far as its "
            "columns reach.",
            _STATS,
        ),
        Clause(
            "GDL-3",
            "A bonus row receives nothing; a row is the bonus row if the next one starts a request, is padding or does "
            "not exist, however many steps it has.",
            f"{_STATS}; vllm 0.32.0 compared the step with the configured number",
        ),
        Clause("GDL-4", "A padding row, state -1, receives nothing and reads no state.", "vllm#47066"),
        Clause(
            "GDL-5",
            "The blocks cover the ids that target and draft share: a target vocabulary that is padded wider than the "
            "draft's is read to the draft's width.",
            "vllm 0.27.0: MiMo v2.5 Pro with DFlash",
        ),
        Clause(
            "GDL-6",
            "NaN counts as minus infinity, and an argmax is always an id of its block.",
            "vllm 0.32.0 test_all_nan_target_logits_in_range",
        ),
        Clause("GDL-7", "Strides are honoured and rows past 2^31 elements are found.", "vllm#47383"),
        Clause("GDL-8", "The values are copied, not rounded, when both buffers have one dtype.", "vllm#55005"),
    ),
)
