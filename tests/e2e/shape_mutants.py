"""Runners with one fault in models of other shapes than the fixtures': ``--engine shape_mutants:<name>``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from runner_mutants import Mutant, engine_with
from torch import nn
from transformers import PreTrainedModel

from verispec.reference.models import attention
from verispec.reference.runners.cpu import CPURunner

Change = Callable[[Any], None]


def engine_of(change: Change) -> Callable[[], Mutant]:
    """Return a factory of engines whose models are changed after they were loaded."""

    class Changed(CPURunner):
        def _load_model(self, folder: Path) -> PreTrainedModel:
            model = super()._load_model(folder)
            with torch.no_grad():
                change(model)
            return model

    return engine_with(Changed)


def _in_attention(change: Change) -> Change:
    def change_all(model: Any) -> None:
        for layer in model.model.layers:
            change(layer.self_attn)

    return change_all


def _share_the_norm(attention: Any) -> None:
    if hasattr(attention, "k_norm"):
        attention.k_norm.weight.copy_(attention.q_norm.weight)


def _forget_the_weights(attention: Any) -> None:
    for norm in filter(None, (getattr(attention, name, None) for name in ("q_norm", "k_norm"))):
        norm.weight.fill_(1.0)


def _drop_bias(name: str) -> Change:
    def drop(model: Any) -> None:
        for module in model.modules():
            projection = getattr(module, name, None)
            if isinstance(projection, nn.Linear) and projection.bias is not None:
                projection.bias.zero_()

    return drop


def _forget_the_factor(model: Any) -> None:
    model.model.rotary_emb.attention_scaling = 1.0


def _cut_rows(model: Any) -> None:
    """Read 1,024 numbers of each row."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.weight[:, 1024:] = 0


class _Plain(CPURunner):
    """Runs transformers' own layers, which call `attention`."""

    def _callable(self, model: PreTrainedModel) -> nn.Module:
        return model


def unscaled_exponentials() -> Mutant:
    """Return an engine that takes exponentials of scores without their largest one."""

    def attend(query: Any, key: Any, value: Any, attn_mask: Any, scale: float, **_: Any) -> torch.Tensor:
        weights = (query @ key.transpose(-1, -2) * scale + attn_mask).exp()
        mixed: torch.Tensor = weights @ value / weights.sum(-1, keepdim=True)
        return mixed.nan_to_num()

    attention.scaled_dot_product_attention = attend
    return Mutant(_Plain)


class _Positions(CPURunner):
    """Rotates to positions in another type."""

    dtype = torch.float16

    def _prepare(self, scheduled: Any) -> Any:
        inputs = super()._prepare(scheduled)
        inputs.paged.positions[:] = inputs.paged.positions.to(self.dtype).long().clamp(min=0)
        return inputs


class _ShortPositions(_Positions):
    dtype = torch.int16


norm_of_queries_for_keys = engine_of(_in_attention(_share_the_norm))
norms_without_weights = engine_of(_in_attention(_forget_the_weights))
biases_of_queries_dropped = engine_of(_drop_bias("q_proj"))
biases_of_gates_dropped = engine_of(_drop_bias("gate_proj"))
factor_of_attention_forgotten = engine_of(_forget_the_factor)
rows_cut = engine_of(_cut_rows)
half_positions = engine_with(_Positions)
short_positions = engine_with(_ShortPositions)
