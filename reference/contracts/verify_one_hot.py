"""verify_one_hot: from raw logits to tokens, with drafts that are certain (argmax, prompt lookup)."""

from verispec.reference.contracts._fused import AXES, INVERSE_CDF, OUTPUTS, ROWS, SAMPLING, TARGET, sampling_clauses
from verispec.reference.contracts._model import Clause, Contract
from verispec.reference.contracts._request_state import PAPER

CONTRACT = Contract(
    name="verify_one_hot",
    family="fused",
    summary="Accept a certain draft with its target probability, else draw from the target without it.",
    axes=AXES,
    params=(*OUTPUTS, TARGET, *ROWS, *SAMPLING),
    effect="emitted tokens do not follow the target, its limits or their seed",
    clauses=(
        Clause(
            "VOH-1",
            "A draft is accepted exactly when p > u, with p its probability and u the acceptance number of the "
            "request's seed, the row's position and step; the first rejected draft ends the request.",
            f"{PAPER}, one-hot q; probabilistic_rejection",
        ),
        Clause(
            "VOH-2",
            "Where a draft was rejected the token is drawn from p without that draft: the first other id whose "
            "cumulative mass exceeds the number of trial 0 times the mass of all others.",
            f"{PAPER}, one-hot q; {INVERSE_CDF}",
        ),
        *sampling_clauses("VOH", 3),
    ),
    law="Every emitted token is distributed as p, and a draft x is accepted with probability p(x).",
)
