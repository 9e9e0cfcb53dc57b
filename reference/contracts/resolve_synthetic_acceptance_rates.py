"""resolve_synthetic_acceptance_rates: the acceptance rates of a synthetic-mode configuration."""

from verispec.reference.contracts._model import Clause, Contract, Scalar, Symbol

_VLLM = "vllm 0.33.0 vllm.config.speculative.SpeculativeConfig._resolve_synthetic_acceptance_rates"

CONTRACT = Contract(
    name="resolve_synthetic_acceptance_rates",
    family="shared",
    summary="Return unconditional acceptance rates from a list or from a mean acceptance length, validated.",
    axes={"K": "drafted positions"},
    params=(
        Scalar("n", int, "drafted positions", axis="K", minimum=1),
        Scalar("rates", list, "n unconditional rates, or None", optional=True),
        Scalar("length", float, "mean acceptance length, or None", optional=True),
    ),
    returns="n unconditional rates, list of float",
    effect="synthetic mode accepts drafts at other rates than configured",
    clauses=(
        Clause("RSA-1", "Valid rates are returned unchanged, in a new list.", _VLLM),
        Clause("RSA-2", "A valid length gives the rates of acceptance_length_to_rates.", _VLLM),
        Clause("RSA-3", "Passing both rates and length, or neither, raises ValueError.", _VLLM),
        Clause("RSA-4", "A number of rates other than n raises ValueError.", _VLLM),
        Clause("RSA-5", "A rate outside [0, 1], or NaN, raises ValueError.", _VLLM),
        Clause("RSA-6", "A rate above the one before it raises ValueError.", _VLLM),
        Clause("RSA-7", "A length outside [1, n + 1], or NaN, raises ValueError.", _VLLM),
    ),
    symbols=(
        Symbol("vllm", "vllm.config.speculative.SpeculativeConfig._resolve_synthetic_acceptance_rates", since="0.20.0"),
    ),
)
