"""Greedy texts of mlx-lm 0.32.2 with a repetition penalty: plain, and with a draft model. They must be equal.

    python mlx_lm_0_32_2.py FIXTURES/models

Without the penalty both texts are equal, as the last column shows. Seen on 2026-11-22 with MLX 0.32.4 on Linux: with
the penalty two of three prompts differ. `speculative_generate_step` gives its processors the last token of the prompt
alone; `generate_step` gives them the whole prompt.
"""

import sys
from pathlib import Path

import mlx.core as mx
from mlx_lm.generate import generate_step, speculative_generate_step
from mlx_lm.sample_utils import make_logits_processors
from mlx_lm.utils import load_model

mx.set_default_device(mx.cpu)
target, _ = load_model(Path(sys.argv[1]) / "target")
draft, _ = load_model(Path(sys.argv[1]) / "draft")


def texts(prompt: list[int], penalty: float | None) -> tuple[list[int], list[int]]:
    """Return 16 greedy tokens after `prompt`, plain and with three drafts per step."""
    processors = make_logits_processors(repetition_penalty=penalty, repetition_context_size=1000)
    options = {"max_tokens": 16, "logits_processors": processors}
    plain = [int(token) for token, *_ in generate_step(mx.array(prompt), target, **options)]
    drafted = speculative_generate_step(mx.array(prompt), target, draft, num_draft_tokens=3, **options)
    return plain, [int(token) for token, *_ in drafted]


for prompt in ([1, 5, 9, 30], [7, 8, 9], [100, 200, 300]):
    plain, drafted = texts(prompt, 1.5)
    same = texts(prompt, None)
    print("equal" if plain == drafted else "differ", plain, drafted, "equal" if same[0] == same[1] else "differ")
