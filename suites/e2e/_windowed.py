"""The fixtures with sliding windows: Mistral's and Ministral's configurations over the same weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from verispec import fixtures

WINDOW = 20
"""Tokens that a query sees, itself included; no multiple of a block, and less than a prompt."""

SLIDING, FULL = "sliding_attention", "full_attention"
ORDERS = {
    "every second layer from the first on": (SLIDING, FULL),
    "all layers": (SLIDING, SLIDING),
    "no layer": (FULL, FULL),
    "only the layers that should have none": (FULL, SLIDING),
}
"""Kinds of a model's layers in turn, by the layers that have a window; the first order is that of the cases."""
MIXED = next(iter(ORDERS))


WINDOWS = {
    "the window had one token more": WINDOW + 1,
    "the window had one token less": WINDOW - 1,
    "there was no window": None,
}
"""Other windows by the mistake in words, to follow "as if"; None for a model without one."""


def save_windowed(folder: Path, window: int | None = WINDOW) -> dict[str, Path]:
    """Write the target and the draft model with sliding windows; returns their folders by name.

    A Llama model is a Mistral model without a window. Without the window about one token in six is another one; with
    one token more or less in the window, about one in twenty.
    """
    fields = {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": window}
    return {name: _save(folder / name, name, fields) for name in ("target", "draft")}


def save_mixed(folder: Path, order: str = MIXED) -> dict[str, Path]:
    """Write the target and the draft model with a window in some layers; returns their folders by name.

    Ministral is Mistral with a kind for each layer. About one token in ten is another one if all layers have the
    window, or none has.
    """
    made = {}
    for name in ("target", "draft"):
        depth = json.loads((fixtures.model(name) / "config.json").read_text(encoding="utf-8"))["num_hidden_layers"]
        made[name] = _save(
            folder / name,
            name,
            {
                "architectures": ["MinistralForCausalLM"],
                "model_type": "ministral",
                "sliding_window": WINDOW,
                "layer_types": [ORDERS[order][layer % 2] for layer in range(depth)],
            },
        )
    return made


def _save(path: Path, name: str, fields: dict[str, Any]) -> Path:
    """Write the fixture `name` with other fields of its configuration; return its folder."""
    source = fixtures.model(name)
    path.mkdir(parents=True)
    for file in source.iterdir():
        (path / file.name).symlink_to(file)
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    (path / "config.json").unlink()
    (path / "config.json").write_text(json.dumps(config | fields, indent=2), encoding="utf-8")
    return path
