"""Alterations of calls of apply_top_k_top_p: rows in which a threshold is hard to find."""

from __future__ import annotations

import numpy as np
from altered_calls import Rng, Values, alters


@alters("apply_top_k_top_p")
def ends(rng: Rng, values: Values) -> None:
    """Add limits at their ends to the batch: more tokens than there are, and the whole probability."""
    if values["k"] is not None:
        values["k"][-1] = values["logits"].shape[1] + 3
    if values["p"] is not None:
        values["p"][0] = 1.0


@alters("apply_top_k_top_p")
def no_limits(rng: Rng, values: Values) -> None:
    values["k"] = values["p"] = None


@alters("apply_top_k_top_p")
def inplace(rng: Rng, values: Values) -> None:
    ends(rng, values)


@alters("apply_top_k_top_p", name="ties")
def tied_logits(rng: Rng, values: Values) -> None:
    ends(rng, values)
    values["logits"] = logits = np.round(values["logits"])
    logits[0] = 0.0
    logits[0, ::2] = -0.0


@alters("apply_top_k_top_p")
def grid(rng: Rng, values: Values) -> None:
    ends(rng, values)
    values["logits"] = np.round(values["logits"] * 8) / 8


@alters("apply_top_k_top_p", name="masked")
def masked_rows(rng: Rng, values: Values) -> None:
    ends(rng, values)
    values["logits"][:, values["logits"].shape[1] // 20 :] = -np.inf
    values["logits"][-1] = -np.inf


@alters("apply_top_k_top_p")
def few(rng: Rng, values: Values) -> None:
    """Leave fewer tokens than top-k would keep, and apply top-p to them."""
    ends(rng, values)
    values["logits"][:, 3:] = -np.inf
    values["k"][:] = values["logits"].shape[1] - 1


@alters("apply_top_k_top_p")
def flat(rng: Rng, values: Values) -> None:
    """Leave much probability on both sides of the threshold."""
    values["logits"] *= np.float32(0.1)
    values["p"][:] = np.linspace(0.3, 0.9, len(values["p"]))
    values["k"] = None


@alters("apply_top_k_top_p")
def outliers(rng: Rng, values: Values) -> None:
    ends(rng, values)
    values["logits"][:, ::7] = -1e30
    values["k"][-1] = values["logits"].shape[1] - 1


@alters("apply_top_k_top_p")
def zero_p(rng: Rng, values: Values) -> None:
    """Keep the first token alone, although others have its logit."""
    values["logits"] = np.round(values["logits"])
    values["p"][:] = 0.0
    values["k"] = None


@alters("apply_top_k_top_p")
def unsampled(rng: Rng, values: Values) -> None:
    """Put the threshold into tokens that a guess from 256 runs of 32 tokens does not see."""
    ends(rng, values)
    vocabulary = values["logits"].shape[1]
    starts = np.arange(256) * vocabulary // 256
    is_seen = np.isin(np.arange(vocabulary), starts[:, None] + np.arange(32))
    values["logits"][:, ~is_seen] += np.float32(9.0)


@alters("apply_top_k_top_p", name="nan")
def nan_logits(rng: Rng, values: Values) -> None:
    ends(rng, values)
    values["logits"][:, 1::3] = np.nan
    values["p"][-1] = np.nan


@alters("apply_top_k_top_p")
def peaked(rng: Rng, values: Values) -> None:
    ends(rng, values)
    values["logits"][:, values["logits"].shape[1] // 2] = 60.0


@alters("apply_top_k_top_p")
def extreme(rng: Rng, values: Values) -> None:
    ends(rng, values)
    rows = len(values["logits"])
    values["k"][: rows // 2] = 1
    values["p"][rows // 2 :] = 0.0
    values["k"][0], values["logits"][1, 0] = 0, np.inf


@alters("verify_one_hot", "verify_draft_logits")
def ranked(rng: Rng, values: Values) -> None:
    """Draft the first or second token of rows with both limits: bounds alone decide on few of them."""
    logits, drafts = values["target_logits"], values["draft_sampled"]
    order = np.argsort(-logits, axis=1, kind="stable")
    drafts[1:] = order[np.arange(len(drafts) - 1), rng.integers(0, 2, len(drafts) - 1)]
    states = len(values["temperature"])
    values["temperature"][:] = 1.0
    logits[np.arange(len(logits)), order[:, 0]] = logits[np.arange(len(logits)), order[:, 1]] + np.float32(0.5)
    values["top_k"] = np.full(states, 4, np.int32)
    values["top_p"] = np.resize([0.6, 0.75, 0.9], states).astype(np.float32)
