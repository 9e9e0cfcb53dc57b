"""eagle_step_slot_mapping_metadata: advance every request by one draft token."""

from verispec.reference.contracts._model import INTS, Clause, Contract, HostSize, Role, Scalar, Symbol, Tensor

_VLLM = "vllm 0.33.0 vllm.v1.spec_decode.utils.eagle_step_slot_mapping_metadata_kernel"

CONTRACT = Contract(
    name="eagle_step_slot_mapping_metadata",
    family="flat",
    summary=(
        "Compute position + 1 with the length limit, its KV slot from the block table, and the sequence length + 1."
    ),
    axes={"B": "requests"},
    params=(
        Tensor("positions_ptr", (">=B",), INTS, "position of the last token of each request", production="int64"),
        Tensor(
            "block_table_ptr",
            (">=B", ">=n_blocks_per_req"),
            INTS,
            "KV block per block_size positions",
            production="int32",
        ),
        Scalar("block_table_stride", int, "first stride of the block table, in elements", stride_of="block_table_ptr"),
        Tensor(
            "seq_lens_ptr", (">=B",), INTS, "sequence lengths, advanced in place", role=Role.INOUT, production="int32"
        ),
        Tensor(
            "out_clamped_positions_ptr",
            (">=B",),
            INTS,
            "the next position; may share the memory of positions_ptr",
            role=Role.OUT,
            production="int64",
            may_alias="positions_ptr",
        ),
        Tensor(
            "out_slot_mapping_ptr",
            (">=B",),
            INTS,
            "KV slot of the next position; rows past the batch are padding",
            role=Role.OUT,
            production="int64",
        ),
        Scalar("block_size", int, "positions per KV block", flag=True, minimum=1),
        Scalar("max_model_len", int, "maximum number of positions per request", flag=True, minimum=1),
        Scalar("n_blocks_per_req", int, "columns of the block table", flag=True, minimum=1),
        Scalar("PAD_ID", int, "slot of a padding token", flag=True),
        Scalar("batch_size", int, "requests", axis="B", minimum=0),
    ),
    effect="the drafter has wrong positions, lengths or slots of its KV cache, and its drafts can be worse",
    keeps_text=True,
    clauses=(
        Clause(
            "ESM-1",
            "The next position is the position plus 1.",
            _VLLM,
            outputs=("out_clamped_positions_ptr",),
        ),
        Clause(
            "ESM-2",
            "A next position of max_model_len or above becomes position 0, slot PAD_ID and sequence length 1.",
            f"{_VLLM}; vllm#32628",
            outputs=("out_clamped_positions_ptr", "out_slot_mapping_ptr", "seq_lens_ptr"),
            places=(
                "where positions_ptr is max_model_len",
                "where the right value is PAD_ID",
            ),
        ),
        Clause(
            "ESM-3",
            "The slot is block_table[b, next // block_size] * block_size + next % block_size.",
            _VLLM,
            outputs=("out_slot_mapping_ptr",),
        ),
        Clause(
            "ESM-4",
            "The sequence length grows by 1 and never exceeds max_model_len.",
            _VLLM,
            outputs=("seq_lens_ptr",),
        ),
        Clause(
            "ESM-5",
            "Rows of the slot mapping from batch_size to its end receive PAD_ID; no other output is written there.",
            f"{_VLLM}; padding rows of a captured graph",
            outputs=("out_slot_mapping_ptr",),
            places=("behind the last request",),
        ),
        Clause(
            "ESM-6",
            "A block index past the table's columns reads the last column, never memory beyond the row.",
            _VLLM,
            unreachable="the block table covers max_model_len",
            outputs=("out_slot_mapping_ptr",),
        ),
        Clause(
            "ESM-7",
            "The positions may be advanced in place: out_clamped_positions may share the memory of positions.",
            "vllm 0.33.0 vllm.v1.spec_decode.llm_base_proposer, every draft step after the first",
        ),
        Clause(
            "ESM-8",
            "A negative next position is treated as past the limit and is never used as an index.",
            "contract: no unchecked number is an index",
            unreachable="positions count from 0",
            outputs=("out_clamped_positions_ptr", "out_slot_mapping_ptr", "seq_lens_ptr"),
        ),
        Clause(
            "ESM-9",
            "Slots past 2^31 are exact.",
            "contract: slots are as wide as the output, 64 bits",
            unreachable="no KV cache has 2^31 slots yet",
            outputs=("out_slot_mapping_ptr",),
        ),
        Clause(
            "ESM-10",
            "The row stride of the block table is honoured.",
            _VLLM,
            unreachable="callers pass the first rows of a contiguous table, all columns",
            fault="strides ignored",
        ),
        Clause(
            "ESM-11",
            "Strides of inner dimensions and of one-dimensional tensors are honoured.",
            "contract: tensors, not pointers",
            unreachable="callers pass tensors whose last dimension is contiguous",
            fault="strides ignored",
        ),
        Clause(
            "ESM-12", "Positions, lengths and slots of int32 and of int64 give the same numbers, in any mix.", _VLLM
        ),
    ),
    symbols=(Symbol("vllm", "vllm.v1.spec_decode.utils.eagle_step_slot_mapping_metadata_kernel", since="0.18.1"),),
    host_sizes=(
        HostSize(("batch_size",), rows="positions_ptr"),
        HostSize(("input_batch_size",), rows="out_slot_mapping_ptr"),
    ),
    grid=("input_batch_size",),
    caller="vllm.v1.spec_decode.utils.eagle_step_update_slot_mapping_and_metadata",
)
