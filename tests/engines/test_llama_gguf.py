"""Converted checkpoints against transformers, on llama.cpp itself; and what is not converted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from verispec import fixtures
from verispec.engines import UnsupportedCall
from verispec.engines.adapters.llama_gguf import converted
from verispec.engines.protocol.generation import GenerationRequest
from verispec.engines.registry import resolve
from verispec.reference.models import load_target

ROTATIONS = {
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
}


@pytest.fixture(params=["target", "draft", *ROTATIONS])
def checkpoint(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A fixture, or a small model with the named rotations and an output layer of its own."""
    if request.param not in ROTATIONS:
        return fixtures.model(request.param)
    config = LlamaConfig(
        vocab_size=96,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        initializer_range=0.2,
        rope_parameters={"rope_theta": 5000.0} | ROTATIONS[request.param],
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        LlamaForCausalLM(config).save_pretrained(tmp_path)
    return tmp_path


@pytest.mark.llama
def test_logprobs_are_those_of_transformers(checkpoint: Path) -> None:
    """A float32 sum of up to 512 products errs by about 1e-5; a wrong rotation or order of rows by more than 0.01."""
    prompt = tuple(range(3, 83))
    generator: Any = resolve("llama.cpp").load(checkpoint, max_num_seqs=1)
    [result] = generator.generate([GenerationRequest(prompt, max_tokens=8, ignore_eos=True, logprobs=3)])
    generator.close()
    rows = torch.tensor([[*prompt, *result.token_ids]])
    with torch.inference_mode():
        exact = load_target(checkpoint, torch.float64)(rows).logits[0].log_softmax(-1)[len(prompt) - 1 : -1]
    assert [entry.top[0][0] for entry in result.logprobs] == exact.argmax(-1).tolist()
    for entry, row in zip(result.logprobs, exact, strict=True):
        for token, value in entry.top:
            assert value == pytest.approx(float(row[token]), abs=1e-4)


def test_other_models_are_refused() -> None:
    with pytest.raises(UnsupportedCall, match="models of class"):
        converted(fixtures.model("hybrid"))
