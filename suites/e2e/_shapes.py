"""Random targets of other shapes than the fixtures, each with targets that make a mistake in that shape."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from verispec.suites.e2e._tiny import EOS

VOCAB = 64
SCALED = 16
"""Positions of the shape with scaled rotations before scaling; its texts pass them soon."""
STEEP = 12.0
"""Factor of the queries of the shape with steep scores. Its scores then reach several hundred, past the largest one
whose exponential is a float32 (88)."""

EPSILON = 0.3
"""Epsilon of norms of the shape with norms of heads, so large that its absence changes texts."""


class ModelShape(NamedTuple):
    """A kind of target.

    Attributes:
        save: function that writes the target into a folder.
        mistakes: functions that make its folder a wrong target's, by the mistake in words, to follow "as if".
    """

    save: Callable[[Path], None]
    mistakes: dict[str, Callable[[Path], None]]


def _saves(
    adapt: Callable[[Any], None] | None = None, after: Callable[[Path], None] | None = None, **fields: Any
) -> Callable[[Path], None]:
    """Return a function that writes a target of `fields`; `adapt` changes its weights, `after` its folder."""

    def save(folder: Path) -> None:
        heads, size = fields.get("num_attention_heads", 2), fields.get("head_dim", 32)
        own = {
            "vocab_size": VOCAB,
            "hidden_size": heads * size,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": heads,
            "num_key_value_heads": heads,
            "head_dim": size,
            "max_position_embeddings": 256,
            "tie_word_embeddings": False,
            "bos_token_id": None,
            "eos_token_id": EOS,
            **fields,
        }
        qwen = own.pop("norms", False)
        own["initializer_range"] = 2.8 / own["hidden_size"] ** 0.5  # as large in rows of any width
        config = Qwen3Config(**own) if qwen else LlamaConfig(**own)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(17)
            model: PreTrainedModel = Qwen3ForCausalLM(config) if qwen else LlamaForCausalLM(config)
            with torch.no_grad():
                if adapt is not None:
                    adapt(model)
        model.save_pretrained(folder)
        if after is not None:
            after(folder)

    return save


def _fields(**fields: Any) -> Callable[[Path], None]:
    """Return a function that changes fields of a folder's configuration. Weights that have no place are not read."""

    def change(folder: Path) -> None:
        file = folder / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text(encoding="utf-8")) | fields), encoding="utf-8")

    return change


def _rotations(scaling: dict[str, Any]) -> Callable[[Path], None]:
    """Return a function that writes the scaling of rotations under its name of today, and that of older checkpoints."""
    return _fields(rope_parameters=scaling, rope_scaling=scaling, rope_theta=scaling["rope_theta"])


def _vary_norms(model: Any) -> None:
    """Give the norms of heads weights that differ."""
    for name, weight in model.named_parameters():
        if name.endswith(("q_norm.weight", "k_norm.weight")):
            weight.copy_(1.5 + torch.rand(weight.shape))


def _fill_biases(model: Any) -> None:
    for name, bias in model.named_parameters():
        if name.endswith(".bias"):
            bias.normal_()


def _steepen(model: Any) -> None:
    for layer in model.model.layers:
        projection: nn.Linear = layer.self_attn.q_proj
        projection.weight.mul_(STEEP)


def _take_turns(folder: Path) -> None:
    """Exchange heads of queries, so that each has the key head that it would have if they took key heads in turn."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    heads, keys, size = (config[name] for name in ("num_attention_heads", "num_key_value_heads", "head_dim"))
    order = torch.arange(heads).reshape(-1, keys).T.flatten()
    rows = (order[:, None] * size + torch.arange(size)).flatten()
    tensors = load_file(folder / "model.safetensors")
    for name, tensor in tensors.items():
        if name.endswith("q_proj.weight"):
            tensors[name] = tensor[rows].contiguous()
        if name.endswith("o_proj.weight"):
            tensors[name] = tensor[:, rows].contiguous()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


_YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 16.0,
    "original_max_position_embeddings": SCALED,
}
_PLAIN = {"rope_type": "default", "rope_theta": 10000.0}

SHAPES = {
    "norms of three heads": ModelShape(
        _saves(_vary_norms, norms=True, num_attention_heads=3, head_dim=96, rms_norm_eps=EPSILON),
        {"heads had no norms": _fields(architectures=["LlamaForCausalLM"], model_type="llama")},
    ),
    "biases": ModelShape(
        _saves(_fill_biases, attention_bias=True, mlp_bias=True),
        {
            "there were no biases": _fields(attention_bias=False, mlp_bias=False),
            "attention had no biases": _fields(attention_bias=False),
            "the MLP had no biases": _fields(mlp_bias=False),
        },
    ),
    "one head of keys": ModelShape(_saves(num_attention_heads=8, num_key_value_heads=1), {}),
    "groups of three heads": ModelShape(
        _saves(num_attention_heads=6, num_key_value_heads=2),
        {"heads of queries took the key heads in turn, not in groups": _take_turns},
    ),
    "scaled rotations": ModelShape(
        _saves(after=_rotations(_YARN), rope_parameters=_YARN),
        {
            "rotations were not scaled": _fields(rope_parameters=_PLAIN, rope_scaling=None),
            "the scaling of rotations had no factor of attention": _rotations(_YARN | {"attention_factor": 1.0}),
        },
    ),
    "steep scores": ModelShape(_saves(_steepen), {}),
    "heads of 80": ModelShape(_saves(head_dim=80), {}),
    "heads of 128": ModelShape(_saves(head_dim=128), {}),
    "wide rows": ModelShape(_saves(hidden_size=1056, intermediate_size=1100), {}),
}
"""By name. Halves of heads of 96 are no power of two, heads of 80 no multiple of 32, which kernels load at
once, and rows of 1,056 and 1,100 no multiple of a tile."""


def save_shape(name: str, folder: Path) -> Path:
    """Write the target of a shape; returns its folder."""
    SHAPES[name].save(folder)
    return folder


def save_mistake(name: str, mistake: str, target: Path, folder: Path) -> Path:
    """Write the target of a shape with a mistake; returns its folder."""
    shutil.copytree(target, folder)
    SHAPES[name].mistakes[mistake](folder)
    return folder
