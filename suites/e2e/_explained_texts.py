"""Wrong texts by the mistake that gives all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from verispec.judge import Mismatch
from verispec.run.record import ALTERNATIVELY, FAULT
from verispec.suites.e2e._reference_model import ReferenceModel, Text

ENOUGH = 5
"""Wrong tokens from which on a mistake that gives all of them is named."""
Mistakes = Mapping[str, Callable[[], Sequence[ReferenceModel]]]
"""Models by the mistake that they make, in words, to follow "as if"."""


def explained_texts(
    mismatch: Mismatch,
    right: ReferenceModel,
    mistakes: Mistakes,
    texts: Sequence[Text],
    where: str = "",
    logprobs: Mapping[Text, Sequence[float]] | None = None,
) -> Mismatch:
    """Return the mismatch with the mistake, or one of two, that gives all tokens of greedy texts.

    Name nothing if fewer than `ENOUGH` tokens are wrong, or if more than two mistakes give all of them.

    Args:
        mismatch: failure by the right model.
        right: model without a mistake.
        mistakes: models by their mistakes.
        texts: prompts and emitted tokens.
        where: words before "all tokens are as if".
        logprobs: raw log-probabilities of the tokens by text, where they are known; a mistake has to give these too.
    """
    if sum(wrong_tokens(right, *text) for text in texts) < ENOUGH:
        return mismatch
    fitting = [
        told
        for told, models in mistakes.items()
        if any(all(_gives(each, text, (logprobs or {}).get(text, ())) for text in texts) for each in models())
    ]
    if not 0 < len(fitting) <= 2:
        return mismatch
    told, failure = ALTERNATIVELY.join(fitting), mismatch.failure
    message = f"{failure.message}; {where}all tokens are as if {told}"
    return Mismatch(replace(failure, message=message, details={**failure.details, FAULT: told}))


def _gives(model: ReferenceModel, text: Text, logprobs: Sequence[float]) -> bool:
    """Return True if all tokens of a text are the model's, and the log-probabilities within rounding of its own."""
    if wrong_tokens(model, *text):
        return False
    rows = model.logits(*text)
    own = rows[np.arange(len(rows)), list(text[1])] - np.logaddexp.reduce(rows, axis=1)
    return not logprobs or bool(np.all(np.abs(own - logprobs) <= 2 * model.rounding(*text)))


def wrong_tokens(model: ReferenceModel, prompt: tuple[int, ...], tokens: tuple[int, ...]) -> int:
    """Return how many tokens of a text are not the model's most likely ones, nor within rounding of them."""
    rows = model.logits(prompt, tokens)
    behind = rows.max(axis=1) - rows[np.arange(len(tokens)), list(tokens)]
    return int((behind > model.rounding(prompt, tokens)).sum()) if behind.any() else 0
