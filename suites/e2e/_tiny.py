"""Random models over eight tokens: every sequence of three can be enumerated, and texts end."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

VOCAB = 8
EOS = 0
FLATTER = 2 / 3
"""Of the logits, so that a temperature of 2, the most that vLLM takes, leaves every token possible."""


def save_tiny(folder: Path) -> dict[str, Path]:
    """Write a target and a draft model that disagree often enough; returns their folders by name."""
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=64,
        tie_word_embeddings=False,
        initializer_range=0.35,
        bos_token_id=None,
        eos_token_id=EOS,
    )
    folders = {"target": folder / "target", "draft": folder / "draft"}
    with torch.random.fork_rng(devices=[]):
        for key, path in enumerate(folders.values(), start=11):
            torch.manual_seed(key)
            model = LlamaForCausalLM(config)
            with torch.no_grad():
                model.lm_head.weight.mul_(FLATTER)
            model.save_pretrained(path)
    return folders
