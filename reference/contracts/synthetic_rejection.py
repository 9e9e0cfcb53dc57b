"""synthetic_rejection: accept drafts at a prescribed rate, whatever the models say."""

from verispec.reference.contracts._model import FLOATS, INTS, Clause, Contract, Role, Symbol, Tensor
from verispec.reference.contracts._request_state import AXES, REQUESTS, SAMPLED, SEED

_KERNEL = "vllm 0.21.0 vllm.v1.worker.gpu.spec_decode.synthetic_rejection_sampler_utils"
_SYMBOL = "vllm.v1.worker.gpu.spec_decode.synthetic_rejection_sampler_utils._synthetic_rejection_sample_kernel"

CONTRACT = Contract(
    name="synthetic_rejection",
    family="request_state",
    summary="Accept drafts while u is below the step's rate; then the token that the target sampled there.",
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
            "acceptance rate of each step given that the one before was accepted",
            production="float32",
        ),
    ),
    clauses=(
        Clause(
            "SYN-1",
            "A draft is accepted exactly when u < acceptance_rates[step], strictly, with u the acceptance number of "
            "the "
            "request's seed, the row's position and step; NaN rejects.",
            f"{_KERNEL}; vllm#41035",
        ),
        Clause("SYN-2", "The rates are conditional: the step before was accepted.", "vllm#40662"),
        Clause("SYN-3", "The target's token stands at the first rejected position and ends the request.", _KERNEL),
        Clause("SYN-4", "The bonus row's token follows the last draft if and only if all were accepted.", _KERNEL),
        Clause(
            "SYN-5",
            "num_sampled counts the accepted drafts and one more; later positions keep what was there.",
            _KERNEL,
        ),
        Clause("SYN-6", "A placeholder draft, below 0, is rejected and never emitted.", "vllm#46533"),
        Clause(
            "SYN-7",
            "A draft at a step that has no rate is rejected.",
            "contract: no step that was not checked is an index",
        ),
        Clause("SYN-8", "A padding request, state -1, reads no state and writes nothing.", "vllm#47066"),
        Clause("SYN-9", "Strides are honoured.", "contract: tensors, not pointers"),
    ),
    symbols=(Symbol("vllm", _SYMBOL, since="0.19.1", until="0.22.0", rename={"draft_sampled": "input_ids"}),),
    law="The number of accepted drafts exceeds i with probability rates[0] * ... * rates[i].",
)
