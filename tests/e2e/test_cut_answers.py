"""SRV-4 and SRV-5: an answer with another last token lacks no text."""

from __future__ import annotations

import pytest

from verispec.engines.protocol.serving import Choice
from verispec.suites.e2e._served import is_cut

WHOLE = Choice("of the split", (5, 9, 40), "length")


@pytest.mark.parametrize(
    ("text", "tokens", "cut"),
    [
        ("of the sp", (5, 9, 40), True),
        ("of the ", (5, 9), True),
        ("of the ", None, True),
        ("of the ", (5, 9, 77), False),
        ("of the split", (5, 9, 40), False),
        ("of a split", (5, 8, 40), False),
    ],
    ids=["last letters", "last token", "tokens unknown", "a token without text", "equal", "another text"],
)
def test_an_answer_is_cut_where_its_tokens_go_on_in_the_other(
    text: str, tokens: tuple[int, ...] | None, cut: bool
) -> None:
    """vLLM's draws with one seed differ, and the eighth was the first byte of a character: nothing was lost."""
    assert is_cut(Choice(text, tokens, "length"), WHOLE) is cut
