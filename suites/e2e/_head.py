"""A head with an embedding and layers of its own, made from a fixture's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from verispec import fixtures


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


MISREAD: dict[str, dict[str, Any]] = {
    "its norm_before_residual were false": {"norm_before_residual": False},
    "its norm_before_residual were true": {"norm_before_residual": True},
    "it read the default layers of the target": {"eagle_aux_hidden_state_layer_ids": None},
    "its embedding were the target's": {},
}
"""Mistakes in reading a head, in words, with the fields of its configuration that would give the same."""


def save_misread(head: Path, folder: Path, mistake: str) -> Path:
    """Write a head that is what an engine reads by one of `MISREAD`; return `folder`."""
    folder.mkdir()
    config = json.loads((head / "config.json").read_text(encoding="utf-8")) | MISREAD[mistake]
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    tensors = load_file(head / "model.safetensors")
    if not MISREAD[mistake]:
        tensors.pop("embed_tokens.weight", None)
    save_file(tensors, folder / "model.safetensors")
    return folder
