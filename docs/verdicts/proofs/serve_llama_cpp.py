"""Serve a checkpoint of verispec's fixtures by llama.cpp, with a draft model or without, in float32.

    pip install xllamacpp gguf numpy safetensors torch
    python serve_llama_cpp.py PORT fixtures/models/target [fixtures/models/draft]

Serves until it is stopped. Flash attention is off: on the CPU it computes in half precision, whatever the cache holds.
Log-probabilities are then within 8e-6 of the float64 model's, and up to 1.3e-3 from them with it.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

import gguf
import numpy as np
import xllamacpp
from safetensors.torch import load_file

NAMES = {
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
"""Weights of a layer: names of transformers, and of GGUF."""


def place(name: str) -> str:
    """Return the GGUF name of a weight."""
    if name == "model.embed_tokens.weight":
        return "token_embd.weight"
    if name == "model.norm.weight":
        return "output_norm.weight"
    _, _, layer, part = name.split(".", 3)
    return f"blk.{layer}.{NAMES[part.removesuffix('.weight')]}.weight"


def interleaved(weight: np.ndarray, heads: int) -> np.ndarray:
    """Return the rows of a projection in llama.cpp's order: pairs of a rotation are neighbours."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def converted(folder: Path, path: Path) -> str:
    """Write the checkpoint of a folder as GGUF, and return the path."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    words = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    tokens = sorted(words["vocab"], key=words["vocab"].__getitem__)
    end = config["eos_token_id"]
    writer.add_token_list(tokens)
    kinds = [gguf.TokenType.CONTROL if n == end else gguf.TokenType.NORMAL for n in range(len(tokens))]
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(pair) for pair in words["merges"]])
    writer.add_eos_token_id(end)
    writer.add_add_bos_token(False)
    for name, weight in load_file(folder / "model.safetensors").items():
        values = weight.float().numpy()
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            queries = name.endswith("q_proj.weight")
            values = interleaved(values, config["num_attention_heads" if queries else "num_key_value_heads"])
        writer.add_tensor(place(name), np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return str(path)


def main(port: str, target: str, draft: str = "") -> None:
    """Convert the checkpoints and serve them."""
    options = xllamacpp.CommonParams()
    with tempfile.TemporaryDirectory() as made:
        options.model.path = converted(Path(target), Path(made) / "target.gguf")
        options.port, options.n_ctx, options.n_parallel = int(port), 32 * 1024, 32
        options.cache_type_k = options.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        options.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        options.cpuparams.n_threads = 1
        if draft:
            options.speculative.draft.mparams.path = converted(Path(draft), Path(made) / "draft.gguf")
            options.speculative.types = [xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
            options.speculative.draft.n_max = 3
            options.speculative.draft.cache_type_k = options.cache_type_k
            options.speculative.draft.cache_type_v = options.cache_type_v
        options.model_alias = {"target"}
        server = xllamacpp.Server(options)
        print(server.listening_address, flush=True)
        while True:
            time.sleep(60)


main(*sys.argv[1:])
