"""LoRA adapters against the same weights merged, and errors for folders that are no adapters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaForCausalLM

from verispec.errors import VerispecError
from verispec.reference.models.lora import LoraAdapters

IDS = torch.arange(1, 7)[None]
LAYER = "model.layers.0.mlp.up_proj"


def save(folder: Path, model: LlamaForCausalLM, layer: str = LAYER, seed: int = 0, **config: Any) -> Path:
    """Write an adapter of rank 4 of one linear layer."""
    torch.manual_seed(seed)
    weight = model.get_submodule(layer).weight
    folder.mkdir()
    pair = {"A": torch.randn(4, weight.shape[1]), "B": torch.randn(weight.shape[0], 4)}
    tensors = {f"base_model.model.{layer}.lora_{part}.weight": tensor for part, tensor in pair.items()}
    save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 4, "lora_alpha": 8, **config}))
    return folder


def logits(model: LlamaForCausalLM) -> torch.Tensor:
    with torch.no_grad():
        return model(IDS, use_cache=False).logits[0]


def merged(model: LlamaForCausalLM, folder: Path, scale: float) -> torch.Tensor:
    tensors = load_file(folder / "adapter_model.safetensors")
    down, up = (tensors[f"base_model.model.{LAYER}.lora_{part}.weight"] for part in "AB")
    weight = model.get_submodule(LAYER).weight
    before = weight.clone()
    with torch.no_grad():
        weight += scale * up @ down
        rows = logits(model)
        weight.copy_(before)
    return rows


@pytest.mark.parametrize(("config", "scale"), [({}, 2.0), ({"use_rslora": True}, 4.0)])
def test_tokens_have_the_adapter_of_their_request(
    tmp_path: Path, target: LlamaForCausalLM, config: dict[str, Any], scale: float
) -> None:
    """The second pass has two requests; without paged attention the second one sees the tokens of the first."""
    folder = save(tmp_path / "a", target, **config)
    plain, wanted = logits(target), merged(target, folder, scale)
    lora = LoraAdapters([folder], target)
    assert torch.equal(logits(target), plain)
    lora.select([0], np.array([6]), torch.from_numpy)
    torch.testing.assert_close(logits(target), wanted, rtol=1e-4, atol=1e-4)
    lora.select([None, 0], np.array([2, 4]), torch.from_numpy)
    mixed = logits(target)
    torch.testing.assert_close(mixed[:2], plain[:2], rtol=1e-4, atol=1e-4)
    assert (mixed[2:] - plain[2:]).abs().amax(dim=1).gt(1e-2).all()


def test_each_adapter_is_added_for_its_own_requests(tmp_path: Path, target: LlamaForCausalLM) -> None:
    folders = [save(tmp_path / name, target, seed=seed) for seed, name in enumerate("ab")]
    wanted = [merged(target, folder, 2.0) for folder in folders]
    lora = LoraAdapters(folders, target)
    for place in (1, 0, 1):
        lora.select([place], np.array([6]), torch.from_numpy)
        torch.testing.assert_close(logits(target), wanted[place], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("config", "layer", "code", "words"),
    [
        ({"lora_alpha": None}, LAYER, "V-LORA-CONFIG", "no readable adapter_config.json"),
        ({"use_dora": True}, LAYER, "V-LORA-CONFIG", "use_dora = True is not supported, expected False"),
        ({"bias": "all"}, LAYER, "V-LORA-CONFIG", "bias = 'all'"),
        ({"modules_to_save": ["lm_head"]}, LAYER, "V-LORA-CONFIG", "modules_to_save"),
        ({}, "lm_head", "V-LORA-WEIGHTS", "lm_head.lora_A.weight belongs to no linear layer"),
    ],
)
def test_what_is_not_a_plain_adapter_is_refused(
    tmp_path: Path, target: LlamaForCausalLM, config: dict[str, Any], layer: str, code: str, words: str
) -> None:
    with pytest.raises(VerispecError) as caught:
        LoraAdapters([save(tmp_path / "a", target, layer, **config)], target)
    assert caught.value.diagnostic.code == code
    assert words in str(caught.value)


def test_weights_of_another_model_are_refused(tmp_path: Path, target: LlamaForCausalLM) -> None:
    folder = save(tmp_path / "a", target)
    name = f"base_model.model.{LAYER}.lora_A.weight"
    for tensors, words in (
        ({name: torch.zeros(4, 5), name.replace("_A", "_B"): torch.zeros(7, 4)}, "are [7, 4] and [4, 5], expected ["),
        ({name: torch.zeros(4, 5)}, "has no lora_B beside it"),
    ):
        save_file(tensors, folder / "adapter_model.safetensors")
        with pytest.raises(VerispecError, match="do not fit") as caught:
            LoraAdapters([folder], target)
        assert words in str(caught.value)
    with pytest.raises(VerispecError, match="not a LoRA adapter"):
        LoraAdapters([tmp_path / "absent"], target)
