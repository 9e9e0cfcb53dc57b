"""What a judged call was given and gave, short enough to read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SHOWN = 64
"""Elements of an array that are written out; beyond them, its shape and dtype say what it was."""


def detail_of(fixtures: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of the last call of the op that a test was given, and its outputs; empty when it called none."""
    last = getattr(fixtures.get("op"), "last", None)
    if last is None:
        return {}
    inputs, outputs = last
    return {
        "inputs": {k: summary(v) for k, v in inputs.items()},
        "outputs": {k: summary(v) for k, v in outputs.items()},
    }


def summary(value: Any) -> dict[str, Any]:
    """An array as shape, dtype and its values where they are few; anything else as it is."""
    if not hasattr(value, "dtype"):
        return {"value": value}
    described: dict[str, Any] = {"shape": list(value.shape), "dtype": str(value.dtype)}
    described["values"] = value.ravel()[:SHOWN].tolist()
    return described
