"""Files of a checkpoint folder, read with errors that name the wrong file."""

from __future__ import annotations

import json
from collections.abc import Set
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from verispec.errors import VerispecError

EAGLE3_ARCHITECTURES = frozenset({"LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM", "Eagle3Speculator"})
"""Architecture names of published Eagle3 heads; none of them can run alone."""


def read_config(folder: Path) -> dict[str, Any]:
    """Return a checkpoint folder's ``config.json``.

    Raises:
        VerispecError: V-MODEL-FOLDER if it is not a checkpoint folder, V-MODEL-CONFIG if the file is not a JSON object.
    """
    path = folder / "config.json"
    if not path.is_file():
        raise VerispecError(
            "V-MODEL-FOLDER",
            "not a checkpoint folder: it has no config.json" if folder.is_dir() else "no such folder",
            where=str(folder),
            hint="give a local folder in Hugging Face layout: config.json, *.safetensors, tokenizer.json",
        )
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise VerispecError(
            "V-MODEL-CONFIG",
            "config.json is not JSON",
            where=str(path),
            cause=str(error),
            hint="copy config.json again from the checkpoint",
        ) from error
    if not isinstance(config, dict):
        raise VerispecError(
            "V-MODEL-CONFIG",
            f"config.json contains a {type(config).__name__}, expected an object",
            where=str(path),
            hint="copy config.json again from the checkpoint",
        )
    return config


def is_eagle3(config: dict[str, Any]) -> bool:
    """Return True if a ``config.json`` describes an Eagle3 head, in either published format."""
    architectures = set(config.get("architectures") or ())
    return config.get("speculators_model_type") == "eagle3" or bool(architectures & EAGLE3_ARCHITECTURES)


def is_mtp(config: dict[str, Any]) -> bool:
    """Return True if a ``config.json`` describes a target with MTP layers, in MiMo's format."""
    return "MiMoForCausalLM" in (config.get("architectures") or ())


def load_head_tensors(
    head: nn.Module, tensors: dict[str, torch.Tensor], folder: Path, optional: Set[str], hint: str
) -> None:
    """Load all tensors of a head.

    Args:
        head: module to load them into.
        tensors: tensors by their names in the module.
        folder: their checkpoint folder, for messages.
        optional: names that the checkpoint may leave out.
        hint: advice where names are missing or unknown.

    Raises:
        VerispecError: V-MODEL-WEIGHTS if tensors are missing, unknown or of another shape.
    """
    try:
        absent, unknown = head.load_state_dict(tensors, strict=False)
    except RuntimeError as error:
        raise VerispecError(
            "V-MODEL-WEIGHTS",
            "a tensor has another shape than config.json says",
            where=str(folder),
            cause=str(error),
            hint="copy config.json and the weights again, from one checkpoint",
        ) from error
    absent = sorted(set(absent) - optional)
    if absent or unknown:
        raise VerispecError(
            "V-MODEL-WEIGHTS",
            f"tensors missing: {', '.join(absent) or 'none'}; unknown: {', '.join(sorted(unknown)) or 'none'}",
            where=str(folder),
            hint=hint,
        )


def mask_token(folder: Path) -> int:
    """Return the mask token of a model of parallel drafting: ``pard_token`` of its ``config.json`` (vLLM 0.32.0).

    Raises:
        VerispecError: V-MODEL-MASK if the checkpoint names none.
    """
    token = read_config(folder).get("pard_token")
    if not isinstance(token, int):
        raise VerispecError(
            "V-MODEL-MASK",
            f"parallel_drafting needs a model with a mask token, expected pard_token in config.json, got {token!r}",
            where=str(folder / "config.json"),
            hint="give a model trained for parallel drafting, or omit parallel_drafting",
        )
    return token


def read_tensors(folder: Path) -> dict[str, torch.Tensor]:
    """Return every tensor of a folder by name: all ``*.safetensors``, else ``pytorch_model.bin``.

    Raises:
        VerispecError: V-MODEL-WEIGHTS if there is no weight file, or one cannot be read.
    """
    files = sorted(folder.glob("*.safetensors")) or sorted(folder.glob("pytorch_model*.bin"))
    if not files:
        raise VerispecError(
            "V-MODEL-WEIGHTS",
            "no *.safetensors and no pytorch_model.bin",
            where=str(folder),
            hint="copy the weights into this folder",
        )
    tensors: dict[str, torch.Tensor] = {}
    for file in files:
        try:
            if file.suffix == ".safetensors":
                tensors |= load_file(file)
            else:
                tensors |= torch.load(file, map_location="cpu", weights_only=True)
        except (SafetensorError, OSError, RuntimeError, EOFError) as error:
            raise VerispecError(
                "V-MODEL-WEIGHTS",
                "weights cannot be read",
                where=str(file),
                cause=str(error),
                hint="copy the file again: it is damaged, or is not a checkpoint",
            ) from error
    return tensors
