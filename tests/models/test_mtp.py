"""MTP layers and models of parallel drafting: checkpoints that cannot be used are refused in words."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from verispec import fixtures
from verispec.errors import VerispecError
from verispec.reference.models import load_mtp, load_target, mask_token
from verispec.reference.models.mtp import PREFIX

Tensors = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def target() -> PreTrainedModel:
    return load_target(fixtures.model("target"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(fixtures.model("mtp"), tmp_path / "mtp"))


def edit_config(folder: Path, **changed: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changed}))


def edit_tensors(folder: Path, change: Callable[[Tensors], Tensors]) -> None:
    tensors = load_file(folder / "model.safetensors")
    save_file(change(tensors), folder / "model.safetensors")


def test_a_checkpoint_with_its_target_gives_the_same_layer(target: PreTrainedModel, folder: Path) -> None:
    alone = load_mtp(folder, target).state_dict()
    edit_tensors(folder, lambda tensors: {**tensors, "model.norm.weight": torch.ones(256)})
    whole = load_mtp(folder, target).state_dict()
    assert alone.keys() == whole.keys()
    assert all(torch.equal(alone[name], whole[name]) for name in alone)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"architectures": ["LlamaForCausalLM"]}, "V-MODEL-KIND.*expected a checkpoint with an MTP layer, got"),
        ({"num_nextn_predict_layers": 2}, "V-MTP-OPTION.*has 2 MTP layers, expected 1"),
        ({"vocab_size": 2047}, r"V-MTP-TARGET.*\(2047, 256\), this one has \(2048, 256\)"),
        ({"intermediate_size": 256}, "V-MODEL-WEIGHTS.*another shape than config.json says"),
    ],
)
def test_a_wrong_configuration_is_named(
    target: PreTrainedModel, folder: Path, changed: dict[str, Any], message: str
) -> None:
    edit_config(folder, **changed)
    with pytest.raises(VerispecError, match=message):
        load_mtp(folder, target)


def test_missing_and_unknown_tensors_are_named(target: PreTrainedModel, folder: Path) -> None:
    name = f"{PREFIX}input_proj.weight"
    edit_tensors(
        folder, lambda tensors: {k: v for k, v in tensors.items() if k != name} | {f"{PREFIX}x": torch.ones(1)}
    )
    with pytest.raises(VerispecError, match=r"V-MODEL-WEIGHTS.*missing: input_proj\.weight; unknown: x"):
        load_mtp(folder, target)


def test_the_embedding_counts_for_nothing_at_position_0(target: PreTrainedModel) -> None:
    layer = load_mtp(fixtures.model("mtp"), target)
    hidden = torch.linspace(-1, 1, 512).view(1, 2, 256)
    first, second = (layer(torch.tensor([[token, 7]]), hidden, torch.arange(2)[None])[0] for token in (5, 900))
    assert torch.equal(first, second)
    assert not torch.equal(first, layer(torch.tensor([[5, 8]]), hidden, torch.arange(2)[None])[0])


@pytest.mark.parametrize("token", [None, "187"])
def test_a_draft_model_without_a_mask_token_is_named(tmp_path: Path, token: Any) -> None:
    folder = Path(shutil.copytree(fixtures.model("draft_parallel"), tmp_path / "draft"))
    assert mask_token(folder) == 188
    edit_config(folder, pard_token=token)
    with pytest.raises(VerispecError, match=r"V-MODEL-MASK.*expected pard_token in config\.json, got"):
        mask_token(folder)
