"""verify_one_hot: from raw logits to tokens, with drafts that are certain (argmax, prompt lookup)."""

from verispec.reference.contracts._fused import (
    AXES,
    CANDIDATES,
    INVERSE_CDF,
    OUTPUTS,
    ROWS,
    SAMPLING,
    TARGET,
    TRIALS,
    sampling_clauses,
)
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
            f"Where a draft was rejected the token is drawn from p without that draft: {CANDIDATES}, without the "
            f"draft. The first candidate that the limits keep is the token; after {TRIALS} it is drawn from p without "
            f"the draft, with the number of trial {TRIALS}.",
            f"{PAPER}, one-hot q; {INVERSE_CDF}",
            mistakes=(
                "the rejected draft could be drawn",
                "the mass before the drawn token still counted that of the rejected draft",
                "the whole mass of the draw still counted that of the rejected draft",
            ),
        ),
        *sampling_clauses("VOH", 3),
    ),
    law="Every emitted token is distributed as p, and a draft x is accepted with probability p(x).",
)
