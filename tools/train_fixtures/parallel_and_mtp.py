"""Train a model of parallel drafting and an MTP head, for the finished target and draft.

``python -m tools.train_fixtures.parallel_and_mtp --fixtures fixtures`` reads both checkpoints. It writes
``models/draft_parallel`` and ``models/mtp`` beside them, and adds to ``provenance.json`` how they were made.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from verispec.reference.models import load_target

from . import build, corpus, export
from .measure import measure_parallel_and_mtp
from .recipe import TINY, Recipe
from .training import batches, round_to_bfloat16, train

NEVER_IN_TEXT = "\u00ff"
"""The tokenizer's symbol of byte 255, which no UTF-8 text has: the mask token."""


def main() -> None:
    """Parse the command line and train."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.train_fixtures.parallel_and_mtp", description="Train further drafters"
    )
    parser.add_argument("--fixtures", type=Path, required=True, help="folder of the fixtures")
    parser.add_argument("--tiny", action="store_true", help="few steps, for a CPU: proves the script, not the models")
    parser.add_argument("--steps", type=int, nargs=2, metavar=("PARALLEL", "MTP"), help="training steps of each")
    arguments = parser.parse_args()
    recipe = Recipe()
    if arguments.tiny:
        small = {name: getattr(TINY, name) for name in ("files", "written", "train_parallel", "train_mtp")}
        recipe = replace(recipe, **small)
    if arguments.steps:
        for name, steps in zip(("train_parallel", "train_mtp"), arguments.steps, strict=True):
            recipe = replace(recipe, **{name: replace(getattr(recipe, name), steps=steps)})
    run(recipe, arguments.fixtures)


def run(recipe: Recipe, folder: Path) -> None:
    """Train both drafters by `recipe` and write them into `folder`."""
    start = time.monotonic()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(recipe.seed)
    target, draft = (load_target(folder / "models" / name, device=device) for name in ("target", "draft"))
    tokenizer = Tokenizer.from_file(str(folder / "models" / "target" / "tokenizer.json"))
    mask_id = tokenizer.token_to_id(NEVER_IN_TEXT)
    texts = corpus.read_corpus(recipe.files)
    stream, held_back = (corpus.encode(tokenizer, part).to(device) for part in (texts.train, texts.validation))
    assert not (stream == mask_id).any()
    written = build.write(target, stream, recipe.written, recipe, recipe.seed)
    held_written = build.write(target, held_back, max(8, recipe.written // 64), recipe, recipe.seed + 1)
    mixture, held_mixture = torch.cat((stream, written)), torch.cat((held_back[: len(held_written)], held_written))
    draft.requires_grad_(True)
    head = build.mtp_head(target).requires_grad_(True)
    results = {}
    for name, model, loss, stage in (
        ("parallel", draft, build.parallel_loss(target, draft, mask_id, recipe), recipe.train_parallel),
        ("mtp", head, build.mtp_loss(target, head, recipe), recipe.train_mtp),
    ):
        data, validation = batches(mixture, stage, recipe.seed), next(batches(held_mixture, stage, recipe.seed))
        results[name] = train(name, model, loss, stage, data=data, validation=validation)
        round_to_bfloat16(model)
    prompts = json.loads((folder / "prompts.json").read_text(encoding="utf-8"))
    ids = torch.tensor([tokenizer.encode(prompt["text"]).ids[: recipe.measured_prompt] for prompt in prompts])
    acceptance = measure_parallel_and_mtp(target, draft, mask_id, head, ids.to(device), recipe)
    for name, row in acceptance.items():
        print(f"  {name:12} {row['tokens_a_step']:.2f} tokens a step, by position {row['acceptance_by_position']}")
    export.save_parallel(folder / "models" / "draft_parallel", draft, tokenizer, mask_id, recipe)
    export.save_mtp(folder / "models" / "mtp", head, target)
    facts: dict[str, Any] = json.loads((folder / "provenance.json").read_text(encoding="utf-8"))
    facts["parallel_and_mtp"] = {
        "script": "python -m tools.train_fixtures.parallel_and_mtp --fixtures fixtures --steps "
        + " ".join(str(result["steps"]) for result in results.values()),
        **export.circumstances(texts, len(stream), device, start),
        "recipe": {name: asdict(getattr(recipe, name)) for name in ("train_parallel", "train_mtp")},
        "training": results,
        "acceptance": {"text": "held-back files, greedy", "num_drafts": recipe.num_drafts, **acceptance},
    }
    export.save_provenance(folder, facts)


if __name__ == "__main__":
    main()
