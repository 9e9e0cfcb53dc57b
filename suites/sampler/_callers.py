"""Reach of the cases of every op: the caller whose own call a case repeats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from verispec.reference import contracts


def from_caller(situation: str) -> Callable[[Mapping[str, Any]], str | None]:
    """Return the reach of plain calls: the situation and the caller by its name, or None where none was read.

    Sizes chosen for a kernel's tiles, layouts, mixed modes and values at a comparison have no caller: their cases have
    no reach, and a failure of theirs alone is a note.
    """

    def reach(params: Mapping[str, Any]) -> str | None:
        caller = contracts.load(params["subject"]).caller
        return f"{situation}, in {caller}" if caller and params.get("mode", "plain") == "plain" else None

    return reach


def of_models(situation: str) -> Callable[[Mapping[str, Any]], str | None]:
    """Return the reach of cases over vocabularies: the situation; no model has one or two tokens."""
    return lambda params: situation if params["vocab"] > 2 else None


of_vocabulary = of_models("vocabularies are no multiples of a tile")
"""Reach of sizes around a tile."""


def updated_in_place(params: Mapping[str, Any]) -> str | None:
    """From the second draft step on, the positions that vLLM passes are the buffer that it has updated."""
    op = "eagle_step_slot_mapping_metadata"
    return f"every draft step after the first, in {contracts.load(op).caller}" if params["subject"] == op else None
