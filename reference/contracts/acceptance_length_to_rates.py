"""acceptance_length_to_rates: acceptance rates for a requested mean acceptance length."""

from verispec.reference.contracts._model import Clause, Contract, Scalar, Symbol

_VLLM = "vllm 0.33.0 vllm.config.speculative.SpeculativeConfig._acceptance_length_to_rates"

CONTRACT = Contract(
    name="acceptance_length_to_rates",
    family="shared",
    summary=(
        "Return the unconditional acceptance rates of minimum variance that give a requested mean acceptance length."
    ),
    axes={"K": "drafted positions"},
    params=(
        Scalar(
            "length", float, "mean tokens per step, the bonus or recovered token included, in [1, n + 1]", minimum=1
        ),
        Scalar("n", int, "drafted positions", axis="K", minimum=1),
    ),
    returns="n unconditional rates, list of float",
    effect="synthetic mode accepts drafts at other rates than configured",
    clauses=(
        Clause("ALR-1", "There are n rates, and they sum to length - 1.", _VLLM),
        Clause("ALR-2", "The first floor(length - 1) rates are 1.", _VLLM),
        Clause("ALR-3", "The next rate is the remaining fraction, and all later rates are 0.", _VLLM),
    ),
    symbols=(Symbol("vllm", "vllm.config.speculative.SpeculativeConfig._acceptance_length_to_rates", since="0.20.0"),),
)
