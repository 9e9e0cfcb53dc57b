"""Parts shared by the contracts of the fused family: parameters, the draw by inverse CDF, and sources.

A fused op goes from raw logits to tokens in one call. Rows, requests and states are those of the
slot-indexed family (`_request_state`), but the target's logits carry neither temperature nor limits: the op divides by
the temperature and applies top-k and top-p itself. An op of this family stores nothing of size V.

A token is drawn by inverse CDF: the first id, in id order, whose cumulative probability exceeds a uniform number. One
draw needs two random words, however large the vocabulary is. The number of trial t is

    u = (w0 * 2^20 + w1 // 2^12 + 1/2) * 2^-52        words 0 and 1 of block t of draw 3 (`philox`)

at the row's seed, position and step. The acceptance number is that of `probabilistic_rejection`, so that both families
accept the same drafts.

Candidates come from a pool: all tokens of the row, or with top-k those that the limits keep. A candidate that top-p
drops is refused, and the next trial draws another one. So top-p alone needs no exact limit in most rows: whether it
keeps one token is known from the mass before that token.
"""

from dataclasses import replace

from verispec.reference.contracts._model import INTS, Clause, Role, Tensor
from verispec.reference.contracts._request_state import (
    CU_NUM_LOGITS,
    DRAFT_SAMPLED,
    DRAW,
    IDX_MAPPING,
    PAPER,
    POS,
    SAMPLED,
    TARGET_LOGITS,
)

AXES = {
    "B": "requests of the batch, padding included",
    "L": "target rows: for each request one per draft and the bonus row, and padding",
    "R": "request states",
    "S": "columns of the sampled tokens: at least most drafts of a request plus one",
    "V": "vocabulary of the target",
}

TRIALS = 64
"""Candidates of a draw before the token is drawn from the kept tokens, or from the residual, alone."""

INVERSE_CDF = "inverse transform sampling; philox draw 3"
CANDIDATES = (
    "candidates are drawn from a pool by inverse CDF with the numbers of trials 0, 1, 2 and so on. The pool is all "
    "tokens, or with top-k those that the limits keep"
)


MISTAKEN_LIMITS = (
    "all tokens that tie with the last one of top-k were kept",
    "all tokens that tie with the last one of top-p were kept",
    "p were divided by the mass of all tokens that top-k keeps, whatever top-p keeps of them",
    "a draft that top-k drops were kept where it ties with the last token",
    "a draft that top-p drops were kept where it ties with the last token",
    *(f"of the tokens that top-k keeps the first {lanes} alone counted in their mass" for lanes in (32, 64, 128, 256)),
    "the temperature were 1",
    "a temperature below 0.01 counted as 0.01",
    "top_k did not count",
    "top_p did not count",
)
"""Listed mistakes with the temperature and with the tokens that limits keep."""


def _count(name: str, doc: str) -> Tensor:
    return Tensor(name, ("B",), INTS, doc, role=Role.OUT, production="int32")


OUTPUTS = (
    replace(SAMPLED, doc="emitted tokens, then -1"),
    _count("num_sampled", "emitted tokens"),
    _count("num_rejected", "drafts after the last accepted one"),
    _count("next_token", "the last emitted token, which the drafter continues from"),
    replace(_count("next_row", "the target row that the last token was drawn from"), indexes="L"),
)
"""Tokens, counts and the state that a drafter needs to continue."""

TARGET = replace(TARGET_LOGITS, doc="the target's logits before temperature", also=("bfloat16",))
ROWS = (DRAFT_SAMPLED, CU_NUM_LOGITS, IDX_MAPPING)
SAMPLING = (
    POS,
    *DRAW,
    Tensor(
        "top_k",
        ("R",),
        INTS,
        "tokens to keep; None, below 1 or at least V keep all",
        production="int32",
        optional=True,
        default=None,
    ),
    Tensor(
        "top_p",
        ("R",),
        ("float32",),
        "probability to keep; None, 1 and above keep all",
        production="float32",
        optional=True,
        default=None,
    ),
)


def sampling_clauses(prefix: str, start: int) -> tuple[Clause, ...]:
    """Return the clauses that both sampled ops share, numbered from `start`."""
    texts: tuple[tuple[str, ...], ...] = (
        (
            (
                f"Where all drafts were accepted the token is drawn from p of the bonus row: {CANDIDATES}. The first "
                f"candidate that the limits keep is the token; after {TRIALS} it is drawn from p, with the number of "
                f"trial {TRIALS}. Every id with a probability can be the token, the last too."
            ),
            f"{PAPER}; {INVERSE_CDF}",
        ),
        (
            (
                "p is the softmax of logits / temperature over the tokens that top-k and then top-p keep (TKP-1 "
                "to TKP-5, "
                "TKP-9); all other tokens have probability 0."
            ),
            "Holtzman et al. 2020 (arXiv 1904.09751); apply_top_k_top_p",
        ),
        (
            (
                "At temperature 0 a draft is accepted while it is the argmax, of equal maxima the lowest id, "
                "and the token "
                "is the argmax."
            ),
            "verify_greedy",
        ),
        (
            (
                "A padding token, any id below 0 or outside the vocabulary, is rejected and never indexes; "
                "the token is "
                "then drawn from p."
            ),
            "RSR-4; vllm#46533",
        ),
        (
            (
                "Emitted tokens stand in the first columns and -1 in all others; num_sampled is num_accepted "
                "plus 1 and "
                "num_rejected the drafts less num_accepted."
            ),
            "contract: nothing is left for another kernel to fill",
            "num_sampled",
            "num_rejected",
        ),
        (
            "next_token is the last emitted token and next_row the row that it was drawn from.",
            "eagle_prepare_next_token_padded; eagle_prepare_inputs_padded",
            "next_token",
            "next_row",
        ),
        (
            "If the residual has no mass, by rounding or by NaN in the draft's row, the token is drawn from p.",
            "vllm#41834; sglang#22643",
        ),
        (
            (
                "NaN counts as minus infinity, positive infinity shares the whole probability, and a row without any "
                "probability rejects and gives token 0."
            ),
            "vllm 0.32.0 test_all_nan_target_logits_in_range; TKP-13",
        ),
        (
            (
                "Weights are computed in float32 or better and summed in float64 or by blocks: results are "
                "right that the "
                "float64 rule gives when every number moves by at most 2^-20 plus the rounding of a float32 softmax."
            ),
            "contract: rounding of float32 exponentials and their sums",
        ),
        ("A padding request, state -1, reads no state and writes nothing.", "vllm#47066"),
        ("Strides are honoured and rows past 2^31 elements are found.", "vllm#47383"),
        (
            (
                "A request's tokens depend on its own rows, state and numbers alone: not on its neighbours, on "
                "its place "
                "in the batch, on the number of threads or on the instruction set."
            ),
            "contract: requests are independent",
        ),
    )
    return tuple(
        Clause(
            f"{prefix}-{n}",
            text,
            source,
            outputs=tuple(outputs),
            mistakes=MISTAKEN_LIMITS if text.startswith("p is the softmax") else (),
        )
        for n, (text, source, *outputs) in enumerate(texts, start)
    )
