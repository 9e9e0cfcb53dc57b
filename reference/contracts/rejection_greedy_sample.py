"""rejection_greedy_sample: verify the drafts of greedy requests by the target's argmax."""

from verispec.reference.contracts._model import FLOATS, INTS, Clause, Contract, Cumulative, Role, Scalar, Symbol, Tensor

_VLLM = "vllm 0.33.0 vllm.v1.sample.rejection_sampler.rejection_greedy_sample_kernel"

CONTRACT = Contract(
    name="rejection_greedy_sample",
    family="flat",
    summary="Accept drafts while they equal the target's argmax, emit the argmax, and the bonus token after the last.",
    axes={
        "B": "requests",
        "N": "draft tokens of all requests",
        "K": "most draft tokens a request",
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
        Tensor("draft_token_ids_ptr", ("N",), INTS, "draft tokens; -1 is a placeholder", production="int32"),
        Tensor("target_argmax_ptr", ("N",), INTS, "the target's most likely token", production="int64"),
        Tensor("bonus_token_ids_ptr", ("B", 1), INTS, "the token after the last draft", production="int32"),
        Tensor(
            "is_greedy_ptr",
            ("B",),
            ("bool",),
            "which requests are greedy; None when all are",
            production="bool",
            optional=True,
        ),
        Scalar("max_spec_len", int, "most draft tokens a request", axis="K", minimum=0),
        Tensor(
            "uniform_probs_ptr",
            ("N",),
            FLOATS,
            "uniform numbers in [0, 1), read in synthetic mode only",
            production="float64",
            optional=True,
            required_if="SYNTHETIC_MODE",
        ),
        Tensor(
            "synthetic_conditional_rates_ptr",
            (">=K",),
            FLOATS,
            "acceptance rate of each position given that the one before was accepted",
            production="float32",
            optional=True,
            required_if="SYNTHETIC_MODE",
        ),
        Scalar("SYNTHETIC_MODE", bool, "accept by rate instead of by equality", flag=True),
    ),
    clauses=(
        Clause("RGS-1", "While all drafts before it were accepted, a position receives the target's argmax.", _VLLM),
        Clause(
            "RGS-2",
            "The first draft that differs from the argmax ends the request: the argmax stands in its place, and "
            "every later position keeps what was there.",
            _VLLM,
        ),
        Clause("RGS-3", "The bonus token follows the last draft if and only if all drafts were accepted.", _VLLM),
        Clause("RGS-4", "A request without drafts receives its bonus token alone, at position 0.", _VLLM),
        Clause("RGS-5", "The row of a request that is not greedy keeps what was there.", _VLLM),
        Clause("RGS-6", "When is_greedy is None, every request is greedy.", _VLLM),
        Clause(
            "RGS-7",
            "A placeholder draft, -1, is rejected like any other mismatch, and the argmax is emitted.",
            "vllm#46533",
        ),
        Clause(
            "RGS-8",
            "In synthetic mode a draft is accepted exactly when u < rates[position], strictly and whatever the "
            "argmax; an accepted position receives the draft, a rejected one the argmax.",
            f"{_VLLM}; vllm#41035",
        ),
        Clause("RGS-9", "In synthetic mode a negative draft is rejected and never emitted.", "vllm#46533"),
        Clause(
            "RGS-10",
            "In synthetic mode u is compared in its own precision, never narrowed.",
            _VLLM,
            unreachable="a float64 draw within a float32 rounding of a rate comes once in 2^25 at most",
        ),
        Clause(
            "RGS-11",
            "In synthetic mode NaN as u or as rate rejects.",
            "IEEE 754 comparison",
            unreachable="rates are validated and torch draws no NaN",
        ),
        Clause(
            "RGS-12",
            "Row strides are honoured, as are the strides of one-dimensional tensors.",
            "contract: tensors, not pointers",
            unreachable="callers allocate these tensors themselves, contiguous",
        ),
        Clause(
            "RGS-13", "No draft tokens at all gives every greedy request its bonus token; no batch is a no-op.", _VLLM
        ),
        Clause("RGS-14", "Ids and counts of int32 and of int64 give the same tokens, in any mix.", _VLLM),
    ),
    symbols=(Symbol("vllm", "vllm.v1.sample.rejection_sampler.rejection_greedy_sample_kernel", since="0.18.1"),),
)
