"""synthetic_rejection: accept draft tokens at a prescribed rate, whatever the models compute."""

from verispec.reference.contracts._model import FLOATS, INTS, Clause, Contract, HostSize, Role, Symbol, Tensor
from verispec.reference.contracts._request_state import AXES, REQUESTS, SAMPLED, SEED

_KERNEL = "vllm 0.21.0 vllm.v1.worker.gpu.spec_decode.synthetic_rejection_sampler_utils"
_SYMBOL = "vllm.v1.worker.gpu.spec_decode.synthetic_rejection_sampler_utils._synthetic_rejection_sample_kernel"

CONTRACT = Contract(
    name="synthetic_rejection",
    family="request_state",
    summary="Accept draft tokens while u is below the step's rate; then emit the token that the target sampled there.",
    axes={name: AXES[name] for name in ("B", "L", "R", "K", "S")},
    params=(
        SAMPLED,
        Tensor("num_sampled", ("B",), INTS, "emitted tokens", role=Role.OUT, production="int32"),
        Tensor("target_sampled", ("L",), INTS, "token sampled from each target row", production="int64"),
        *REQUESTS,
        SEED,
        Tensor(
            "acceptance_rates",
            ("K",),
            FLOATS,
            "acceptance rate of each step, given that the step before was accepted",
            production="float32",
        ),
    ),
    effect="synthetic mode accepts other drafts, or emits other tokens, than its rates give",
    clauses=(
        Clause(
            "SYN-1",
            "A draft token is accepted exactly if u < acceptance_rates[step], with u the acceptance sample of the "
            "request's seed, position and step; NaN rejects.",
            f"{_KERNEL}; vllm#41035",
            outputs=("sampled",),
            mistakes=(
                "a request with fewer drafts had the last rates",
                "every draft had the first rate",
                "a rate of NaN accepted",
            ),
        ),
        Clause("SYN-2", "The rates are conditional: given that the step before was accepted.", "vllm#40662"),
        Clause("SYN-3", "The first rejected position receives the target's token and ends the request.", _KERNEL),
        Clause(
            "SYN-4", "The bonus row's token follows the last draft token if and only if all were accepted.", _KERNEL
        ),
        Clause(
            "SYN-5",
            "num_sampled is the number of accepted draft tokens plus one; later positions keep their value.",
            _KERNEL,
            forbids="overwritten",
            outputs=("num_sampled",),
        ),
        Clause("SYN-6", "A padding token, below 0, is rejected and never emitted.", "vllm#46533"),
        Clause(
            "SYN-7",
            "A draft token at a step without a rate is rejected.",
            "contract: no unchecked step is an index",
            mistakes=("a step without a rate had the last rate",),
        ),
        Clause("SYN-8", "A padding request, state -1, reads no state and writes nothing.", "vllm#47066"),
        Clause("SYN-9", "Strides are honoured.", "contract: tensors, not pointers", fault="strides ignored"),
    ),
    symbols=(Symbol("vllm", _SYMBOL, since="0.19.1", until="0.22.0", rename={"draft_sampled": "input_ids"}),),
    law="The number of accepted draft tokens exceeds i with probability rates[0] * ... * rates[i].",
    host_sizes=(HostSize(("batch_size",), rows="num_sampled"),),
    grid=("batch_size",),
)
