"""Files of a checkpoint folder, read with errors that name the wrong file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

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
