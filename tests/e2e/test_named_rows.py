"""Log-probabilities of another token's row: the failure names the token."""

from __future__ import annotations

import numpy as np
import pytest

from verispec.engines.protocol.generation import FinishReason, GenerationRequest, GenerationResult, TokenLogprobs
from verispec.judge import Mismatch
from verispec.suites.e2e._logprobs import check_batch
from verispec.suites.e2e._reference_model import Array, ReferenceModel

PROMPTS = ((1, 2), (3, 4), (1, 2))
TOKENS = ((5, 6, 7), (4, 3, 2), (5, 1, 0))
"""The first and the last text share their first row."""


def rows(prompt: tuple[int, ...], tokens: tuple[int, ...]) -> Array:
    return np.stack([np.random.default_rng([*prompt, *tokens[:i]]).normal(size=9) for i in range(len(tokens))])


MODEL = ReferenceModel(rows, rows)


def entry(text: int, place: int, token: int, top: int) -> TokenLogprobs:
    """Return what the row of a text's place says of a token."""
    row = rows(PROMPTS[text], TOKENS[text])[place]
    row = row - np.log(np.exp(row).sum())
    best = np.argsort(-row)[:top]
    return TokenLogprobs(float(row[token]), tuple((int(i), float(row[i])) for i in best))


def message(taken: tuple[int, int], top: int = 2) -> str:
    """Return why the last entry of the second text is wrong that comes from another place."""
    asked = [GenerationRequest(prompt, 3, logprobs=top) for prompt in PROMPTS]
    results = []
    for n, tokens in enumerate(TOKENS):
        places = [(n, i) for i in range(3)] if n != 1 else [(1, 0), (1, 1), taken]
        entries = tuple(entry(*place, token, top) for place, token in zip(places, tokens, strict=True))
        results.append(GenerationResult(tokens, FinishReason.LENGTH, logprobs=entries))
    with pytest.raises(Mismatch) as raised:
        check_batch(results, asked, "raw", lambda _: MODEL)
    return raised.value.failure.message


@pytest.mark.parametrize(
    ("taken", "words"),
    [((1, 1), "token 1"), ((2, 2), "token 2 of request 2"), ((2, 0), "token 0 of request 0")],
    ids=["of the request", "of another one", "of two with one row"],
)
def test_the_row_of_another_token_is_named(taken: tuple[int, int], words: str) -> None:
    assert message(taken).endswith(f"; the entry is that of the row of {words}")


def test_one_number_alone_names_no_other_request() -> None:
    assert "the row of" not in message((2, 2), top=0)
    assert message((1, 1), top=0).endswith("the row of token 1")
