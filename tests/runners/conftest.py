"""Small random checkpoints, and what transformers' own greedy generation makes of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from verispec.engines.protocol.generation import LoadOptions
from verispec.reference.models import Eagle3Config, Eagle3Head, MTPConfig, MTPHead, decode_graphs, load_target
from verispec.reference.models.mtp import PREFIX
from verispec.reference.runners import step_graphs
from verispec.reference.runners.base import BaseRunner
from verispec.reference.runners.cpu import CPURunner

VOCAB = 97
LAYERS = 4
AUX_LAYERS = [1, 2, 3]


@dataclass(frozen=True)
class Models:
    """Folders of a target, of a draft model that agrees with it most of the time, of an Eagle3 head and an MTP layer.

    The draft model has a mask token too, so that method "parallel" drafts with it. `reference` is the target as
    transformers runs it, without anything of ours, and `drafter` the draft model.
    """

    target: Path
    draft: Path
    head: Path
    mtp: Path
    reference: PreTrainedModel
    drafter: PreTrainedModel

    def runner(self, method: str = "none", kind: type[BaseRunner] = CPURunner, **settings: Any) -> BaseRunner:
        parallel = method == "parallel"
        method = "draft_model" if parallel else method
        draft = {"draft_model": self.draft, "eagle3": self.head, "mtp": self.mtp}.get(method)
        return kind(self.target, LoadOptions(method=method, draft=draft, parallel_drafting=parallel, **settings))

    def continue_greedily(self, prompt: Sequence[int], count: int) -> tuple[int, ...]:
        """`count` tokens by transformers, whatever they are."""
        with torch.no_grad():
            output = self.reference.generate(
                torch.tensor([list(prompt)]), do_sample=False, max_new_tokens=count, eos_token_id=None, pad_token_id=0
            )
        return tuple(output[0, len(prompt) :].tolist())


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """The models are so small that a second thread only costs."""
    torch.set_num_threads(1)


@pytest.fixture
def times(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Number of times after which whole steps are graphs.

    Without a GPU they are recorded at the second time: the times before are launched, and cost as much as others.
    """
    if request.node.get_closest_marker("gpu"):
        return decode_graphs.RECORD_AT
    for module in (decode_graphs, step_graphs):
        monkeypatch.setattr(module, "RECORD_AT", 2)
    return 2


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    folder = tmp_path_factory.mktemp("checkpoints")
    torch.manual_seed(4)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        initializer_range=0.2,
        bos_token_id=0,
        eos_token_id=1,
    )
    target = LlamaForCausalLM(config)
    target.save_pretrained(folder / "target")
    with torch.no_grad():
        for name, weight in target.named_parameters():
            if "layers" in name and weight.ndim == 2:
                weight.add_(torch.randn_like(weight), alpha=0.01)
    target.save_pretrained(folder / "draft")
    described = json.loads((folder / "draft" / "config.json").read_text())
    (folder / "draft" / "config.json").write_text(json.dumps({**described, "pard_token": VOCAB - 1}))
    _save_head(folder / "head", target)
    _save_mtp(folder / "mtp", target)
    paths = folder / "target", folder / "draft"
    return Models(*paths, folder / "head", folder / "mtp", *(load_target(path) for path in paths))


def _save_mtp(folder: Path, target: PreTrainedModel) -> None:
    fields = {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": VOCAB,
        "max_position_embeddings": 256,
    }
    layer = MTPHead(MTPConfig(num_hidden_layers=1, **fields), target)
    with torch.no_grad():
        for weight in layer.parameters():
            if weight.ndim == 2:
                weight.normal_(std=0.2)
    tensors = {PREFIX + name.removeprefix("mtp_block."): tensor for name, tensor in layer.state_dict().items()}
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors")
    config = {"architectures": ["MiMoForCausalLM"], "model_type": "qwen2", "num_nextn_predict_layers": 1} | fields
    (folder / "config.json").write_text(json.dumps(config))


def _save_head(folder: Path, target: PreTrainedModel) -> None:
    fields = {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": VOCAB,
        "draft_vocab_size": 41,
        "max_position_embeddings": 256,
        "eagle_aux_hidden_state_layer_ids": AUX_LAYERS,
    }
    head = Eagle3Head(Eagle3Config(**fields), target.get_input_embeddings())
    with torch.no_grad():
        for weight in (*head.fc.parameters(), *head.midlayer.parameters(), *head.lm_head.parameters()):
            if weight.ndim == 2:
                weight.normal_(std=0.2)
    ids = torch.randperm(VOCAB)[:41].sort().values
    tensors = {k: v.contiguous() for k, v in head.state_dict().items() if not k.startswith(("embed_tokens", "rotary"))}
    tensors["d2t"] = ids - torch.arange(41)
    tensors["t2d"] = torch.zeros(VOCAB, dtype=torch.bool).index_fill_(0, ids, True)
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors")
    config = {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama"} | fields
    (folder / "config.json").write_text(json.dumps(config))


@pytest.fixture(scope="session")
def prompts() -> list[tuple[int, ...]]:
    """Prompts of 1 to 60 tokens, one of them repetitive so that prompt lookup finds something."""
    rng = np.random.default_rng(7)
    drawn = [tuple(rng.integers(2, VOCAB, size).tolist()) for size in (1, 3, 17, 60, 40)]
    return [*drawn, (5, 9, 33, 12) * 5]


@pytest.fixture(scope="session")
def expected(models: Models, prompts: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Greedy continuations of the prompts by transformers, 24 tokens each, the end-of-sequence token ignored."""
    return [models.continue_greedily(prompt, 24) for prompt in prompts]
