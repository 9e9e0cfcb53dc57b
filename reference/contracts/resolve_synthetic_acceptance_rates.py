"""resolve_synthetic_acceptance_rates: the acceptance rates that a configuration of synthetic mode asks for."""

from verispec.reference.contracts._model import Clause, Contract, Scalar, Symbol

_VLLM = "vllm 0.33.0 vllm.config.speculative.SpeculativeConfig._resolve_synthetic_acceptance_rates"

CONTRACT = Contract(
    name="resolve_synthetic_acceptance_rates",
    family="shared",
    summary="Unconditional acceptance rates from a list of them or from a mean acceptance length, validated.",
    axes={"K": "drafted positions"},
    params=(
        Scalar("n", int, "drafted positions", axis="K", minimum=1),
        Scalar("rates", list, "n unconditional rates, or None", optional=True),
        Scalar("length", float, "mean acceptance length, or None", optional=True),
    ),
    returns="n unconditional rates, list of float",
    clauses=(
        Clause("RSA-1", "Valid rates are returned as they are, in a list of their own.", _VLLM),
        Clause("RSA-2", "A valid length gives the rates of acceptance_length_to_rates.", _VLLM),
        Clause("RSA-3", "Both of rates and length, or neither, is a ValueError.", _VLLM),
        Clause("RSA-4", "Rates of another number than n are a ValueError.", _VLLM),
        Clause("RSA-5", "A rate outside [0, 1], or NaN, is a ValueError.", _VLLM),
        Clause("RSA-6", "A rate above the one before it is a ValueError.", _VLLM),
        Clause("RSA-7", "A length outside [1, n + 1], or NaN, is a ValueError.", _VLLM),
    ),
    symbols=(
        Symbol("vllm", "vllm.config.speculative.SpeculativeConfig._resolve_synthetic_acceptance_rates", since="0.20.0"),
    ),
)
