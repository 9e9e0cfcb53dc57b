"""sample_recovered_tokens: sample the replacement of each draft token, for the case that it is rejected."""

from verispec.reference.contracts._model import (
    FLOATS,
    INTS,
    PROBS,
    Clause,
    Contract,
    Cumulative,
    HostSize,
    Role,
    Scalar,
    Symbol,
    Tensor,
)

_PAPER = "Leviathan et al. 2023 (arXiv 2211.17192), algorithm 1"
_VLLM = "vllm 0.33.0 vllm.v1.sample.rejection_sampler.sample_recovered_tokens_kernel"

CONTRACT = Contract(
    name="sample_recovered_tokens",
    family="flat",
    summary="Sample from norm(max(p - q, 0)) at every draft position, by the largest residual over exponential noise.",
    axes={"B": "requests", "N": "draft tokens of all requests", "V": "vocabulary"},
    params=(
        Tensor(
            "output_token_ids_ptr",
            ("N",),
            INTS,
            "recovered tokens",
            role=Role.OUT,
            production="int32",
            column=True,
        ),
        Tensor(
            "cu_num_draft_tokens_ptr",
            ("B",),
            INTS,
            "inclusive cumulative sum of draft tokens",
            production="int32",
            cumulative=Cumulative("N"),
        ),
        Tensor(
            "draft_token_ids_ptr",
            ("N",),
            INTS,
            "draft tokens; -1 is a padding token",
            production="int32",
            column=True,  # vLLM's own tests pass [N, 1]
        ),
        Tensor(
            "draft_probs_ptr",
            ("N", "V"),
            PROBS,
            "q: the draft's probabilities; None with NO_DRAFT_PROBS",
            production="float32",
            optional=True,
            required_if="not NO_DRAFT_PROBS",
        ),
        Tensor("target_probs_ptr", ("N", "V"), PROBS, "p: the target's probabilities", production="float32"),
        Tensor(
            "inv_q_ptr",
            ("B", "V"),
            FLOATS,
            "reciprocal of exponential noise, one row per request",
            production="float32",
        ),
        Scalar("vocab_size", int, "size of the vocabulary", axis="V", minimum=1),
        Scalar("BLOCK_SIZE", int, "tile of the vocabulary", flag=True, tuning=True, minimum=1),
        Scalar("NO_DRAFT_PROBS", bool, "the draft is one-hot at the draft token", flag=True),
        Scalar("USE_FP64_GUMBEL", bool, "the noise is float64", flag=True),
    ),
    effect="the token after a rejected draft does not follow the target's distribution",
    clauses=(
        Clause(
            "SRT-1",
            "The token is the argmax over the vocabulary of max(p - q, 0) * inv_q, where p - q is a float32 "
            "difference and the product has the precision of inv_q.",
            f"{_PAPER}; exponential race; {_VLLM}",
            outputs=("output_token_ids_ptr",),
        ),
        Clause(
            "SRT-2",
            "Without draft probabilities the score is p * inv_q, with the draft token left out.",
            f"{_PAPER}, one-hot q; {_VLLM}",
            outputs=("output_token_ids_ptr",),
        ),
        Clause(
            "SRT-3",
            "Of equal scores the lowest id wins.",
            _VLLM,
            outputs=("output_token_ids_ptr",),
        ),
        Clause(
            "SRT-4",
            "All positions of a request share one row of noise, row b for request b.",
            _VLLM,
            outputs=("output_token_ids_ptr",),
            mistakes=("the first draft of a request had the noise of the request before it",),
        ),
        Clause(
            "SRT-5",
            "The token is at least 0 and below vocab_size, for every vocab_size and all contents of the rows; every "
            "such id can be the token.",
            "vllm#44744",
            outputs=("output_token_ids_ptr",),
        ),
        Clause(
            "SRT-6",
            "Noise of float64 is never narrowed.",
            "vllm#54843",
            rare="float64 noise is off by default, and narrowing changes a token only in a near-tie or in the far "
            "tail, about once in 2^24",
            fault="random numbers narrowed",
            effect="another token is drawn than float64 noise gives",
        ),
        Clause(
            "SRT-7",
            "Without draft probabilities a draft token outside the vocabulary, such as -1, excludes nothing and is "
            "never used as an index.",
            f"vllm#46533; {_VLLM}",
            outputs=("output_token_ids_ptr",),
            places=("where draft_token_ids_ptr is -1",),
        ),
        Clause(
            "SRT-8",
            "An entry whose p or q is NaN never wins over a finite positive score, at any position.",
            "vllm#41834",
            unreachable="probabilities come from a softmax of finite logits",
            outputs=("output_token_ids_ptr",),
            places=("in rows with NaN in",),
        ),
        Clause(
            "SRT-9",
            "If no residual is positive, the token is the argmax of p * inv_q over the whole vocabulary, and 0 if no "
            "p is positive: rounding must not produce a token of probability 0.",
            "vllm#41834; sglang#22643",
            rare="p <= q everywhere and a rejection in one row is a matter of float32 rounding",
            effect="a token of probability 0 can be emitted",
            outputs=("output_token_ids_ptr",),
        ),
        Clause("SRT-10", "A request without draft tokens writes nothing; an empty batch is a no-op.", _VLLM),
        Clause(
            "SRT-11",
            "Row strides of probabilities and noise are honoured.",
            "contract: tensors, not pointers",
            unreachable="callers assert that probabilities are contiguous and allocate the noise",
            fault="strides ignored",
        ),
        Clause(
            "SRT-12",
            "Strides of inner dimensions and of one-dimensional tensors are honoured.",
            "contract: tensors, not pointers",
            unreachable="callers assert that probabilities are contiguous and allocate the noise",
            fault="strides ignored",
        ),
        Clause("SRT-13", "Rows past 2^31 elements are read correctly: offsets have 64 bits.", "vllm#47383"),
        Clause("SRT-14", "Ids and counts of int32 and of int64 give the same tokens, in any mix.", _VLLM),
        Clause(
            "SRT-15",
            "Probabilities of bfloat16 and float16 are widened to float32 before the difference.",
            "contract: no rounding beyond the input's",
            unreachable="callers compute probabilities in float32",
        ),
        Clause(
            "SRT-16",
            "Elements of the output past the last count keep their value.",
            _VLLM,
            unreachable="callers allocate an element per draft token",
        ),
    ),
    symbols=(Symbol("vllm", "vllm.v1.sample.rejection_sampler.sample_recovered_tokens_kernel", since="0.18.1"),),
    law="With inv_q the reciprocal of unit exponential noise the token follows norm(max(p - q, 0)).",
    host_sizes=(
        HostSize(("batch_size",), rows="cu_num_draft_tokens_ptr"),
        HostSize(("max_spec_len",), longest="cu_num_draft_tokens_ptr"),
    ),
    grid=("batch_size", "max_spec_len"),
    caller="vllm.v1.sample.rejection_sampler.sample_recovered_tokens",
)
