"""One checkpoint of a target and its MTP layer, as vLLM wants it: it loads the layer from the target's own folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file

from verispec.engines import UnsupportedCall
from verispec.reference.models.checkpoint import is_mtp, read_config, read_tensors

_SAME = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "num_hidden_layers")
_BIASED = ("q_proj", "k_proj", "v_proj")


def with_mtp_layer(target: Path, layer: Path, folder: Path) -> Path:
    """Return a folder with the weights of both.

    MiMo's target is a Qwen2 model: a Llama model whose queries, keys and values have biases, which are zeros here.

    Args:
        target: checkpoint folder of a Llama or Qwen2 model, or of one that has its MTP layer.
        layer: checkpoint folder with the layer, in MiMo's layout.
        folder: empty folder to write to.

    Raises:
        UnsupportedCall: the target is no model that MiMo's layout can hold.
    """
    config, head = read_config(target), read_config(layer)
    if is_mtp(config):
        return target
    other = [name for name in _SAME if config.get(name) != head.get(name)]
    if other or config.get("model_type") not in ("llama", "qwen2"):
        raise UnsupportedCall(f"vLLM reads an MTP layer beside a Qwen2 target alone; {target} is another model")
    tensors = read_tensors(target)
    for name in [name for name in tensors if name.split(".")[-2] in _BIASED and name.endswith(".weight")]:
        bias = name.removesuffix("weight") + "bias"
        tensors.setdefault(bias, torch.zeros(len(tensors[name]), dtype=tensors[name].dtype))
    save_file({**tensors, **read_tensors(layer)}, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(head), encoding="utf-8")
    for name in ("generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        if (target / name).is_file():
            shutil.copy(target / name, folder)
    return folder
