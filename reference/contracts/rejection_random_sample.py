"""rejection_random_sample: verify draft tokens of sampled requests by the ratio of target to draft probability."""

from verispec.reference.contracts._model import (
    FLOATS,
    INTS,
    PROBS,
    Clause,
    Contract,
    Cumulative,
    HostSize,
    Origin,
    Role,
    Scalar,
    Symbol,
    Tensor,
)

_PAPER = "Leviathan et al. 2023 (arXiv 2211.17192), algorithm 1"
_VLLM = "vllm 0.33.0 vllm.v1.sample.rejection_sampler.rejection_random_sample_kernel"

CONTRACT = Contract(
    name="rejection_random_sample",
    family="flat",
    summary=(
        "Accept draft tokens while p/q >= u, else emit the recovered token and stop; the bonus token after the last."
    ),
    axes={
        "B": "requests",
        "N": "draft tokens of all requests",
        "K": "maximum number of draft tokens per request",
        "V": "vocabulary",
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
        Tensor("bonus_token_ids_ptr", ("B", 1), INTS, "the token after the last draft token", production="int32"),
        Tensor("recovered_token_ids_ptr", ("N",), INTS, "replacement of a rejected draft token", production="int32"),
        Tensor("uniform_probs_ptr", ("N",), FLOATS, "u: uniform samples in [0, 1)", production="float64"),
        Tensor("is_greedy_ptr", ("B",), ("bool",), "which requests are greedy", production="bool"),
        Scalar("max_spec_len", int, "maximum number of draft tokens per request", axis="K", minimum=0),
        Scalar("vocab_size", int, "size of the vocabulary", axis="V", minimum=1),
        Tensor(
            "synthetic_conditional_rates_ptr",
            (">=K",),
            FLOATS,
            "acceptance rate of each position, given that the position before was accepted",
            production="float32",
            optional=True,
            required_if="SYNTHETIC_MODE",
        ),
        Scalar("NO_DRAFT_PROBS", bool, "q is one at every draft token", flag=True),
        Scalar("SYNTHETIC_MODE", bool, "accept by rate instead of by ratio", flag=True),
    ),
    effect="drafts are accepted wrongly, or sampled text does not follow the target",
    clauses=(
        Clause(
            "RRS-1",
            "A draft token is accepted exactly if q > 0 and p/q >= u, equality included, with p and q of its own "
            "row; the quotient is rounded to float32 at most.",
            f"{_PAPER}; {_VLLM}",
            outputs=("output_token_ids_ptr",),
        ),
        Clause(
            "RRS-2",
            "Without draft probabilities q is 1 at the draft token.",
            f"{_PAPER}, one-hot q; {_VLLM}",
            outputs=("output_token_ids_ptr",),
        ),
        Clause(
            "RRS-3",
            "The first rejected position receives its recovered token and ends the request; later positions keep "
            "their value.",
            _PAPER,
            outputs=("output_token_ids_ptr",),
            places=("behind the last token of a request",),
        ),
        Clause(
            "RRS-4",
            "The bonus token follows the last draft token if and only if all draft tokens were accepted.",
            _PAPER,
            outputs=("output_token_ids_ptr",),
            places=("at bonus tokens",),
        ),
        Clause(
            "RRS-5",
            "A request without draft tokens receives its bonus token alone, at position 0.",
            _VLLM,
            outputs=("output_token_ids_ptr",),
            places=("in requests without drafts",),
        ),
        Clause(
            "RRS-6",
            "The row of a greedy request keeps its value.",
            _VLLM,
            outputs=("output_token_ids_ptr",),
            places=("where is_greedy_ptr is true",),
        ),
        Clause(
            "RRS-7",
            "A negative draft token is rejected in every mode and is never used as an index.",
            "vllm#46533; the scheduler pads drafts with -1",
            origin=Origin(
                "vllm.v1.core.sched.scheduler.Scheduler.schedule", "scheduled_spec_decode_tokens[request_id] = ["
            ),
            upstream={"vllm": "vllm#46533 guards the Triton kernel; the CPU kernel has no such guard"},
            effect="a request loses a token, or emits a wrong one",
            outputs=("output_token_ids_ptr",),
            places=("in requests with -1 in draft_token_ids_ptr",),
        ),
        Clause(
            "RRS-8",
            "A draft token of vocab_size or above is rejected in every mode and is never used as an index.",
            "contract: no unchecked id is an index",
            unreachable="drafters share the target's vocabulary, or map their own into it",
            outputs=("output_token_ids_ptr",),
        ),
        Clause(
            "RRS-9",
            "A draft token with q = 0 is rejected, even at u = 0.",
            _VLLM,
            unreachable="a drafter never samples a token of probability 0",
            outputs=("output_token_ids_ptr",),
        ),
        Clause(
            "RRS-10",
            "NaN as p, q or u rejects.",
            "IEEE 754 comparison",
            unreachable="probabilities come from a softmax of finite logits; torch draws no NaN",
            outputs=("output_token_ids_ptr",),
        ),
        Clause(
            "RRS-11",
            "u is compared in its own precision, never narrowed.",
            _VLLM,
            rare="a float64 draw within a float32 rounding of p/q comes once in 2^25 at most",
            fault="random numbers narrowed",
            effect="a draft is accepted or rejected wrongly",
        ),
        Clause(
            "RRS-12",
            "In synthetic mode a draft token is accepted exactly if u < rates[position], whatever its probabilities; "
            "NaN rejects.",
            f"{_VLLM}; vllm#41035",
            outputs=("output_token_ids_ptr",),
            mistakes=("every draft had the first rate", "a rate of NaN accepted"),
        ),
        Clause(
            "RRS-13",
            "Row strides of output and probabilities are honoured.",
            "contract: tensors, not pointers",
            unreachable="callers allocate the output and assert that probabilities are contiguous",
            fault="strides ignored",
        ),
        Clause(
            "RRS-14",
            "Strides of inner dimensions and of one-dimensional tensors are honoured.",
            "contract: tensors, not pointers",
            unreachable="callers assert that probabilities are contiguous",
            fault="strides ignored",
        ),
        Clause(
            "RRS-15",
            "Rows past 2^31 elements of the probabilities are read correctly: offsets have 64 bits.",
            "vllm#47383",
        ),
        Clause(
            "RRS-16",
            "Without any draft token every sampled request receives its bonus token; an empty batch is a no-op.",
            _VLLM,
        ),
        Clause("RRS-17", "Ids and counts of int32 and of int64 give the same tokens, in any mix.", _VLLM),
        Clause(
            "RRS-18",
            "Probabilities of bfloat16 and float16 are widened before the division.",
            "contract: no rounding beyond the input's",
            unreachable="callers compute probabilities in float32",
        ),
    ),
    symbols=(Symbol("vllm", "vllm.v1.sample.rejection_sampler.rejection_random_sample_kernel", since="0.18.1"),),
    law="With recovered tokens from norm(max(p - q, 0)) every emitted token is distributed as the target's p.",
    host_sizes=(HostSize(("batch_size",), rows="cu_num_draft_tokens_ptr"),),
    grid=("batch_size",),
    caller="vllm.v1.sample.rejection_sampler.rejection_sample",
)
