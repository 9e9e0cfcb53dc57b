"""copy_and_expand_eagle_inputs: the target's tokens become the drafter's, with room for new ones."""

from verispec.reference.contracts._model import INTS, Clause, Contract, Cumulative, Role, Scalar, Symbol, Tensor

_VLLM = "vllm 0.33.0 vllm.v1.spec_decode.utils.copy_and_expand_eagle_inputs_kernel"
_SLOTS = ">=N+B*P-B*shift_input_ids"

CONTRACT = Contract(
    name="copy_and_expand_eagle_inputs",
    family="flat",
    summary="Copy each request's valid tokens, then its bonus token, mask tokens to draft in parallel, and padding.",
    axes={"B": "requests", "N": "target tokens of all requests", "P": "new slots a request: the bonus and the masks"},
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
            "slots that only pad",
            role=Role.OUT,
            production="bool",
        ),
        Tensor(
            "out_is_masked_token_mask_ptr",
            (_SLOTS,),
            ("bool",),
            "slots that hold the mask token of parallel drafting",
            role=Role.OUT,
            production="bool",
        ),
        Tensor(
            "out_new_token_indices_ptr",
            ("B*P",),
            INTS,
            "slots of the bonus and the mask tokens, P a request",
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
            "first target token of each request, and the end of the last",
            production="int32",
            cumulative=Cumulative("N"),
        ),
        Tensor(
            "query_end_loc_ptr",
            ("B",),
            INTS,
            "last valid target token of each request: from its first to its last token",
            production="int32",
            within="query_start_loc_ptr",
        ),
        Scalar("padding_token_id", int, "the token of a slot that only pads"),
        Scalar("parallel_drafting_token_id", int, "the mask token"),
        Scalar("total_input_tokens", int, "target tokens of all requests", axis="N", minimum=0),
        Scalar("num_padding_slots_per_request", int, "new slots a request", axis="P", minimum=1),
        Scalar("shift_input_ids", bool, "drop the first token of each request (EAGLE)"),
        Scalar("BLOCK_SIZE_TOKENS", int, "tile of the tokens of a request", flag=True, tuning=True, minimum=1),
    ),
    clauses=(
        Clause(
            "CEE-1",
            "Request b's slots begin at query_start_loc[b] + b * P, or + b * (P - 1) with shift_input_ids, and are its "
            "target tokens, less one with shift_input_ids, and P more.",
            _VLLM,
        ),
        Clause(
            "CEE-2",
            "The first slots hold the target tokens up to query_end_loc[b], without the first if shift_input_ids.",
            _VLLM,
        ),
        Clause("CEE-3", "The next slot holds the request's bonus token.", _VLLM),
        Clause("CEE-4", "P - 1 slots with the mask token follow, and the mask marks these and no others.", _VLLM),
        Clause(
            "CEE-5",
            "The rest, one a rejected token, holds the padding token and position 0, and the mask of rejected slots "
            "marks these and no others.",
            _VLLM,
        ),
        Clause(
            "CEE-6",
            "Positions count up from the request's first target position, shifted or not.",
            _VLLM,
        ),
        Clause(
            "CEE-7",
            "new_token_indices holds, P a request, the slots of its bonus and mask tokens in order.",
            _VLLM,
        ),
        Clause(
            "CEE-8",
            "With shift_input_ids the hidden-state mapping gives target token j of a request the j-th slot of the "
            "request, rejected tokens included; without, it keeps what was there.",
            _VLLM,
        ),
        Clause("CEE-9", "Slots past the last request keep what was there; no batch is a no-op.", _VLLM),
        Clause("CEE-10", "A request may have any number of tokens, whatever the tile.", f"{_VLLM}; vllm-ascend#4441"),
        Clause("CEE-11", "Ids, positions and indices of int32 and of int64 give the same numbers, in any mix.", _VLLM),
        Clause(
            "CEE-12",
            "Strides are honoured.",
            "contract: tensors, not pointers",
            unreachable="callers pass contiguous buffers",
        ),
    ),
    symbols=(Symbol("vllm", "vllm.v1.spec_decode.utils.copy_and_expand_eagle_inputs_kernel", since="0.18.1"),),
)
