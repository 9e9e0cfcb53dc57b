"""LoRA adapters of the target, made from a seed, and the target with each of them merged into its weights."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from verispec import fixtures


@dataclass(frozen=True)
class _Kind:
    """The shape of an adapter: its rank, its lora_alpha, the layers that it changes, how much, and use_rslora."""

    rank: int
    alpha: int
    modules: tuple[str, ...]
    size: float
    is_rank_stabilized: bool

    @property
    def scale(self) -> float:
        """Factor of B A in the adapted weight."""
        return self.alpha / (math.sqrt(self.rank) if self.is_rank_stabilized else self.rank)


_KINDS = (
    _Kind(8, 16, ("q_proj", "v_proj"), 0.25, False),
    _Kind(4, 2, ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"), 0.14, True),
)
"""Two ranks, two rules of scales and two sets of layers, so that no number of one adapter is right for the other."""


@dataclass(frozen=True)
class Adapted:
    """Folders of the adapters, and of the float64 target with each of them merged; None is the target alone."""

    adapters: tuple[Path, ...]
    merged: dict[int | None, Path]


def save_adapted(folder: Path, target: Path | None = None) -> Adapted:
    """Write the adapters and the merged targets below `folder`; without a `target`, those of the fixture."""
    target = target or fixtures.model("target")
    weights = {name: tensor.double() for name, tensor in load_file(target / "model.safetensors").items()}
    adapters = tuple(folder / f"adapter{place}" for place in range(len(_KINDS)))
    merged: dict[int | None, Path] = {None: target}
    for place, (kind, path) in enumerate(zip(_KINDS, adapters, strict=True)):
        pairs = _pairs(weights, kind, torch.Generator().manual_seed(place + 1))
        _save_adapter(path, pairs, kind)
        merged[place] = folder / f"merged{place}"
        _save_merged(merged[place], target, weights, pairs, kind)
    return Adapted(adapters, merged)


def with_other_scale(adapted: Adapted, adapter: int) -> Path:
    """Return the target with an adapter merged by the other rule of scales, which is written where it is not yet."""
    folder, target, kind = adapted.merged[adapter].with_name(f"other{adapter}"), adapted.merged[None], _KINDS[adapter]
    if not folder.exists():
        weights = {name: tensor.double() for name, tensor in load_file(target / "model.safetensors").items()}
        pairs = _pairs(weights, kind, torch.Generator().manual_seed(adapter + 1))
        other = replace(kind, is_rank_stabilized=not kind.is_rank_stabilized)
        _save_merged(folder, target, weights, pairs, other)
    return folder


def _pairs(
    weights: dict[str, torch.Tensor], kind: _Kind, generator: torch.Generator
) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Return A and B of every layer that the adapter changes, by the name of the layer."""
    made = {}
    for name in sorted(weights):
        layer, _, last = name.rpartition(".")
        if last == "weight" and layer.rpartition(".")[2] in kind.modules:
            outputs, inputs = weights[name].shape
            down = torch.randn(kind.rank, inputs, generator=generator) / math.sqrt(inputs)
            up = torch.randn(outputs, kind.rank, generator=generator) * kind.size / kind.scale
            made[layer] = (down, up / math.sqrt(kind.rank))
    return made


def _save_adapter(folder: Path, pairs: dict[str, tuple[torch.Tensor, torch.Tensor]], kind: _Kind) -> None:
    folder.mkdir(parents=True)
    tensors = {
        f"base_model.model.{layer}.lora_{part}.weight": tensor.contiguous()
        for layer, pair in pairs.items()
        for part, tensor in zip("AB", pair, strict=True)
    }
    save_file(tensors, folder / "adapter_model.safetensors")
    config: dict[str, Any] = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": "target", "bias": "none",
        "r": kind.rank, "lora_alpha": kind.alpha, "target_modules": list(kind.modules),
        "use_rslora": kind.is_rank_stabilized,
    }  # fmt: skip
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")


def _save_merged(
    folder: Path,
    target: Path,
    weights: dict[str, torch.Tensor],
    pairs: dict[str, tuple[torch.Tensor, torch.Tensor]],
    kind: _Kind,
) -> None:
    folder.mkdir(parents=True)
    for file in target.iterdir():
        if file.name != "model.safetensors":
            (folder / file.name).symlink_to(file)
    added = {f"{layer}.weight": kind.scale * up.double() @ down.double() for layer, (down, up) in pairs.items()}
    save_file({n: w + added[n] if n in added else w for n, w in weights.items()}, folder / "model.safetensors")
