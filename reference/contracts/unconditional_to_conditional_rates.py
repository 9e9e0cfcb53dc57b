"""unconditional_to_conditional_rates: acceptance rates for a loop that ends at the first rejection."""

from verispec.reference.contracts._model import Clause, Contract, Scalar, Symbol

_VLLM = "vllm 0.33.0 vllm.v1.spec_decode.utils.unconditional_to_conditional_rates"

CONTRACT = Contract(
    name="unconditional_to_conditional_rates",
    family="shared",
    summary="Convert rates that a position and all before it are accepted, to rates given that all before it were.",
    axes={"K": "drafted positions"},
    params=(Scalar("rates", list, "K unconditional rates in [0, 1], never increasing"),),
    returns="K conditional rates, list of float",
    effect="synthetic mode accepts drafts at other rates than configured",
    clauses=(
        Clause("U2C-1", "The first rate is unchanged.", _VLLM),
        Clause("U2C-2", "Every other rate is divided by the rate before it.", f"{_VLLM}; vllm#41035"),
        Clause("U2C-3", "After a rate of 0 every rate is 0.", _VLLM),
        Clause("U2C-4", "The argument is not changed.", "contract", forbids="input changed"),
    ),
    symbols=(Symbol("vllm", "vllm.v1.spec_decode.utils.unconditional_to_conditional_rates", since="0.20.0"),),
)
