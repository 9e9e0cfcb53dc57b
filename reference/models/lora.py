"""LoRA adapters: low-rank weights that a request adds to the target's, in the layout that PEFT saves."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from verispec.errors import VerispecError

from .checkpoint import read_tensors

CONFIG = "adapter_config.json"
_PREFIX = "base_model.model."
_PLAIN: dict[str, Any] = {
    "peft_type": "LORA", "bias": "none", "use_dora": False, "modules_to_save": None, "rank_pattern": {},
    "alpha_pattern": {}, "layers_to_transform": None, "fan_in_fan_out": False,
}  # fmt: skip
"""Fields of an adapter's configuration with the only value that is supported; a missing field has it."""


class _Pair(NamedTuple):
    """Weights that one adapter adds to a linear layer: [r, in], and [out, r] times the scale."""

    down: torch.Tensor
    up: torch.Tensor


class LoraAdapters:
    """The adapters of a loaded target; a layer with weight W computes W x + s B A x for the tokens of an adapter.

    s is lora_alpha / r, or lora_alpha / sqrt(r) with use_rslora (Hu et al. 2021, arXiv 2106.09685, section 4.1;
    Kalajdzievski 2023, arXiv 2312.03732).

    Args:
        folders: adapter folders, each with adapter_config.json and the weights.
        model: the target, whose linear layers are hooked. It runs on [1, T] flattened tokens.

    Raises:
        VerispecError: V-LORA-CONFIG for a folder without a usable configuration, V-LORA-WEIGHTS if its weights do not
            fit the target, V-MODEL-WEIGHTS if they cannot be read.
    """

    def __init__(self, folders: Sequence[Path], model: nn.Module) -> None:
        self._rows: list[tuple[int, torch.Tensor]] = []
        linear = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}
        linear.pop("lm_head", None)  # it sees the rows of some tokens only
        by_layer: dict[str, dict[int, _Pair]] = {}
        for place, folder in enumerate(folders):
            for name, pair in _read(folder, linear).items():
                by_layer.setdefault(name, {})[place] = pair
        for name, pairs in by_layer.items():
            linear[name].register_forward_hook(self._adder(pairs))

    def select(
        self, adapters: Sequence[int | None], query_lens: np.ndarray, upload: Callable[[np.ndarray], torch.Tensor]
    ) -> None:
        """Set the adapters of the next pass.

        Args:
            adapters: place of each request's adapter among the folders, None for the target's own weights.
            query_lens: [B] tokens of each request in the pass.
            upload: function that puts an array on the target's device.
        """
        of_token = np.repeat([-1 if adapter is None else adapter for adapter in adapters], query_lens)
        used = sorted({adapter for adapter in adapters if adapter is not None})
        self._rows = [(adapter, upload(np.flatnonzero(of_token == adapter))) for adapter in used]

    def _adder(self, pairs: dict[int, _Pair]) -> Callable[[nn.Module, tuple[torch.Tensor], torch.Tensor], None]:
        def add(module: nn.Module, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
            for adapter, rows in self._rows:
                if adapter in pairs:
                    down, up = pairs[adapter]
                    output[0].index_add_(0, rows, inputs[0][0].index_select(0, rows) @ down.T @ up.T)

        return add


def _read(folder: Path, linear: dict[str, nn.Linear]) -> dict[str, _Pair]:
    """Return an adapter's weights by the name of their layer, in the dtype and on the device of that layer."""
    scale = _scale(folder)
    tensors = read_tensors(folder)
    pairs: dict[str, _Pair] = {}
    for key in sorted(tensors):
        name, _, part = key.removeprefix(_PREFIX).rpartition(".lora_")
        layer = linear.get(name)
        if not key.startswith(_PREFIX) or part not in ("A.weight", "B.weight") or layer is None:
            raise _misfit(folder, f"{key} belongs to no linear layer inside of the target")
        if part == "B.weight":
            continue
        down, up = tensors[key], tensors.get(f"{_PREFIX}{name}.lora_B.weight")
        if up is None:
            raise _misfit(folder, f"{key} has no lora_B beside it")
        wanted = (layer.out_features, len(down)), (len(down), layer.in_features)
        if (tuple(up.shape), tuple(down.shape)) != wanted:
            shapes = f"{list(up.shape)} and {list(down.shape)}"
            raise _misfit(folder, f"B and A of {name} are {shapes}, expected {list(wanted[0])} and {list(wanted[1])}")
        like = layer.weight
        pairs[name] = _Pair(down.to(like), (up.double() * scale(len(down))).to(like))
    return pairs


def _scale(folder: Path) -> Callable[[int], float]:
    """Return the function from the rank of a layer's weights to their factor."""
    path = folder / CONFIG
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        alpha = float(config["lora_alpha"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise VerispecError(
            "V-LORA-CONFIG",
            "not a LoRA adapter: no readable adapter_config.json with lora_alpha",
            where=str(folder),
            cause=f"{type(error).__name__}: {error}",
            hint="give a folder as PEFT saves it: adapter_config.json and adapter_model.safetensors",
        ) from error
    unsupported = [name for name, plain in _PLAIN.items() if config.get(name, plain) not in (plain, [], {}, None)]
    if unsupported:
        raise VerispecError(
            "V-LORA-CONFIG",
            f"{unsupported[0]} = {config[unsupported[0]]!r} is not supported, expected {_PLAIN[unsupported[0]]!r}",
            where=str(path),
            hint="give a plain LoRA adapter of linear layers",
        )
    return lambda rank: alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)


def _misfit(folder: Path, cause: str) -> VerispecError:
    return VerispecError(
        "V-LORA-WEIGHTS",
        "the adapter's weights do not fit the target",
        where=str(folder),
        cause=cause,
        hint="give an adapter that was trained on this target",
    )
