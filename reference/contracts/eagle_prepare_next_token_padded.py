"""eagle_prepare_next_token_padded: the drafter's next input token and the number of valid tokens per request."""

from verispec.reference.contracts._model import INTS, Clause, Contract, HostSize, Role, Scalar, Symbol, Tensor

_VLLM = "vllm 0.33.0 vllm.v1.spec_decode.utils.eagle_prepare_next_token_padded_kernel"

CONTRACT = Contract(
    name="eagle_prepare_next_token_padded",
    family="flat",
    summary="Return each row's last valid token and its number of valid tokens; without one, return a backup token.",
    axes={"B": "requests", "T": "sampled tokens per request"},
    params=(
        Tensor(
            "sampled_token_ids_ptr",
            (">=B", ">=T"),
            INTS,
            "tokens emitted by verification, -1 after the last",
            production="int32",
        ),
        Tensor(
            "discard_request_mask_ptr",
            (">=B",),
            ("bool",),
            "requests whose sampled tokens are discarded",
            production="bool",
        ),
        Tensor("backup_next_token_ids_ptr", (">=B",), INTS, "backup token of each request", production="int32"),
        Tensor(
            "next_token_ids_ptr", (">=B",), INTS, "next input token of the drafter", role=Role.OUT, production="int32"
        ),
        Tensor(
            "valid_sampled_tokens_count_ptr",
            (">=B",),
            INTS,
            "valid tokens of each request",
            role=Role.OUT,
            production="int32",
        ),
        Scalar("vocab_size", int, "size of the vocabulary", minimum=1),
        Scalar("num_sampled_tokens_per_req", int, "sampled tokens per request", axis="T", minimum=0),
        Scalar("num_reqs", int, "requests", axis="B", minimum=0),
        Scalar(
            "stride_sampled_token_ids",
            int,
            "first stride of the sampled tokens, in elements",
            stride_of="sampled_token_ids_ptr",
        ),
        Scalar("BLOCK_SIZE_TOKENS", int, "power of two, at least the row length", flag=True, tuning=True, minimum=1),
    ),
    effect="the drafter continues from a wrong token, and its drafts can be worse",
    keeps_text=True,
    clauses=(
        Clause(
            "ENT-1",
            "The count is the number of valid entries of the row: entries other than -1 and below vocab_size.",
            _VLLM,
            outputs=("valid_sampled_tokens_count_ptr",),
        ),
        Clause(
            "ENT-2",
            "The next token is the last valid entry of the row.",
            _VLLM,
            outputs=("next_token_ids_ptr",),
            mistakes=("the last valid token were that at the number of valid ones, gaps or not",),
        ),
        Clause(
            "ENT-3",
            "A row without a valid entry gives the backup token and the count 0.",
            _VLLM,
            outputs=("next_token_ids_ptr", "valid_sampled_tokens_count_ptr"),
        ),
        Clause(
            "ENT-4",
            "A discarded request gives the backup token and the count 0, whatever its row holds.",
            _VLLM,
            outputs=("valid_sampled_tokens_count_ptr", "next_token_ids_ptr"),
            places=("where discard_request_mask_ptr is true",),
        ),
        Clause(
            "ENT-5",
            "An entry of vocab_size or above is not valid.",
            _VLLM,
            outputs=("next_token_ids_ptr", "valid_sampled_tokens_count_ptr"),
        ),
        Clause(
            "ENT-6",
            "A negative entry other than -1 is not valid.",
            "vllm#45237",
            unreachable="verification writes no other negative token",
            outputs=("next_token_ids_ptr", "valid_sampled_tokens_count_ptr"),
        ),
        Clause(
            "ENT-7",
            "Rows from num_reqs are neither read nor written; num_reqs = 0 is a no-op.",
            _VLLM,
            unreachable="callers allocate a row per request, of which each batch has one",
        ),
        Clause(
            "ENT-8",
            "The row stride is honoured, and columns past num_sampled_tokens_per_req do not count.",
            _VLLM,
            unreachable="callers pass the whole tensor that verification allocates, contiguous",
        ),
        Clause("ENT-9", "Ids and counts of int32 and of int64 give the same tokens, in any mix.", _VLLM),
        Clause(
            "ENT-10",
            "Strides of inner dimensions and of one-dimensional tensors are honoured.",
            "contract: tensors, not pointers",
            unreachable="callers pass rows that are contiguous",
            fault="strides ignored",
        ),
    ),
    symbols=(Symbol("vllm", "vllm.v1.spec_decode.utils.eagle_prepare_next_token_padded_kernel", since="0.18.1"),),
    host_sizes=(HostSize(("num_reqs",), rows="discard_request_mask_ptr"),),
    grid=("num_reqs",),
    caller="vllm.v1.spec_decode.llm_base_proposer.SpecDecodeBaseProposer.prepare_next_token_ids_padded",
)
