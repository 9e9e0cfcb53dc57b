"""Llama checkpoints as GGUF files in float32, with token ids for words: a text then says which tokens it has."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import torch

from verispec.engines.adapters.checkpoints import content_key, require_plain_llama
from verispec.engines.adapters.llama_text import word
from verispec.engines.checkout import filled_folder
from verispec.reference.models import load_target

_PARTS = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
"""Names of weights in transformers and in GGUF: in a layer, and outside of the layers."""


def converted(folder: Path) -> Path:
    """Return the GGUF file of a checkpoint, written once and cached by the checkpoint's content.

    Args:
        folder: a checkpoint folder.

    Raises:
        UnsupportedCall: the checkpoint is not a plain Llama model.
        VerispecError: V-MODEL-*, the checkpoint cannot be loaded.
    """
    key = content_key((folder,), Path(__file__).read_text("utf-8"))
    return filled_folder("gguf", key, lambda to: _write(folder, to / "model.gguf")) / "model.gguf"


def _write(folder: Path, path: Path) -> None:
    model = load_target(folder)
    require_plain_llama(model)
    config, gguf = model.config, importlib.import_module("gguf")
    heads, kv_heads, width = config.num_attention_heads, config.num_key_value_heads, config.hidden_size
    size = getattr(config, "head_dim", None) or width // heads
    base = config.rope_parameters["rope_theta"]
    writer: Any = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(width)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(size)
    writer.add_value_length(size)
    writer.add_rope_dimension_count(size)
    writer.add_rope_freq_base(base)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    # Of the tokenizers with words, this one alone has no end of sequence unless a file names one.
    writer.add_tokenizer_model("rwkv")
    writer.add_token_list([word(token) for token in range(config.vocab_size)])
    writer.add_token_types([gguf.TokenType.NORMAL] * config.vocab_size)
    for name, weight in model.state_dict().items():
        values = weight.to(torch.float32).numpy()
        for part, of in (("q_proj", heads), ("k_proj", kv_heads)):
            if name.endswith(f"{part}.weight"):
                values = _interleaved(values, of)
        writer.add_tensor(_renamed(name), np.ascontiguousarray(values))
    plain = base ** -(np.arange(0, size, 2) / size)
    divisors = plain / model.model.rotary_emb.inv_freq.to(torch.float64).numpy()
    writer.add_tensor("rope_freqs.weight", divisors.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _renamed(name: str) -> str:
    stem = name.removesuffix(".weight")
    if stem in _WHOLE:
        return f"{_WHOLE[stem]}.weight"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{_PARTS[part]}.weight"


def _interleaved(weight: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """Return the rows of a projection in an order in which the two of a rotation are neighbours."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)
