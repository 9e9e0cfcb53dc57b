"""Greedy texts of mlx-lm 0.32.2: with a repetition penalty and a draft model, and of Llamas by `rope_parameters`.

    python mlx_lm_0_32_2.py FIXTURES/models

Plain texts, and those with a draft model, must be equal.

Without the penalty both texts are equal, as the last column shows. Seen on 2026-11-22 with MLX 0.32.4 on Linux: with
the penalty two of three prompts differ. `speculative_generate_step` gives its processors the last token of the prompt
alone; `generate_step` gives them the whole prompt.

transformers 5 saves the base and the scaling of a rotary embedding as `rope_parameters`, older releases as `rope_theta`
and `rope_scaling`. Texts must be those of the older fields. Seen on 2026-11-29: `models.llama` reads the older ones
alone. A base of 40 and a factor of 4 in `rope_parameters` leave the text of the default, 10,000.
"""

import json
import sys
import tempfile
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


def text(fields: dict[str, object]) -> list[int]:
    """Return eight greedy tokens of the target under fields of its configuration, without its rotary ones."""
    with tempfile.TemporaryDirectory() as made:
        for file in (Path(sys.argv[1]) / "target").iterdir():
            (Path(made) / file.name).write_bytes(file.read_bytes())
        config = Path(made) / "config.json"
        old = json.loads(config.read_text())
        config.write_text(json.dumps({name: old[name] for name in old if name != "rope_parameters"} | fields))
        model, _ = load_model(Path(made))
        return [int(token) for token, *_ in generate_step(mx.array(list(range(5, 37))), model, max_tokens=8)]


print("default", text({}))
linear = {"rope_type": "linear", "factor": 4.0}
for new, older in (({"rope_theta": 40.0}, {"rope_theta": 40.0}), (linear, {"rope_scaling": linear})):
    found, expected = text({"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0} | new}), text(older)
    print(f"rope_parameters {new}:", "equal" if found == expected else "differ", found, expected)  # differ, twice
