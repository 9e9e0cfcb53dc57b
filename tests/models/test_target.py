"""Loading causal models, and errors for folders that are not models."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

from verispec.errors import VerispecError
from verispec.reference.models import load_target, load_tokenizer

IDS = torch.arange(12)[None]
SMALL = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_loads_a_llama_in_the_dtype_asked_for(checkpoints: Path, target: LlamaForCausalLM, dtype: torch.dtype) -> None:
    model = load_target(checkpoints / "target", dtype)
    assert {parameter.dtype for parameter in model.parameters()} == {dtype}
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, target.state_dict()[name].to(dtype)), name


@pytest.mark.parametrize(
    ("config", "kind"),
    [(Qwen2Config(**SMALL), Qwen2ForCausalLM), (Qwen3Config(**SMALL), Qwen3ForCausalLM)],
    ids=["qwen2", "qwen3"],
)
def test_loads_qwen(tmp_path: Path, config: Qwen2Config, kind: Callable[..., Qwen2ForCausalLM]) -> None:
    saved = kind(config).eval()
    saved.save_pretrained(tmp_path)
    with torch.no_grad():
        assert torch.equal(load_target(tmp_path)(IDS).logits, saved(IDS).logits)


def test_the_tokenizer_gives_text_back(checkpoints: Path) -> None:
    tokenizer = load_tokenizer(checkpoints / "target")
    text = "def spec_decode(k: int) -> list[int]:  # übung"
    assert tokenizer.decode(tokenizer(text).input_ids) == text


def configure(**changes: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


def drop_weight(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def cut_weights(folder: Path) -> None:
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[: len(data) // 2])


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "no config": (lambda folder: (folder / "config.json").unlink(), "V-MODEL-FOLDER"),
    "config no JSON": (lambda folder: (folder / "config.json").write_text("{"), "V-MODEL-CONFIG"),
    "config a list": (lambda folder: (folder / "config.json").write_text("[]"), "V-MODEL-CONFIG"),
    "unknown model": (configure(model_type="x"), "V-MODEL-KIND"),
    "no causal model": (configure(model_type="vit", architectures=["ViTModel"]), "V-MODEL-KIND"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "V-MODEL-WEIGHTS"),
    "a weight missing": (drop_weight, "V-MODEL-WEIGHTS"),
    "another width": (configure(intermediate_size=100), "V-MODEL-WEIGHTS"),
    "half a file": (cut_weights, "V-MODEL-WEIGHTS"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_folder_is_named(checkpoints: Path, name: str) -> None:
    damage, code = BROKEN[name]
    damage(checkpoints / "target")
    with pytest.raises(VerispecError) as error:
        load_target(checkpoints / "target")
    assert error.value.diagnostic.code == code
    assert str(checkpoints / "target") in error.value.diagnostic.where


def test_no_folder_at_all(tmp_path: Path) -> None:
    for load in (load_target, load_tokenizer):
        with pytest.raises(VerispecError, match=r"V-MODEL-FOLDER.*no such folder"):
            load(tmp_path / "none")


@pytest.mark.parametrize("name", ["eagle3", "eagle3_speculators"])
def test_a_head_is_no_target(checkpoints: Path, name: str) -> None:
    with pytest.raises(VerispecError, match=r"V-MODEL-KIND.*Eagle3 head"):
        load_target(checkpoints / name)


def test_a_folder_without_tokenizer_is_named(checkpoints: Path) -> None:
    for file in (checkpoints / "target").glob("tokenizer*"):
        file.unlink()
    with pytest.raises(VerispecError, match=r"V-MODEL-TOKENIZER"):
        load_tokenizer(checkpoints / "target")
