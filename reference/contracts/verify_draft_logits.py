"""verify_draft_logits: from raw logits of target and draft to tokens."""

from dataclasses import replace

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
from verispec.reference.contracts._model import REQUIRED, Clause, Contract, Tensor
from verispec.reference.contracts._request_state import DRAFT_LOGITS, PAPER

CONTRACT = Contract(
    name="verify_draft_logits",
    family="fused",
    summary="Accept drafts while p > u q, else draw from norm(max(p - q, 0)) without summing it.",
    axes={**AXES, "K": "draft steps that a state holds", "W": "vocabulary of the draft"},
    params=(
        *OUTPUTS,
        TARGET,
        replace(DRAFT_LOGITS, doc="the draft's logits before temperature", optional=False, default=REQUIRED),
        *ROWS,
        *SAMPLING,
        Tensor(
            "draft_normaliser",
            ("R", "K"),
            ("float32",),
            "log of the sum of exp(draft logits / temperature), where the drafter hands it over",
            production="float32",
            optional=True,
            default=None,
        ),
    ),
    effect="emitted tokens do not follow the target, its limits or their seed",
    clauses=(
        Clause(
            "VDL-1",
            "A draft is accepted exactly when log p > log u + log q, with q the softmax of draft logits / temperature "
            "and u the acceptance number of the request's seed, the row's position and step; the first rejected draft "
            "ends the request.",
            f"{PAPER}; probabilistic_rejection",
        ),
        Clause(
            "VDL-2",
            f"Where a draft was rejected {CANDIDATES}; the first candidate c with v p(c) < p(c) - q(c) is the token, v "
            "being the uniform number of word 2 of the trial's block.",
            f"von Neumann 1951, rejection sampling of norm(max(p - q, 0)); {PAPER}",
            mistakes=(
                "every candidate of a draw were tested by the number of the first",
                "every candidate of a draw had the number of the first",
                "a candidate were tested by the number that has drawn it",
                *(f"the numbers of candidates returned after {turn}" for turn in (4, 8, 16, 32)),
            ),
        ),
        Clause(
            "VDL-3",
            f"After {TRIALS} candidates the token is drawn from norm(max(p - q, 0)) by inverse CDF, with the number of "
            f"trial {TRIALS}.",
            f"{PAPER}; {INVERSE_CDF}",
        ),
        *sampling_clauses("VDL", 4),
        Clause(
            "VDL-16",
            "With draft_normaliser log q is the draft's logit / temperature less that number, and without it the op "
            "computes the number itself.",
            "contract: the drafter has summed the row already",
        ),
        Clause(
            "VDL-17",
            "Ids that only the target has, past the draft's vocabulary, count neither in p nor in q; a step that "
            "draft_logits does not hold is a padding token's.",
            "vllm 0.27.0: MiMo v2.5 Pro with DFlash; PRJ-6",
        ),
    ),
    law="With drafts from q every emitted token is distributed as p; a draft x is accepted with min(1, p(x) / q(x)).",
)
