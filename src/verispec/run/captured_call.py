"""What a judged call was given and gave, short enough to read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SHOWN = 64
"""Elements of an array that are written out; beyond them, its shape and dtype say what it was."""


def detail_of(fixtures: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments and outputs of the last call of what a test was given to call; empty where nothing was called."""
    for fixture in fixtures.values():
        if last := getattr(fixture, "last", None):
            inputs, outputs = last
            return {
                "inputs": {name: summary(value) for name, value in inputs.items()},
                "outputs": {name: summary(value) for name, value in outputs.items()},
            }
    return {}


def summary(value: Any) -> dict[str, Any]:
    """An array as shape, dtype and its values where they are few; anything else as it is."""
    if not hasattr(value, "dtype"):
        return {"value": value}
    described: dict[str, Any] = {"shape": list(value.shape), "dtype": str(value.dtype)}
    described["values"] = value.ravel()[:SHOWN].tolist()
    return described
