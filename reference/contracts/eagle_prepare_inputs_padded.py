"""eagle_prepare_inputs_padded: the row that the drafter samples from after a verification step."""

from verispec.reference.contracts._model import (
    INTS,
    Clause,
    Contract,
    Cumulative,
    HostSize,
    Role,
    Scalar,
    Symbol,
    Tensor,
)

_VLLM = "vllm 0.33.0 vllm.v1.spec_decode.utils.eagle_prepare_inputs_padded_kernel"

CONTRACT = Contract(
    name="eagle_prepare_inputs_padded",
    family="flat",
    summary="Compute the index of each request's last valid token and the number of its rejected tokens.",
    axes={"B": "requests"},
    params=(
        Tensor(
            "cu_num_draft_tokens_ptr",
            (">=B",),
            INTS,
            "inclusive cumulative sum of draft tokens",
            production="int32",
            cumulative=Cumulative(),
        ),
        Tensor(
            "valid_sampled_tokens_count_ptr",
            (">=B",),
            INTS,
            "tokens emitted by each request: accepted draft tokens and one more",
            production="int32",
        ),
        Tensor(
            "query_start_loc_gpu_ptr",
            (">=B+1",),
            INTS,
            "first token of each request, and the end of the last one",
            production="int32",
            cumulative=Cumulative(),
        ),
        Tensor(
            "token_indices_to_sample_ptr",
            (">=B",),
            INTS,
            "index of the last valid token of each request",
            role=Role.OUT,
            production="int32",
        ),
        Tensor(
            "num_rejected_tokens_gpu_ptr",
            (">=B",),
            INTS,
            "rejected draft tokens of each request",
            role=Role.OUT,
            production="int32",
        ),
        Scalar("num_reqs", int, "requests", axis="B", minimum=0),
    ),
    effect="the drafter continues from a wrong row, and its drafts can be worse",
    keeps_text=True,
    clauses=(
        Clause(
            "EPI-1",
            "A request with n > 0 draft tokens has n + 1 - valid rejected tokens, also where none is valid.",
            _VLLM,
            outputs=("num_rejected_tokens_gpu_ptr",),
            places=("where valid_sampled_tokens_count_ptr is 0",),
            mistakes=(
                "a request with drafts of which no token is valid had rejected none",
                "a request rejected as many tokens as it has drafts, less its valid ones",
            ),
        ),
        Clause(
            "EPI-2",
            "A request without draft tokens has no rejected token, whatever its valid count.",
            _VLLM,
            outputs=("num_rejected_tokens_gpu_ptr",),
            places=("in requests without drafts",),
        ),
        Clause(
            "EPI-3",
            "The index to sample from is query_start_loc[b + 1] - 1 minus the number of rejected tokens.",
            _VLLM,
            outputs=("token_indices_to_sample_ptr",),
        ),
        Clause(
            "EPI-4",
            "The first request's count starts at zero, every other count at the previous cumulative sum.",
            _VLLM,
            outputs=("num_rejected_tokens_gpu_ptr",),
        ),
        Clause(
            "EPI-5",
            "Rows from num_reqs are neither read nor written; num_reqs = 0 is a no-op.",
            _VLLM,
            unreachable="callers allocate a row per request, of which each batch has one",
        ),
        Clause("EPI-6", "Counts and indices of int32 and of int64 give the same numbers, in any mix.", _VLLM),
        Clause(
            "EPI-7",
            "Strides are honoured.",
            "contract: tensors, not pointers",
            unreachable="callers allocate these tensors themselves, contiguous",
            fault="strides ignored",
        ),
    ),
    symbols=(Symbol("vllm", "vllm.v1.spec_decode.utils.eagle_prepare_inputs_padded_kernel", since="0.18.1"),),
    host_sizes=(HostSize(("num_reqs",), rows="cu_num_draft_tokens_ptr"),),
    grid=("num_reqs",),
    caller="vllm.v1.spec_decode.llm_base_proposer.SpecDecodeBaseProposer.prepare_inputs_padded",
)
