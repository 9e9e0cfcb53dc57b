"""The fixtures with sliding windows: Mistral's configuration over the same weights."""

from __future__ import annotations

import json
from pathlib import Path

from verispec import fixtures

WINDOW = 20
"""Tokens that a query sees, itself included; no multiple of a block, and less than a prompt."""


def save_windowed(folder: Path) -> dict[str, Path]:
    """Write the target and the draft model with sliding windows; returns their folders by name.

    A Llama model is a Mistral model without a window. Without the window about one token in six is another one; with
    one token more or less in the window, about one in twenty.
    """
    folders = {name: folder / name for name in ("target", "draft")}
    for name, path in folders.items():
        source = fixtures.model(name)
        path.mkdir(parents=True)
        for file in source.iterdir():
            (path / file.name).symlink_to(file)
        config = json.loads((source / "config.json").read_text(encoding="utf-8"))
        config |= {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": WINDOW}
        (path / "config.json").unlink()
        (path / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    return folders
