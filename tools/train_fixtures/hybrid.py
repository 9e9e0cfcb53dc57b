"""Trains the hybrid target and adds it to the fixtures.

    python -m tools.train_fixtures.hybrid --out DIR

It learns from the draft model in DIR, on the same text, so that the two agree often and not always. It starts with the
draft model's embeddings. A CPU does it in twelve minutes. Run it after ``python -m tools.train_fixtures``.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, replace
from pathlib import Path

import torch
from tokenizers import Tokenizer

from verispec.reference.models import load_target

from . import build, corpus, export
from .measure import measure_draft
from .recipe import Recipe
from .training import batches, round_to_bfloat16, train


def main() -> None:
    """Parse the command line and train."""
    parser = argparse.ArgumentParser(prog="python -m tools.train_fixtures.hybrid", description="Train the hybrid")
    parser.add_argument("--out", type=Path, required=True, help="folder with models/draft, which gets models/hybrid")
    parser.add_argument("--minutes", type=float, help="most training time")
    parser.add_argument("--steps", type=int, help="training steps")
    arguments = parser.parse_args()
    recipe, stage = Recipe(), Recipe().train_hybrid
    stage = replace(stage, minutes=arguments.minutes or stage.minutes, steps=arguments.steps or stage.steps)
    run(replace(recipe, train_hybrid=stage), arguments.out)


def run(recipe: Recipe, out: Path) -> None:
    """Train the hybrid by `recipe` and add it to the fixtures in `out`."""
    start = time.monotonic()
    torch.manual_seed(recipe.seed)
    torch.use_deterministic_algorithms(True, warn_only=True)
    draft = load_target(out / "models" / "draft")
    tokenizer = Tokenizer.from_file(str(out / "models" / "draft" / "tokenizer.json"))
    texts = corpus.read_corpus(recipe.files)
    stream, validation = corpus.encode(tokenizer, texts.train), corpus.encode(tokenizer, texts.validation)

    model = build.hybrid(recipe.hybrid, recipe.recurrence, recipe)
    with torch.no_grad():
        model.get_input_embeddings().weight.copy_(draft.get_input_embeddings().weight)
    stage, loss = recipe.train_hybrid, build.distillation_loss(draft, model)
    data, held_back = (batches(part, stage, recipe.seed) for part in (stream, validation))
    training = train("hybrid", model, loss, stage, data=data, validation=next(held_back))
    round_to_bfloat16(model)
    model.eval().requires_grad_(False)

    prompts = json.loads((out / "prompts.json").read_text(encoding="utf-8"))
    ids = torch.tensor([tokenizer.encode(prompt["text"]).ids[: recipe.measured_prompt] for prompt in prompts])
    acceptance = measure_draft(model, draft, ids, recipe)
    print(f"held-back text, greedy, K = {recipe.num_drafts}: {acceptance}", flush=True)
    export.save_hybrid(out / "models" / "hybrid", model, tokenizer, recipe)
    facts = json.loads((out / "provenance.json").read_text(encoding="utf-8"))
    facts["hybrid"] = {
        "script": f"python -m tools.train_fixtures.hybrid --steps {training['steps']}",
        **export.circumstances(texts, len(stream), torch.device("cpu"), start),
        "recipe": {name: asdict(recipe)[name] for name in ("seed", "hybrid", "recurrence", "train_hybrid")},
        "training": training,
        "acceptance": {"text": "held-back files, greedy", "num_drafts": recipe.num_drafts, "draft_model": acceptance},
    }
    export.save_provenance(out, facts)


if __name__ == "__main__":
    main()
