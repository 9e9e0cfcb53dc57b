"""Run all stages in order; see the package."""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads it once, at its first call

import torch
from torch import Tensor
from torch.nn import Module

from . import build, corpus, export
from .measure import measure
from .recipe import TINY, Recipe, Stage
from .training import Loss, batches, round_to_bfloat16, train


def main() -> None:
    """Parse the command line and train."""
    parser = argparse.ArgumentParser(prog="python -m tools.train_fixtures", description="Train the models of fixtures/")
    parser.add_argument("--out", type=Path, required=True, help="folder for models/, prompts.json, provenance.json")
    parser.add_argument("--tiny", action="store_true", help="toy sizes, for a CPU: proves the script, not the models")
    each = ("TARGET", "DRAFT", "EAGLE3")
    parser.add_argument("--minutes", type=float, nargs=3, metavar=each, help="most training time of each")
    parser.add_argument("--steps", type=int, nargs=3, metavar=each, help="training steps of each")
    arguments = parser.parse_args()
    recipe = TINY if arguments.tiny else Recipe()
    names = ("train_target", "train_draft", "train_eagle3")
    for index, name in enumerate(names):
        stage: Stage = getattr(recipe, name)
        if arguments.minutes:
            stage = replace(stage, minutes=arguments.minutes[index])
        if arguments.steps:
            stage = replace(stage, steps=arguments.steps[index])
        recipe = replace(recipe, **{name: stage})
    run(recipe, arguments.out)


def run(recipe: Recipe, out: Path) -> None:
    """Train everything by `recipe` and write it under `out`."""
    start = time.monotonic()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(recipe.seed)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cuda.enable_cudnn_sdp(False)  # slower here than flash attention, and no more repeatable
    torch.utils.deterministic.fill_uninitialized_memory = False

    def log(text: str) -> None:
        print(f"[{time.monotonic() - start:6.1f} s] {text}", flush=True)

    def fit(name: str, model: Module, loss: Loss, stage: Stage, *streams: Tensor) -> dict[str, Any]:
        data, held_back = (batches(stream, stage, recipe.seed) for stream in streams)
        return train(name, model, loss, stage, data=data, validation=next(held_back))

    texts = corpus.read_corpus(recipe.files)
    tokenizer = corpus.train_tokenizer(texts.train, recipe.vocab_size)
    stream = corpus.encode(tokenizer, texts.train).to(device)
    validation = corpus.encode(tokenizer, texts.validation).to(device)
    prompts = corpus.cut_prompts(tokenizer, texts.held_back, recipe.prompts, recipe.measured_prompt)
    log(f"{texts.files} files, {tokenizer.get_vocab_size()} token types, {len(stream):,} tokens to train on")

    target = build.llama(recipe.target, recipe).to(device)
    results = {"target": fit("target", target, build.text_loss(target), recipe.train_target, stream, validation)}
    round_to_bfloat16(target)
    target.eval().requires_grad_(False)

    written = build.write(target, stream, recipe.written, recipe, recipe.seed)
    held_written = build.write(target, validation, max(8, recipe.written // 64), recipe, recipe.seed + 1)
    mixture, held_mixture = torch.cat((stream, written)), torch.cat((validation[: len(held_written)], held_written))
    log(f"the target wrote {len(written):,} tokens")

    draft = build.llama(recipe.draft, recipe).to(device)
    loss = build.distillation_loss(target, draft)
    results["draft"] = fit("draft", draft, loss, recipe.train_draft, mixture, held_mixture)
    round_to_bfloat16(draft)

    kept = build.frequent(mixture, recipe.vocab_size, recipe.draft_vocab_size)
    covered = torch.isin(held_mixture, kept).float().mean().item()
    log(f"the draft vocabulary covers {covered:.1%} of held-back tokens")
    head = build.eagle3_head(target, kept, recipe)
    loss = build.eagle3_loss(target, head, recipe)
    results["eagle3"] = fit("eagle3", head, loss, recipe.train_eagle3, mixture, held_mixture)
    round_to_bfloat16(head)

    ids = torch.tensor([tokenizer.encode(prompt["text"]).ids[: recipe.measured_prompt] for prompt in prompts])
    acceptance = measure(target, draft, head, ids.to(device), recipe)
    log(f"held-back text, greedy, K = {recipe.num_drafts}:")
    for name, row in acceptance.items():
        print(f"  {name:12} {row['tokens_a_step']:.2f} tokens a step, by position {row['acceptance_by_position']}")

    export.save_eagle3(out / "models" / "eagle3", head, recipe)
    export.save_model(out / "models" / "target", target, tokenizer, recipe)
    export.save_model(out / "models" / "draft", draft, tokenizer, recipe)
    export.write_json(out / "prompts.json", prompts)
    export.save_provenance(
        out,
        {
            "script": "python -m tools.train_fixtures --steps "
            + " ".join(str(result["steps"]) for result in results.values()),
            **export.circumstances(texts, len(stream), device, start),
            "repeatable": "bit for bit on a CPU; on a GPU the backward pass of attention adds in no fixed order",
            "recipe": asdict(recipe),
            "training": results,
            "draft_vocabulary_coverage": round(covered, 4),
            "acceptance": {"text": "held-back files, greedy", "num_drafts": recipe.num_drafts, **acceptance},
        },
    )
    log(f"written to {out}")


if __name__ == "__main__":
    main()
