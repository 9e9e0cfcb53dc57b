"""The table of request parameters, verification methods and drafters: which cases check a cell, or why none does."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from verispec.cases import CaseId

DRAFTERS = ("none", "ngram", "suffix", "draft_model", "draft_model argmax", "draft_model parallel", "eagle3", "mtp")
METHODS = ("standard", "block", "synthetic")

ALL = "ids, bias and penalties", "everything"
CHECKED: dict[str, dict[str, tuple[str, ...]]] = {
    "max_tokens": {"GEN-10": ()},
    "temperature": {"GEN-5": (), "GEN-23": ("temperature",), "GEN-25": (), "GEN-26": (), "GEN-27": (), "GEN-28": ()},
    "top_k": {"GEN-23": ("top-k",), "GEN-26": ("everything",)},
    "top_p": {"GEN-23": ("top-p",), "GEN-26": ("everything",)},
    "min_p": {"GEN-23": ("min-p",), "GEN-26": ("min-p and top-p",)},
    "seed": {"GEN-12": (), "GEN-17": (), "GEN-27": ()},
    "stop_token_ids": {"GEN-10": (), "GEN-20": ("min tokens",), "GEN-26": ("min tokens",)},
    "ignore_eos": {"GEN-10": (), "GEN-20": ("min tokens",), "GEN-26": ("min tokens",)},
    "min_tokens": {"GEN-20": ("min tokens",), "GEN-26": ("min tokens",)},
    "repetition_penalty": {"GEN-22": ("repetition*", "penalties"), "GEN-26": ("penalties and limits",)},
    "presence_penalty": {"GEN-22": ("*presence penalty", "penalties"), "GEN-26": ("penalties and limits",)},
    "frequency_penalty": {"GEN-22": ("frequency penalty", "penalties"), "GEN-26": ("penalties and limits",)},
    "bad_words": {"GEN-19": ("bad words*",), "GEN-24": ("everything",), "GEN-26": ("everything",)},
    "allowed_token_ids": {"GEN-18": ("allowed ids",), "GEN-24": ALL, "GEN-26": ("everything",)},
    "logit_bias": {"GEN-21": ("logit bias",), "GEN-24": ALL, "GEN-26": ("everything",)},
    "grammar": {"GEN-39": ("grammar*",)},
    "logprobs": {"GEN-29": (), "GEN-30": ()},
    "prompt_logprobs": {"GEN-31": ()},
    "stop": {"GEN-32": ()},
    "n": {"GEN-33": ()},
    "abort_after": {"GEN-34": ()},
    "lora_adapter": {"GEN-43": ()},
}
"""By field of `GenerationRequest`: clauses, and the values of `parameter` that use the field; () is any value."""

NO_PARAMETER = ("prompt_token_ids",)
"""Fields of every request."""

REASONS: tuple[tuple[str, str, str, str], ...] = (
    ("*", "none", "block", "without drafts nothing is verified"),
    ("*", "none", "synthetic", "without drafts nothing is verified"),
    ("seed", "*", "block", "GEN-25 gives every request a seed; block verification has no case of one text twice"),
    ("*", "eagle3", "block", "the head's fixture has 2,048 tokens, so that no sequence of texts can be enumerated"),
    (
        "*",
        "*",
        "synthetic",
        "synthetic acceptance does not read the rows that parameters change; GEN-16 has the tokens that do",
    ),
    ("*", "suffix", "*", "drafts without probabilities, verified as those of n-grams are"),
    ("*", "draft_model parallel", "*", "drafts with probabilities, verified as those of chains are"),
    ("*", "mtp", "*", "drafts with probabilities, verified as those of an Eagle3 head are"),
    ("max_tokens", "*", "*", "the length of a text does not depend on how its drafts are verified or drawn"),
    ("stop*", "*", "block", "the text decides where it ends, however its drafts are verified"),
    ("*logprobs", "*", "block", "log-probabilities are gathered from the target's rows after verification"),
    ("grammar", "*", "block", "a grammar masks rows as allowed ids do, which GEN-26 has with everything"),
    ("n", "*", "block", "samples are requests of their own once they are admitted"),
    ("n", "eagle3", "standard", "sequences over 2,048 tokens cannot be enumerated"),
    ("abort_after", "*", "block", "the scheduler aborts between steps"),
    ("lora_adapter", "*", "block", "an adapter changes the target's rows, however they are verified"),
    (
        "*",
        "draft_model argmax",
        "standard",
        "greedy requests have argmax drafts with `draft_model`, sampled ones below",
    ),
)
"""Patterns of field, drafter and method with the reason why no case has them; the first that fits counts."""


@dataclass(frozen=True)
class Cell:
    """One combination of a field of `GenerationRequest`, a drafter and a verification method."""

    field: str
    drafter: str
    method: str


def cells() -> list[Cell]:
    """Return every cell of the table."""
    return [Cell(field, drafter, method) for field in CHECKED for drafter in DRAFTERS for method in METHODS]


def checked_by(case: CaseId) -> set[Cell]:
    """Return the cells that `case` checks."""
    params = dict(case.params)
    drafter, method = params.get("draft", "").partition(" k=")[0], params.get("method", "standard")
    method = {"GEN-26": "block", "GEN-27": "synthetic", "GEN-28": "synthetic"}.get(case.clause, method)
    return {
        Cell(field, drafter, method)
        for field, clauses in CHECKED.items()
        if case.clause in clauses and _uses(params.get("parameter", ""), clauses[case.clause])
    }


def _uses(parameter: str, patterns: tuple[str, ...]) -> bool:
    return not patterns or any(fnmatchcase(parameter, pattern) for pattern in patterns)


def reason_of(cell: Cell) -> str:
    """Return why no case has `cell`; empty without a reason."""
    for field, drafter, method, reason in REASONS:
        if all(map(fnmatchcase, (cell.field, cell.drafter, cell.method), (field, drafter, method))):
            return reason
    return ""
