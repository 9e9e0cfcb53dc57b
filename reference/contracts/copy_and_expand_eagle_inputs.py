"""copy_and_expand_eagle_inputs: turn the target's tokens into the drafter's, with slots for new tokens."""

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

_VLLM = "vllm 0.33.0 vllm.v1.spec_decode.utils.copy_and_expand_eagle_inputs_kernel"
_SLOTS = ">=N+B*P-B*shift_input_ids"

CONTRACT = Contract(
    name="copy_and_expand_eagle_inputs",
    family="flat",
    summary="Copy each request's valid tokens, then its bonus token, mask tokens for parallel drafting, and padding.",
    axes={
        "B": "requests",
        "N": "target tokens of all requests",
        "P": "new slots per request: the bonus token and the mask tokens",
    },
    params=(
        Tensor("target_token_ids_ptr", ("N",), INTS, "the target's input tokens", production="int32"),
        Tensor("target_positions_ptr", ("N",), INTS, "their positions", production="int64"),
        Tensor("next_token_ids_ptr", ("B",), INTS, "the bonus token of each request", production="int32"),
        Tensor("out_input_ids_ptr", (_SLOTS,), INTS, "the drafter's input tokens", role=Role.OUT, production="int32"),
        Tensor("out_positions_ptr", (_SLOTS,), INTS, "their positions", role=Role.OUT, production="int64"),
        Tensor(
            "out_is_rejected_token_mask_ptr",
            (_SLOTS,),
            ("bool",),
            "mask of the padding slots",
            role=Role.OUT,
            production="bool",
        ),
        Tensor(
            "out_is_masked_token_mask_ptr",
            (_SLOTS,),
            ("bool",),
            "mask of the slots that hold the mask token of parallel drafting",
            role=Role.OUT,
            production="bool",
        ),
        Tensor(
            "out_new_token_indices_ptr",
            ("B*P",),
            INTS,
            "slots of the bonus and mask tokens, P per request",
            role=Role.OUT,
            production="int32",
        ),
        Tensor(
            "out_hidden_state_mapping_ptr",
            ("N",),
            INTS,
            "slot of each target token's hidden state, with shift_input_ids",
            role=Role.OUT,
            production="int32",
        ),
        Tensor(
            "query_start_loc_ptr",
            ("B+1",),
            INTS,
            "first target token of each request, and the end of the last one",
            production="int32",
            cumulative=Cumulative("N"),
        ),
        Tensor(
            "query_end_loc_ptr",
            ("B",),
            INTS,
            "last valid target token of each request, between its first and last token",
            production="int32",
            within="query_start_loc_ptr",
        ),
        Scalar("padding_token_id", int, "token of a padding slot"),
        Scalar("parallel_drafting_token_id", int, "the mask token"),
        Scalar("total_input_tokens", int, "target tokens of all requests", axis="N", minimum=0),
        Scalar("num_padding_slots_per_request", int, "new slots per request", axis="P", minimum=1),
        Scalar("shift_input_ids", bool, "drop the first token of each request (EAGLE)"),
        Scalar("BLOCK_SIZE_TOKENS", int, "tile of the tokens of a request", flag=True, tuning=True, minimum=1),
    ),
    effect="the drafter reads wrong tokens or positions, and its drafts can be worse",
    keeps_text=True,
    clauses=(
        Clause(
            "CEE-1",
            "Request b starts at query_start_loc[b] + b * S and has S slots more than target tokens, where S is P - 1 "
            "with shift_input_ids, else P.",
            _VLLM,
        ),
        Clause(
            "CEE-2",
            "The first slots hold the target tokens up to query_end_loc[b], without the first one with "
            "shift_input_ids.",
            _VLLM,
            outputs=("out_input_ids_ptr",),
        ),
        Clause(
            "CEE-3",
            "The next slot holds the request's bonus token.",
            _VLLM,
            outputs=("out_input_ids_ptr",),
        ),
        Clause(
            "CEE-4",
            "The next P - 1 slots hold the mask token, and the mask marks exactly these slots.",
            _VLLM,
            outputs=("out_is_masked_token_mask_ptr", "out_input_ids_ptr"),
            places=("where out_is_masked_token_mask_ptr is true",),
        ),
        Clause(
            "CEE-5",
            "One slot per rejected token follows, with the padding token and position 0; the rejected mask marks "
            "exactly these slots.",
            _VLLM,
            outputs=("out_is_rejected_token_mask_ptr", "out_input_ids_ptr", "out_positions_ptr"),
            places=("where out_is_rejected_token_mask_ptr is true",),
        ),
        Clause(
            "CEE-6",
            "Positions increase by 1 from the request's first target position, shifted or not.",
            _VLLM,
            outputs=("out_positions_ptr",),
        ),
        Clause(
            "CEE-7",
            "new_token_indices holds the slots of each request's bonus and mask tokens in order, P per request.",
            _VLLM,
            outputs=("out_new_token_indices_ptr",),
        ),
        Clause(
            "CEE-8",
            "With shift_input_ids the hidden-state mapping maps target token j of a request to its j-th slot, rejected "
            "tokens included; otherwise it keeps its value.",
            _VLLM,
            outputs=("out_hidden_state_mapping_ptr",),
        ),
        Clause("CEE-9", "Slots past the last request keep their value; an empty batch is a no-op.", _VLLM),
        Clause("CEE-10", "A request may have any number of tokens, whatever the tile.", f"{_VLLM}; vllm-ascend#4441"),
        Clause("CEE-11", "Ids, positions and indices of int32 and of int64 give the same numbers, in any mix.", _VLLM),
        Clause(
            "CEE-12",
            "Strides are honoured.",
            "contract: tensors, not pointers",
            unreachable="callers pass contiguous buffers",
            fault="strides ignored",
        ),
    ),
    symbols=(Symbol("vllm", "vllm.v1.spec_decode.utils.copy_and_expand_eagle_inputs_kernel", since="0.18.1"),),
    host_sizes=(
        HostSize(("batch_size",), rows="query_end_loc_ptr"),
        HostSize(
            ("num_blocks",),
            longest="query_start_loc_ptr",
            add="num_padding_slots_per_request",
            per="BLOCK_SIZE_TOKENS",
            default=256,
        ),
    ),
    grid=("batch_size", "num_blocks"),
    caller="vllm.v1.spec_decode.llm_base_proposer.SpecDecodeBaseProposer.set_inputs_first_pass",
)
