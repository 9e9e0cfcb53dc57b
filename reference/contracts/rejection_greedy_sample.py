"""rejection_greedy_sample: verify the draft tokens of greedy requests by the target's argmax."""

from verispec.reference.contracts._model import (
    FLOATS,
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

_VLLM = "vllm 0.33.0 vllm.v1.sample.rejection_sampler.rejection_greedy_sample_kernel"

CONTRACT = Contract(
    name="rejection_greedy_sample",
    family="flat",
    summary=(
        "Accept draft tokens while they equal the target's argmax, emit the argmax, and the bonus token after the last."
    ),
    axes={
        "B": "requests",
        "N": "draft tokens of all requests",
        "K": "maximum number of draft tokens per request",
    },
    params=(
        Tensor(
            "output_token_ids_ptr",
            ("B", "K+1"),
            INTS,
            "emitted tokens, filled with -1 by the caller",
            role=Role.OUT,
            production="int32",
        ),
        Tensor(
            "cu_num_draft_tokens_ptr",
            ("B",),
            INTS,
            "inclusive cumulative sum of draft tokens",
            production="int32",
            cumulative=Cumulative("N", "K"),
        ),
        Tensor("draft_token_ids_ptr", ("N",), INTS, "draft tokens; -1 is a padding token", production="int32"),
        Tensor("target_argmax_ptr", ("N",), INTS, "the target's most likely token", production="int64"),
        Tensor("bonus_token_ids_ptr", ("B", 1), INTS, "the token after the last draft token", production="int32"),
        Tensor(
            "is_greedy_ptr",
            ("B",),
            ("bool",),
            "which requests are greedy; None when all are",
            production="bool",
            optional=True,
        ),
        Scalar("max_spec_len", int, "maximum number of draft tokens per request", axis="K", minimum=0),
        Tensor(
            "uniform_probs_ptr",
            ("N",),
            FLOATS,
            "uniform samples in [0, 1), read in synthetic mode only",
            production="float64",
            optional=True,
            required_if="SYNTHETIC_MODE",
        ),
        Tensor(
            "synthetic_conditional_rates_ptr",
            (">=K",),
            FLOATS,
            "acceptance rate of each position, given that the position before was accepted",
            production="float32",
            optional=True,
            required_if="SYNTHETIC_MODE",
        ),
        Scalar("SYNTHETIC_MODE", bool, "accept by rate instead of by equality", flag=True),
    ),
    effect="a greedy request emits other tokens than the target's own",
    clauses=(
        Clause(
            "RGS-1",
            "While all earlier draft tokens were accepted, a position receives the target's argmax.",
            _VLLM,
            outputs=("output_token_ids_ptr",),
            places=("the last draft of a request",),
        ),
        Clause(
            "RGS-2",
            "The first draft token that differs from the argmax ends the request: its position receives the argmax, "
            "and later positions keep their value.",
            _VLLM,
            outputs=("output_token_ids_ptr",),
            places=("behind the last token of a request",),
        ),
        Clause(
            "RGS-3",
            "The bonus token follows the last draft token if and only if all draft tokens were accepted.",
            _VLLM,
            outputs=("output_token_ids_ptr",),
            places=("at bonus tokens",),
        ),
        Clause(
            "RGS-4",
            "A request without draft tokens receives its bonus token alone, at position 0.",
            _VLLM,
            outputs=("output_token_ids_ptr",),
            places=("in requests without drafts",),
        ),
        Clause(
            "RGS-5",
            "The row of a request that is not greedy keeps its value.",
            _VLLM,
            outputs=("output_token_ids_ptr",),
            places=("where is_greedy_ptr is false",),
        ),
        Clause(
            "RGS-6",
            "When is_greedy is None, every request is greedy.",
            _VLLM,
            outputs=("output_token_ids_ptr",),
        ),
        Clause(
            "RGS-7",
            "A padding token, -1, is rejected like any other mismatch, and the argmax is emitted.",
            "vllm#46533",
            outputs=("output_token_ids_ptr",),
        ),
        Clause(
            "RGS-8",
            "In synthetic mode a draft token is accepted exactly if u < rates[position], whatever the argmax; an "
            "accepted position receives the draft token, a rejected one the argmax.",
            f"{_VLLM}; vllm#41035",
            outputs=("output_token_ids_ptr",),
        ),
        Clause(
            "RGS-9",
            "In synthetic mode a negative draft token is rejected and never emitted.",
            "vllm#46533",
            outputs=("output_token_ids_ptr",),
        ),
        Clause(
            "RGS-10",
            "In synthetic mode u is compared in its own precision, never narrowed.",
            _VLLM,
            rare="a float64 draw within a float32 rounding of a rate comes once in 2^25 at most",
            fault="random numbers narrowed",
            effect="a draft is accepted or rejected wrongly",
        ),
        Clause(
            "RGS-11",
            "In synthetic mode NaN as u or as rate rejects.",
            "IEEE 754 comparison",
            unreachable="rates are validated and torch draws no NaN",
            outputs=("output_token_ids_ptr",),
        ),
        Clause(
            "RGS-12",
            "Row strides are honoured, as are the strides of one-dimensional tensors.",
            "contract: tensors, not pointers",
            unreachable="callers allocate these tensors themselves, contiguous",
            fault="strides ignored",
        ),
        Clause(
            "RGS-13",
            "Without any draft token every greedy request receives its bonus token; an empty batch is a no-op.",
            _VLLM,
        ),
        Clause("RGS-14", "Ids and counts of int32 and of int64 give the same tokens, in any mix.", _VLLM),
    ),
    symbols=(Symbol("vllm", "vllm.v1.sample.rejection_sampler.rejection_greedy_sample_kernel", since="0.18.1"),),
    host_sizes=(HostSize(("batch_size",), rows="cu_num_draft_tokens_ptr"),),
    grid=("batch_size",),
    caller="vllm.v1.sample.rejection_sampler.rejection_sample",
)
