"""Sliding windows of a Mistral are ignored by the models that ONNX Runtime GenAI 0.18.0 builds for the CPU.

    pip install onnxruntime-genai==0.18.0 onnx onnx-ir torch transformers
    python onnxruntime_genai_0_18_0.py

Seen on 2026-11-23 on Linux: the lines in the comments.
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
from transformers import MistralConfig, MistralForCausalLM, PreTrainedTokenizerFast

TOKENS = 24


def checkpoint(folder: Path, window: int | None) -> MistralForCausalLM:
    """Save and return a small Mistral with random weights; each layer sees `window` tokens."""
    torch.manual_seed(0)
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    sizes = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "vocab_size": 512}
    model = MistralForCausalLM(MistralConfig(**sizes, **heads, sliding_window=window, max_position_embeddings=256))
    model.save_pretrained(folder)
    words = Tokenizer(models.WordLevel({str(token): token for token in range(512)}, unk_token="0"))
    PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(folder)
    return model.eval()


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


def expected(model: MistralForCausalLM, prompt: list[int]) -> list[int]:
    """Return the greedy tokens of transformers."""
    ids = torch.tensor([prompt])
    length = {"max_new_tokens": TOKENS, "min_new_tokens": TOKENS}
    answer = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, **length)
    return answer[0, len(prompt) :].tolist()


with tempfile.TemporaryDirectory() as made:
    root = Path(made)
    windowed, full = checkpoint(root / "windowed", 20), checkpoint(root / "full", None)
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
