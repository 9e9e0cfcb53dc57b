"""A head with an embedding and layers of its own, made from a fixture's."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from verispec import fixtures

Fields = dict[str, Any]
"""Fields of a head's configuration."""


def save_own_head(folder: Path) -> Path:
    """Write the speculators head with an embedding of its own, and its residual behind its norm; return `folder`.

    The embedding is the target's with noise of half its size, and the head reads other layers than those of a head that
    names none: some drafts are still right.
    """
    head = fixtures.model("eagle3_speculators")
    config = json.loads((head / "config.json").read_text(encoding="utf-8"))
    config |= {"norm_before_residual": True, "eagle_aux_hidden_state_layer_ids": [1, 4, 8]}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    tensors = load_file(head / "model.safetensors")
    shared = load_file(fixtures.model("target") / "model.safetensors")["model.embed_tokens.weight"]
    noise = torch.randn(shared.shape, generator=torch.Generator().manual_seed(14)) * shared.float().std() / 2
    save_file(
        tensors | {"embed_tokens.weight": (shared.float() + noise).to(shared.dtype)}, folder / "model.safetensors"
    )
    return folder


LAYERS = "eagle_aux_hidden_state_layer_ids"


def _layers(config: Fields, by: int) -> Fields:
    """Return the field of the layers that a head reads, each of them `by` layers further."""
    target = json.loads((fixtures.model("target") / "config.json").read_text(encoding="utf-8"))
    depth = target["num_hidden_layers"]
    return {LAYERS: [layer + by for layer in config.get(LAYERS) or (2, depth // 2, depth - 3)]}


EMBEDDING = "its embedding were the target's"
MISREAD: dict[str, Callable[[Fields], Fields]] = {
    "its norm_before_residual were false": lambda _: {"norm_before_residual": False},
    "its norm_before_residual were true": lambda _: {"norm_before_residual": True},
    "it read the default layers of the target": lambda _: {LAYERS: None},
    "it read the states behind its layers of the target, not those before them": lambda config: _layers(config, 1),
    "it read layers of the target one too low": lambda config: _layers(config, -1),
    EMBEDDING: lambda _: {},
}
"""Mistakes in reading a head, in words, with the fields of its configuration that would give the same."""


def save_misread(head: Path, folder: Path, mistake: str) -> Path:
    """Write a head that is what an engine reads by one of `MISREAD`; return `folder`."""
    folder.mkdir()
    config = json.loads((head / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(config | MISREAD[mistake](config)), encoding="utf-8")
    tensors = load_file(head / "model.safetensors")
    if mistake == EMBEDDING:
        tensors.pop("embed_tokens.weight", None)
    save_file(tensors, folder / "model.safetensors")
    return folder
