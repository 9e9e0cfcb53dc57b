"""Every line of the documentation's tables of refused values, and a line for every field that has a rule."""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from verispec.engines import GenerationRequest, LoadOptions
from verispec.errors import VerispecError

PAGE = Path(__file__).parents[2] / "docs/reference/request-parameters.md"
LINE = re.compile(r"\| `(?P<given>[^`]+)` \| (?P<message>.* must be .*) \|")
TABLES: dict[str, type] = {"LoadOptions": LoadOptions, "GenerationRequest": GenerationRequest}
FREE = {
    "LoadOptions": set(),
    "GenerationRequest": {"ignore_eos", "stop_token_ids", "allowed_token_ids"},
}
"""Fields without a rule of their own: any truth value, any ids; whether ids exist depends on the model (GEN-38)."""


def lines() -> list[tuple[str, str, str]]:
    """Return class, keywords and message of each line."""
    found, table = [], ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if head := re.match(r"\| `(LoadOptions|GenerationRequest)` of ", line):
            table = head[1]
        elif table and (match := LINE.fullmatch(line)):
            found.append((table, match["given"], match["message"]))
    return found


def keywords(given: str) -> dict[str, Any]:
    call = ast.parse(f"f({given})", mode="eval").body
    assert isinstance(call, ast.Call)
    return {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}


@pytest.mark.parametrize(("table", "given", "message"), lines())
def test_the_message_is_the_documented_one(table: str, given: str, message: str) -> None:
    asked = keywords(given)
    if table == "GenerationRequest":
        asked = {"prompt_token_ids": (5,), **asked}
    with pytest.raises(VerispecError) as refused:
        TABLES[table](**asked)
    assert refused.value.diagnostic.message == message
    assert refused.value.diagnostic.where == message.partition(" ")[0]


@pytest.mark.parametrize("table", TABLES)
def test_every_field_with_a_rule_is_documented(table: str) -> None:
    documented = {message.partition(" ")[0] for name, _, message in lines() if name == table}
    assert documented == {field.name for field in fields(TABLES[table])} - FREE[table]
