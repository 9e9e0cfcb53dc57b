"""copy_and_expand_dflash_inputs: positions and KV slots of a DFlash drafter's context, and its queries."""

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

_VLLM = "vllm 0.33.0 vllm.v1.spec_decode.utils.copy_and_expand_dflash_inputs_kernel"
_CALLER = "vllm.v1.spec_decode.dflash.DFlashProposer.set_inputs_first_pass"

CONTRACT = Contract(
    name="copy_and_expand_dflash_inputs",
    family="flat",
    summary="Place each request's target tokens as context, and its next token and mask tokens as queries after them.",
    axes={
        "B": "requests",
        "T": "target tokens of all requests",
        "Q": "queries per request: the next token and the mask tokens",
        "S": "mask tokens per request, one per drafted token",
        "W": "columns of the block table",
    },
    params=(
        Tensor("next_token_ids_ptr", ("B",), INTS, "the next token of each request", production="int32"),
        Tensor("target_positions_ptr", ("T",), INTS, "position of each target token", production="int64", minimum=0),
        Tensor("out_input_ids_ptr", (">=B*Q",), INTS, "token of each query", role=Role.OUT, production="int32"),
        Tensor(
            "out_context_positions_ptr", (">=T",), INTS, "position per context token", role=Role.OUT, production="int64"
        ),
        Tensor("out_query_positions_ptr", (">=B*Q",), INTS, "position per query", role=Role.OUT, production="int64"),
        Tensor(
            "out_context_slot_mapping_ptr",
            (">=T",),
            INTS,
            "KV slot of each context token",
            role=Role.OUT,
            production="int64",
        ),
        Tensor(
            "out_query_slot_mapping_ptr", (">=B*Q",), INTS, "KV slot of each query", role=Role.OUT, production="int64"
        ),
        Tensor(
            "out_token_indices_ptr",
            ("B*S",),
            INTS,
            "queries to sample a draft from, S per request",
            role=Role.OUT,
            production="int32",
        ),
        Tensor(
            "block_table_ptr", (">=B", "W"), INTS, "KV block per table column, one row per request", production="int32"
        ),
        Scalar("block_table_stride", int, "first stride of the block table, in elements", stride_of="block_table_ptr"),
        Tensor(
            "query_start_loc_ptr",
            ("B+1",),
            INTS,
            "first target token of each request, and the end of the last one",
            production="int32",
            cumulative=Cumulative("T"),
        ),
        Tensor(
            "num_rejected_tokens_ptr",
            ("B",),
            INTS,
            "target tokens at the end of each request that were rejected, fewer than it has",
            production="int32",
            optional=True,
            required_if="HAS_NUM_REJECTED",
            minimum=0,
        ),
        Scalar("parallel_drafting_token_id", int, "the mask token"),
        Scalar("block_size", int, "positions per KV block", minimum=1),
        Scalar("num_query_per_req", int, "queries per request", axis="Q", equals="num_speculative_tokens+1"),
        Scalar("num_speculative_tokens", int, "drafted tokens per request", axis="S", minimum=1),
        Scalar("total_input_tokens", int, "target tokens of all requests", axis="T", minimum=0),
        Scalar("BLOCK_SIZE", int, "tile of a request's tokens and queries", flag=True, tuning=True, minimum=1),
        Scalar("HAS_NUM_REJECTED", bool, "requests may end with rejected tokens", flag=True, default=False),
    ),
    effect="the drafter reads wrong tokens, positions or KV slots, and its drafts can be worse",
    keeps_text=True,
    clauses=(
        Clause(
            "CDI-1",
            "Every target token of a request, a rejected one too, keeps its position as context.",
            _VLLM,
            outputs=("out_context_positions_ptr",),
        ),
        Clause(
            "CDI-2",
            "A context token's slot is block_table[b, position // block_size] * block_size + position % block_size, a "
            "rejected token's too.",
            _VLLM,
            outputs=("out_context_slot_mapping_ptr",),
        ),
        Clause(
            "CDI-3",
            "Query j of a request has position p + 1 + j, where p is the position of its last accepted token.",
            _VLLM,
            outputs=("out_query_positions_ptr",),
        ),
        Clause(
            "CDI-4",
            "A request's last num_rejected[b] tokens are not accepted: its queries start right after its last accepted "
            "token, not after the rejected ones.",
            f"{_VLLM}; {_CALLER}, which subtracts rejected tokens from the lengths that attention sees",
            outputs=("out_query_positions_ptr", "out_query_slot_mapping_ptr"),
            places=("where num_rejected_tokens_ptr is above 0",),
        ),
        Clause(
            "CDI-5",
            "Without HAS_NUM_REJECTED every target token is accepted, and no count is read.",
            _VLLM,
            outputs=("out_query_positions_ptr", "out_query_slot_mapping_ptr"),
        ),
        Clause(
            "CDI-6",
            "A query's slot is that of its own position, in its request's row of the block table.",
            _VLLM,
            outputs=("out_query_slot_mapping_ptr",),
        ),
        Clause(
            "CDI-7",
            "A request's first query holds its next token, the others the mask token.",
            _VLLM,
            outputs=("out_input_ids_ptr",),
        ),
        Clause(
            "CDI-8",
            "token_indices holds the mask tokens' queries of each request in order, S per request; the next token's "
            "query is not among them.",
            _VLLM,
            outputs=("out_token_indices_ptr",),
        ),
        Clause("CDI-9", "Query j of request b is entry b * num_query_per_req + j of every output of queries.", _VLLM),
        Clause(
            "CDI-10",
            "Entries past the last target token and past the last query keep their value; an empty batch is a no-op.",
            _VLLM,
        ),
        Clause("CDI-11", "A request may have any number of target tokens and of queries, whatever the tile.", _VLLM),
        Clause("CDI-12", "Ids, positions, blocks and slots of int32 and of int64 give the same numbers.", _VLLM),
        Clause(
            "CDI-13",
            "A block index past the table's columns reads the last column, never memory beyond the row.",
            _VLLM,
            unreachable="vLLM drafts nothing where a request's queries would pass the model's limit, which the table "
            "covers",
            outputs=("out_context_slot_mapping_ptr", "out_query_slot_mapping_ptr"),
        ),
        Clause(
            "CDI-14",
            "A request whose tokens are all rejected has its queries after its first token; no position before the "
            "request's own is read.",
            "vllm 0.33.0 csrc/cpu/spec_decode_utils.cpp copy_and_expand_dflash_inputs_kernel_impl",
            unreachable="a request that verifies drafts emits a token, and one that is discarded verifies none",
            outputs=("out_query_positions_ptr", "out_query_slot_mapping_ptr"),
        ),
        Clause(
            "CDI-15",
            "A request without target tokens has tokens and indices as any other, and changes no other request's "
            "queries; its own positions are unspecified.",
            "contract: requests are independent",
            unreachable="every scheduled request has a token at least",
        ),
        Clause(
            "CDI-16",
            "Slots past 2^31 are exact.",
            "contract: slots are as wide as the output, 64 bits",
            unreachable="no KV cache has 2^31 slots yet",
            outputs=("out_context_slot_mapping_ptr", "out_query_slot_mapping_ptr"),
        ),
        Clause(
            "CDI-17",
            "The row stride of the block table is honoured.",
            _VLLM,
            unreachable="callers pass the first rows of a contiguous table, all columns",
            fault="strides ignored",
        ),
        Clause(
            "CDI-18",
            "Strides of inner dimensions and of one-dimensional tensors are honoured.",
            "contract: tensors, not pointers",
            unreachable="callers pass tensors whose last dimension is contiguous",
            fault="strides ignored",
        ),
    ),
    symbols=(
        Symbol(
            "vllm",
            "vllm.v1.spec_decode.utils.copy_and_expand_dflash_inputs_kernel",
            since="0.20.0",
            rename={"BLOCK_SIZE": "triton_block_size"},
        ),
    ),
    host_sizes=(
        HostSize(("num_reqs",), rows="query_start_loc_ptr", add=-1),
        HostSize(("max_tokens_per_req",), longest="query_start_loc_ptr", add="num_query_per_req"),
        HostSize(
            ("num_blocks",), longest="query_start_loc_ptr", add="num_query_per_req", per="BLOCK_SIZE", default=256
        ),
    ),
    grid=("num_reqs", "num_blocks"),
    caller=_CALLER,
)
