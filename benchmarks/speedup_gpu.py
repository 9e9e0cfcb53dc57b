"""Speed-up of drafting by the number of tokens per step, on a random checkpoint of the shape of a 1B model.

    python benchmarks/speedup_gpu.py [--rounds 3] [--tiny] [--out benchmarks/speedup_gpu.md]

Acceptance is synthetic: each step emits 1 to K + 1 tokens on average, whatever the random weights say. Rounds go
through all runners in turn, and the best round of each counts. `--tiny` runs small shapes on the CPU, as a test of this
program.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

from verispec.engines.protocol.generation import GenerationRequest, LoadOptions
from verispec.reference.models import Eagle3Config, Eagle3Head
from verispec.reference.runners.base import BaseRunner
from verispec.reference.runners.cpu import CPURunner
from verispec.reference.runners.gpu import GPURunner

DRAFTS = 3
PROMPT_TOKENS = 64
NEW_TOKENS = 96
BATCHES = (1, 16)
ONE_BILLION: dict[str, int] = {
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "vocab_size": 128256,
    "max_position_embeddings": 1024,
}
TINY = ONE_BILLION | {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 512,
    "num_hidden_layers": 8,
}


@dataclass(frozen=True)
class Sizes:
    """Bytes of weights that one pass reads."""

    target: int
    head: int

    def ideal(self, tokens: float) -> float:
        """Return the speed-up at `tokens` per step if passes took the time of their weights and nothing else did."""
        return tokens / (1 + DRAFTS * self.head / self.target)


def make_checkpoints(folder: Path, shape: dict[str, int], device: torch.device) -> Sizes:
    """Write a random target and a random Eagle3 head for it, both in bfloat16."""
    torch.manual_seed(0)
    config = LlamaConfig(**shape, tie_word_embeddings=True, eos_token_id=0, bos_token_id=None)
    with device:
        target = LlamaForCausalLM(config).eval()
    (folder / "target").mkdir()
    target.bfloat16().save_pretrained(folder / "target")
    draft_vocab_size = shape["vocab_size"] // 4
    fields = shape | {
        "draft_vocab_size": draft_vocab_size,
        "target_hidden_size": shape["hidden_size"],
        "num_hidden_layers": 1,
    }
    head = Eagle3Head(Eagle3Config(**fields), target.get_input_embeddings())
    tensors = {name: tensor for name, tensor in head.state_dict().items() if name != "embed_tokens.weight"}
    tensors["t2d"] = torch.arange(shape["vocab_size"], device=device) < draft_vocab_size
    (folder / "head").mkdir()
    save_file({name: tensor.contiguous().cpu() for name, tensor in tensors.items()}, folder / "head/model.safetensors")
    names: dict[str, Any] = {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", **fields}
    (folder / "head/config.json").write_text(json.dumps(names), encoding="utf-8")
    # Every pass reads the tied embeddings, as the last product, and the head's weights but for fc, once per step.
    read = [tensor for name, tensor in tensors.items() if name.endswith("weight") and not name.startswith("fc")]
    return Sizes(sum(parameter.numel() for parameter in target.parameters()), sum(tensor.numel() for tensor in read))


def runners(folder: Path, kind: type[BaseRunner]) -> Iterator[tuple[str, BaseRunner]]:
    """Yield the runner without drafts and one for each number of tokens per step."""
    common: dict[str, Any] = {"max_num_seqs": max(BATCHES), "max_model_len": 256}
    yield "none", kind(folder / "target", LoadOptions(**common))
    for tokens in range(1, DRAFTS + 2):
        options = LoadOptions(
            method="eagle3",
            draft=folder / "head",
            num_speculative_tokens=DRAFTS,
            rejection_sample_method="synthetic",
            synthetic_acceptance_length=float(tokens),
            sampler="request_state",
            **common,
        )
        yield f"{tokens}", kind(folder / "target", options)


def measure(folder: Path, kind: type[BaseRunner], rounds: int) -> dict[int, dict[str, float]]:
    """Return the best tokens per second of each runner, by number of prompts."""
    made = dict(runners(folder, kind))
    best: dict[int, dict[str, float]] = {count: {} for count in BATCHES}
    for _ in range(rounds + 1):  # the first round compiles and records
        for count in BATCHES:
            prompts = [tuple(range(1 + i, 1 + i + PROMPT_TOKENS)) for i in range(count)]
            requests = [GenerationRequest(prompt, max_tokens=NEW_TOKENS, ignore_eos=True) for prompt in prompts]
            for name, runner in made.items():
                began = time.perf_counter()
                runner.generate(requests)
                speed = count * NEW_TOKENS / (time.perf_counter() - began)
                best[count][name] = max(best[count].get(name, 0.0), speed)
            print(f"{count} prompts: {best[count]}", file=sys.stderr, flush=True)
    return best


def render(best: dict[int, dict[str, float]], sizes: Sizes, device: str, rounds: int) -> str:
    titles = " | ".join(f"{count} prompt{'s' * (count > 1)}" for count in BATCHES)
    lines = [
        "# Speed-up of drafting by tokens per step",
        "",
        f"{device}, torch {torch.__version__}, float32. Random Llama with {sizes.target / 1e9:.2f} billion weights and",
        f"an Eagle3 head of {sizes.head / 1e9:.2f}; K = {DRAFTS}, synthetic acceptance, prompts of {PROMPT_TOKENS}",
        f"tokens, {NEW_TOKENS} new ones; best of {rounds} rounds that went through all runners in one process.",
        "",
        "The ideal is the speed-up if passes took the time of reading their weights and nothing else did.",
        "",
        f"| tokens per step | ideal | {titles} |",
        "| --- | ---: |" + " ---: |" * len(BATCHES),
    ]
    for tokens in range(1, DRAFTS + 2):
        ratios = [best[count][f"{tokens}"] / best[count]["none"] for count in BATCHES]
        lines.append(f"| {tokens} | {sizes.ideal(tokens):.2f} | {' | '.join(f'{ratio:.2f}' for ratio in ratios)} |")
    speeds = [f"{best[count]['none']:,.0f}" for count in BATCHES]
    lines += ["", f"Tokens per second without drafts: {', '.join(speeds)}."]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tiny", action="store_true", help="small shapes on the CPU")
    parser.add_argument("--out", type=Path, help="Markdown file to write besides printing it")
    arguments = parser.parse_args()
    kind: type[BaseRunner] = CPURunner if arguments.tiny else GPURunner
    name = "CPU" if arguments.tiny else torch.cuda.get_device_name()
    with tempfile.TemporaryDirectory() as folder:
        sizes = make_checkpoints(Path(folder), TINY if arguments.tiny else ONE_BILLION, kind.device)
        text = render(measure(Path(folder), kind, arguments.rounds), sizes, name, arguments.rounds)
    print(text)
    if arguments.out:
        arguments.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
