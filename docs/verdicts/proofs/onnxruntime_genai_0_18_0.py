"""Models that ONNX Runtime GenAI 0.18.0 builds ignore a Mistral's sliding window and a Llama's rotary scaling.

    pip install onnxruntime-genai==0.18.0 onnx onnx-ir torch transformers
    python onnxruntime_genai_0_18_0.py

Seen on 2026-11-23 and 2026-11-29 on Linux: the lines in the comments.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime_genai as genai
import torch
from tokenizers import Tokenizer, models
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

TOKENS = 24
SIZES = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "vocab_size": 512}
SIZES |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256}


def saved(folder: Path, kind: type[PreTrainedModel], config: PreTrainedConfig) -> PreTrainedModel:
    """Save and return a small model with random weights."""
    torch.manual_seed(0)
    model = kind(config)
    model.save_pretrained(folder)
    words = Tokenizer(models.WordLevel({str(token): token for token in range(512)}, unk_token="0"))
    PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(folder)
    return model.eval()


def mistral(folder: Path, window: int | None) -> PreTrainedModel:
    """Save and return a Mistral; each layer sees `window` tokens."""
    return saved(folder, MistralForCausalLM, MistralConfig(**SIZES, sliding_window=window))


def llama(folder: Path, **rotary: object) -> PreTrainedModel:
    """Save and return a Llama with fields of its rotary embedding."""
    return saved(folder, LlamaForCausalLM, LlamaConfig(**SIZES, rope_parameters={"rope_theta": 10000.0} | rotary))


def built(source: Path, to: Path, *options: str) -> Path:
    """Return `to`, the folder that the model builder of ONNX Runtime GenAI fills from `source`."""
    given = ["-i", source, "-o", to, "-c", source, "-p", "fp32", "-e", "cpu", *options]
    command = [sys.executable, "-m", "onnxruntime_genai.models.builder", *map(str, given)]
    subprocess.run(command, check=True, capture_output=True)
    return to


def windows(folder: Path) -> set[int]:
    """Return the windows of the attention nodes of a built model."""
    nodes = [n for n in onnx.load(folder / "model.onnx").graph.node if n.op_type == "GroupQueryAttention"]
    return {value.i for node in nodes for value in node.attribute if value.name == "local_window_size"}


def text(folder: Path, prompt: list[int]) -> list[int]:
    """Return the greedy tokens after a prompt."""
    model = genai.Model(str(folder))
    options = genai.GeneratorParams(model)
    options.set_search_options(max_length=len(prompt) + TOKENS, min_length=len(prompt) + TOKENS, do_sample=False)
    generator = genai.Generator(model, options)
    generator.append_tokens(np.array(prompt, np.int32))
    tokens = []
    while not generator.is_done():
        generator.generate_next_token()
        tokens.append(int(generator.get_next_tokens()[0]))
    return tokens


def expected(model: PreTrainedModel, prompt: list[int]) -> list[int]:
    """Return the greedy tokens of transformers."""
    ids = torch.tensor([prompt])
    length = {"max_new_tokens": TOKENS, "min_new_tokens": TOKENS}
    answer = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, **length)
    return answer[0, len(prompt) :].tolist()


with tempfile.TemporaryDirectory() as made:
    root = Path(made)
    windowed, full = mistral(root / "windowed", 20), mistral(root / "full", None)
    whole = ["--extra_options", "windowed_kv_cache=false"]
    folders = {"by default": built(root / "windowed", root / "by_default")}
    folders["windowed_kv_cache=false"] = built(root / "windowed", root / "whole", *whole)
    for name, folder in folders.items():
        print(f"{name}: local_window_size is {windows(folder)}, sliding_window of the checkpoint 20")  # {-1}, twice
        for length in (5, 30):
            prompt = list(range(7, 7 + length))
            try:
                found = text(folder, prompt)
                print(
                    f"{name}, prompt of {length}:",
                    f"transformers' text {found == expected(windowed, prompt)},",  # False, where there is a text
                    f"transformers' text without a window {found == expected(full, prompt)}",  # True
                )
            except RuntimeError as error:  # by default, prompt of 30: GroupQueryAttention, INVALID_ARGUMENT
                print(f"{name}, prompt of {length}: {' '.join(str(error).split())}")
    plain, prompt = llama(root / "plain", rope_type="default"), list(range(7, 37))
    for kind in ("linear", "yarn"):
        scaled = llama(root / kind, rope_type=kind, factor=4.0, original_max_position_embeddings=64)
        found = text(built(root / kind, root / f"built_{kind}"), prompt)
        print(
            f"rope_type {kind}: transformers' text {found == expected(scaled, prompt)},",  # False, twice
            f"transformers' text without scaling {found == expected(plain, prompt)}",  # True, twice
        )
