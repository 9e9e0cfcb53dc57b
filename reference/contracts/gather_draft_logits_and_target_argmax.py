"""gather_draft_logits_and_target_argmax: collect what verification reads, in the order of the target's rows."""

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
    summary=(
        "Compute block maxima and argmaxes of the target's greedy rows, and gather draft logits of the sampled rows."
    ),
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
        Scalar("BLOCK_SIZE", int, "vocabulary entries per block", flag=True, minimum=1),
    ),
    effect="drafts are verified against wrong logits or a wrong argmax, and emitted tokens can be wrong",
    clauses=(
        Clause(
            "GDL-1",
            "At temperature 0, entry g of local_max and local_argmax is the maximum of block g, ids g * BLOCK_SIZE to "
            "(g + 1) * BLOCK_SIZE - 1, and its lowest id, for every block with a column. Places without an id never "
            "win.",
            _STATS,
            outputs=("local_max", "local_argmax"),
            mistakes=(
                "a last block that is not whole were left out",
                "places of a block without an id counted as logits of 0",
            ),
        ),
        Clause(
            "GDL-2",
            "At any other temperature, gathered_draft_logits receives draft_logits[state, step], up to its number of "
            "columns.",
            _STATS,
            outputs=("gathered_draft_logits",),
        ),
        Clause(
            "GDL-3",
            "A bonus row receives nothing; it is the row before the start of a request, before padding, or before "
            "the end, whatever its number of steps.",
            f"{_STATS}; vllm 0.32.0 compared the step with the configured number",
        ),
        Clause("GDL-4", "A padding row, state -1, receives nothing and reads no state.", "vllm#47066"),
        Clause(
            "GDL-5",
            "The blocks cover the ids that target and draft share: a wider, padded target vocabulary is read up to the "
            "draft's width.",
            "vllm 0.27.0: MiMo v2.5 Pro with DFlash",
        ),
        Clause(
            "GDL-6",
            "NaN counts as minus infinity, and an argmax is always an id of its block.",
            "vllm 0.32.0 test_all_nan_target_logits_in_range",
        ),
        Clause("GDL-7", "Strides are honoured, and rows past 2^31 elements are read correctly.", "vllm#47383"),
        Clause("GDL-8", "Values are copied without rounding if both buffers have the same dtype.", "vllm#55005"),
    ),
)
