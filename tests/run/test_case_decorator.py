"""The decorator of a test that declares its cases."""

from __future__ import annotations

import pytest

from verispec.cases import case


def test_a_test_with_two_declarations_is_refused() -> None:
    """The second one would take the place of the first."""

    @case("OP-1")
    def judged() -> None: ...

    with pytest.raises(TypeError, match="judged has cases already: give those of OP-2 a test of their own"):
        case("OP-2")(judged)
