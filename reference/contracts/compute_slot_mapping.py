"""compute_slot_mapping: the KV slot of every scheduled token."""

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

_VLLM = "vllm 0.33.0 vllm.v1.worker.block_table.ComputeSlotMappingKernel.kernel"

CONTRACT = Contract(
    name="compute_slot_mapping",
    family="flat",
    summary="Positions and block table to KV slots, for one rank of a context-parallel group; PAD_ID for the tail.",
    axes={"B": "requests", "T": "scheduled tokens", "W": "columns of the block table"},
    params=(
        Scalar("num_tokens", int, "scheduled tokens", axis="T", minimum=0),
        Scalar("max_num_tokens", int, "used entries of the slot mapping, padding included", minimum="T"),
        Tensor(
            "query_start_loc_ptr",
            ("B+1",),
            INTS,
            "first token of each request, and the end of the last one",
            production="int32",
            cumulative=Cumulative("T"),
        ),
        Tensor("positions_ptr", (">=T",), INTS, "position of each token in its request", production="int64"),
        Tensor(
            "block_table_ptr",
            (">=B", "W"),
            INTS,
            "KV block per table column, one row per request",
            production="int32",
        ),
        Scalar("block_table_stride", int, "first stride of the block table, in elements", stride_of="block_table_ptr"),
        Tensor(
            "slot_mapping_ptr", (">=max_num_tokens",), INTS, "KV slot of each token", role=Role.OUT, production="int64"
        ),
        Scalar("KV_CACHE_BLOCK_SIZE", int, "positions per KV block", flag=True, minimum=1),
        Scalar("TOTAL_CP_WORLD_SIZE", int, "ranks of the context-parallel group", flag=True, minimum=1),
        Scalar("TOTAL_CP_RANK", int, "this rank", flag=True, minimum=0),
        Scalar("CP_KV_CACHE_INTERLEAVE_SIZE", int, "consecutive positions on one rank", flag=True, minimum=1),
        Scalar("PAD_ID", int, "slot of a padding token", flag=True),
        Scalar("BLOCK_SIZE", int, "tile of the tokens of a request", flag=True, tuning=True, minimum=1),
    ),
    effect="keys and values go to wrong slots of the KV cache, and later tokens can read wrong ones",
    clauses=(
        Clause(
            "CSM-1",
            "With one rank the slot of a token is block_table[b, position // block] * block + position % block.",
            _VLLM,
            outputs=("slot_mapping_ptr",),
        ),
        Clause(
            "CSM-2",
            "With R ranks a table entry covers R * block positions, dealt to the ranks in runs of the interleave size; "
            "the slot adds the position's index within its rank.",
            _VLLM,
            outputs=("slot_mapping_ptr",),
        ),
        Clause(
            "CSM-3",
            "A token of another rank receives PAD_ID.",
            _VLLM,
            outputs=("slot_mapping_ptr",),
        ),
        Clause(
            "CSM-4",
            "Slots from num_tokens to max_num_tokens - 1 receive PAD_ID.",
            f"{_VLLM}; padding rows of a captured graph",
            harmless="every step asks for a tail, and vLLM 0.32's model runner itself writes -1 to the padded slots "
            "that attention sees",
            outputs=("slot_mapping_ptr",),
        ),
        Clause(
            "CSM-5",
            "Slots below num_tokens that belong to no request, and slots from max_num_tokens, keep their value.",
            _VLLM,
            unreachable="every token belongs to a request, and the buffer has max_num_tokens slots",
        ),
        Clause(
            "CSM-6",
            "Slots past 2^31 are exact.",
            _VLLM,
            unreachable="no KV cache has 2^31 slots yet",
            outputs=("slot_mapping_ptr",),
        ),
        Clause(
            "CSM-7",
            "A request reads its own row of the block table, by the table's row stride; a request without tokens "
            "reads none.",
            _VLLM,
            unreachable="callers pass the whole table, contiguous, and requests with tokens; CSM-1 reads their rows",
            outputs=("slot_mapping_ptr",),
        ),
        Clause(
            "CSM-8",
            "A position below 0 or past the table's last column receives PAD_ID and is never used as an index.",
            "contract: no unchecked number is an index",
            unreachable="the scheduler allocates blocks for every position that it schedules",
            outputs=("slot_mapping_ptr",),
        ),
        Clause(
            "CSM-9",
            "A batch without requests still pads the tail; without tokens and tail it is a no-op.",
            _VLLM,
            unreachable="a step without scheduled tokens maps no slots",
        ),
        Clause(
            "CSM-10",
            "Strides of inner dimensions and of one-dimensional tensors are honoured.",
            "contract: tensors, not pointers",
            unreachable="callers pass tensors whose last dimension is contiguous",
            fault="strides ignored",
        ),
        Clause("CSM-11", "Positions, blocks and slots of int32 and of int64 give the same numbers, in any mix.", _VLLM),
    ),
    symbols=(
        Symbol(
            "vllm",
            "vllm.v1.worker.block_table._compute_slot_mapping_kernel",
            since="0.19.0",
            until="0.29.0",
            rename={"KV_CACHE_BLOCK_SIZE": "block_size"},
        ),
        Symbol("vllm", "vllm.v1.worker.block_table.ComputeSlotMappingKernel.kernel", since="0.29.0"),
    ),
    host_sizes=(
        HostSize(("num_reqs",), rows="query_start_loc_ptr", add=-1),
        HostSize(("num_programs",), rows="query_start_loc_ptr"),
        # Kernel blocks and KV blocks could differ until 0.31; here they are the same.
        HostSize(("block_size", "kv_cache_block_size"), add="KV_CACHE_BLOCK_SIZE"),
        HostSize(("BLOCKS_PER_KV_BLOCK", "blocks_per_kv_block"), add=1),
    ),
    grid=("num_programs",),
    caller="vllm.v1.worker.block_table.BlockTable.compute_slot_mapping",
)
