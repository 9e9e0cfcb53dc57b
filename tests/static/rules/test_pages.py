"""Every rule has a page: why it exists, the smallest example, and how to repair a finding."""

from __future__ import annotations

import pytest

from verispec.report.explanation import as_text, explain
from verispec.static import rules
from verispec.static.rules._pages import EXAMPLES, REPAIRS


def test_every_rule_has_a_page_and_every_page_a_rule() -> None:
    assert set(EXAMPLES) == set(REPAIRS) == set(rules.names())


@pytest.mark.parametrize("name", rules.names())
def test_a_page(name: str) -> None:
    rule = rules.load(name)
    text = "\n".join(as_text(explain(name)))
    assert rule.example.splitlines()[0] in text
    assert rule.fix in " ".join(text.split()) and rule.fix.endswith(".")
    assert max(map(len, text.splitlines())) <= 110
