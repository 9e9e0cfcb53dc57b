"""flatten_sampled: concatenate the ragged rows of sampled tokens, in the order of the target's rows."""

from dataclasses import replace

from verispec.reference.contracts._model import INTS, Clause, Contract, HostSize, Role, Symbol, Tensor
from verispec.reference.contracts._request_state import AXES, CU_NUM_LOGITS, SAMPLED

_SYMBOL = "vllm.v1.worker.gpu.spec_decode.rejection_sampler._flatten_sampled_kernel"

CONTRACT = Contract(
    name="flatten_sampled",
    family="request_state",
    summary="Copy the valid tokens of each request to its target rows.",
    axes={name: AXES[name] for name in ("B", "L", "S")},
    params=(
        Tensor("flat_sampled", ("L",), INTS, "one token per target row", role=Role.OUT, production="int64"),
        replace(SAMPLED, role=Role.IN),
        Tensor("num_sampled", ("B",), INTS, "emitted tokens", production="int32"),
        CU_NUM_LOGITS,
    ),
    effect="log-probabilities belong to other tokens than the emitted ones",
    clauses=(
        Clause(
            "FLS-1",
            "Row cu_num_logits[b] + i receives sampled[b, i], for i below num_sampled[b].",
            f"vllm 0.33.0 {_SYMBOL}",
            mistakes=("the tokens of all requests stood side by side",),
        ),
        Clause(
            "FLS-2",
            "Rows past num_sampled are neither read nor written. A request without tokens has no row written, and the "
            "requests behind it have all of theirs.",
            f"vllm 0.33.0 {_SYMBOL}",
            mistakes=("requests behind one without tokens were left out",),
        ),
        Clause(
            "FLS-3",
            "A request never writes beyond its own rows, nor reads beyond the columns of sampled.",
            "contract: no unchecked number is an index",
        ),
        Clause("FLS-4", "Strides are honoured; an empty batch is a no-op.", "contract: tensors, not pointers"),
        Clause(
            "FLS-5", "Ids and counts of int32 and of int64 give the same tokens, in any mix.", f"vllm 0.33.0 {_SYMBOL}"
        ),
    ),
    symbols=(Symbol("vllm", _SYMBOL, since="0.20.0"),),
    host_sizes=(HostSize(("batch_size",), rows="num_sampled"),),
    grid=("batch_size",),
)
