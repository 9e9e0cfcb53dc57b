"""Random models over eight tokens: every sequence of three can be enumerated, and texts end."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

VOCAB = 8
EOS = 0
FLATTER = 2 / 3
"""Of the logits, so that a temperature of 2, the most that vLLM takes, leaves every token possible."""


LONG = 1024
"""Positions of the model that `save_long` writes; the others have 64."""
VERY_LONG, WORDS = 33_024, 40
"""Positions, more than 16 bits count, and tokens of the model that `save_very_long` writes."""
UNEVEN = 130
"""Tokens of the model that `save_uneven` writes: parts of 44, 43 and 43, or of 64, 64 and 2."""


def save_tiny(folder: Path) -> dict[str, Path]:
    """Write a target, a draft model that disagrees often enough, and three more made from the target's weights.

    One is close to the target, which accepts a third of its drafts. The likeliest token of the second is the target's
    least likely. The third is sure of the target's likeliest token: its logits are six times as large.

    Returns:
        Their folders by name: target, draft, close, opposite, sure.
    """
    folders = {name: folder / name for name in ("target", "draft", "close", "opposite", "sure")}
    for (name, path), key in zip(folders.items(), (11, 12, 11, 11, 11), strict=True):
        model = _made(key)
        with torch.no_grad():
            model.lm_head.weight.mul_(FLATTER * {"opposite": -1, "sure": 6}.get(name, 1))
            if name == "close":
                noise = torch.Generator().manual_seed(5)
                for weight in model.parameters():
                    weight.add_(0.07 * torch.randn(weight.shape, generator=noise))
        model.save_pretrained(path)
    return folders


def save_long(model: Path, folder: Path) -> Path:
    """Copy `model` as one of `LONG` positions; its rotary embeddings have no end. Returns its folder."""
    shutil.copytree(model, folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": LONG}), encoding="utf-8")
    return folder


def save_very_long(folder: Path) -> Path:
    """Write a target of one layer and head, which reads texts of `VERY_LONG` tokens in seconds; returns its folder.

    Positions in float16 change 7 to 21 tokens of 24 behind thousands, and those in 16 bits 16 behind 32,900.
    """
    _made(3, WORDS, 1, num_hidden_layers=1, max_position_embeddings=VERY_LONG).save_pretrained(folder)
    return folder


def with_masks(model: Path) -> Path:
    """Return the folder of a copy of `model` for parallel drafting, whose mask token is the last one."""
    folder = model.with_name(f"{model.name} with masks")
    if not folder.exists():
        shutil.copytree(model, folder)
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        (folder / "config.json").write_text(json.dumps(config | {"pard_token": VOCAB - 1}), encoding="utf-8")
    return folder


def save_cycle(folder: Path) -> Path:
    """Write a target after whose token t the likeliest one is t + 1, and token 1 after the last; returns its folder."""
    return save_following(folder, (*range(2, VOCAB), 1))


def save_following(folder: Path, following: Sequence[int]) -> Path:
    """Write a target of a fixed text: `following[t - 1]` is the likeliest token after t; returns its folder.

    Its layers add nothing to the embeddings, so that a row of logits is that of the last token alone.

    Args:
        folder: folder to write.
        following: a permutation of all tokens but the end of the sequence, which no text has.
    """
    model = _made(14)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        before = [following.index(token) + 1 for token in range(1, VOCAB)]
        model.lm_head.weight[1:] = model.model.embed_tokens.weight[before]
        model.lm_head.weight[EOS].zero_()
    model.save_pretrained(folder)
    return folder


def save_twins(folder: Path) -> Path:
    """Write a target whose tokens 2i and 2i + 1 always have equal logits, but other embeddings; returns its folder."""
    model = _made(13)
    with torch.no_grad():
        model.lm_head.weight[1::2] = model.lm_head.weight[::2]
    model.save_pretrained(folder)
    return folder


def save_uneven(folder: Path) -> Path:
    """Write a target for three ranks, which do not divide its `UNEVEN` tokens; returns its folder.

    A row of its logits has both signs. A multiple of 64 that holds all tokens is one of three ranks, so that engines
    which pad a vocabulary can split it.
    """
    _made(13, UNEVEN, 3).save_pretrained(folder)
    return folder


def save_biased(folder: Path) -> Path:
    """Write a target whose projections have biases, as large as its other numbers; returns its folder."""
    model = _made(16, attention_bias=True, mlp_bias=True)
    numbers = torch.Generator().manual_seed(6)
    with torch.no_grad():
        for name, bias in model.named_parameters():
            if name.endswith(".bias"):
                bias.copy_(torch.randn(bias.shape, generator=numbers))
    model.save_pretrained(folder)
    return folder


def _made(key: int, vocab: int = VOCAB, heads: int = 2, **fields: Any) -> LlamaForCausalLM:
    own = {
        "vocab_size": vocab,
        "hidden_size": 32 * heads,
        "intermediate_size": 32 * heads,
        "num_hidden_layers": 2,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "head_dim": 32,
        "max_position_embeddings": 64,
        "tie_word_embeddings": False,
        "initializer_range": 0.35,
        "bos_token_id": None,
        "eos_token_id": EOS,
    }
    config = LlamaConfig(**own | fields)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(key)
        return LlamaForCausalLM(config)
