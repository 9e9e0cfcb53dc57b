"""Drafters with a configuration of their own: a fixture's weights under other fields."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from verispec import fixtures

WINDOW = 7
"""Tokens that a windowed draft model's query sees, itself included; less than a prompt, and no multiple of a block."""

LAYERS = "eagle_aux_hidden_state_layer_ids"

CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "rotary base": {"rope_theta": 40.0},
    "scaled positions": {"rope_type": "linear", "factor": 4.0},
    "epsilon of norms": {"rms_norm_eps": 0.02},
    "large epsilon of norms": {"rms_norm_eps": 5.0},
    "size of heads": {},
    "layers in eagle_config": {LAYERS: None, "eagle_config": {LAYERS: [1, 4, 7]}},
    "layers by their outputs": {LAYERS: [2, 5, 8]},
    "sliding window": {
        "architectures": ["MistralForCausalLM"],
        "model_type": "mistral",
        "sliding_window": WINDOW,
    },
}
"""Fields by name; None takes a field out. Heads of half the size are twice as many: weights keep their shape.

Mean squares before a head's norms are about 0.004 for embeddings and 2 to 9 for states: each epsilon counts for some.
"""

_ROTARY = ("rope_theta", "rope_type", "factor")
_HEADS = {"num_attention_heads": 2.0, "num_key_value_heads": 2.0, "head_dim": 0.5}


def save_configured(folder: Path, source: str, name: str) -> Path:
    """Write the fixture `source` with the fields of a configuration by its name; return `folder`."""
    original = fixtures.model(source)
    config = json.loads((original / "config.json").read_text(encoding="utf-8"))
    fields = dict(CONFIGURATIONS[name])
    if name == "size of heads":
        fields = {field: int(config[field] * factor) for field, factor in _HEADS.items()}
    elif "rope_parameters" in config:
        rotary = {field: fields.pop(field) for field in _ROTARY if field in fields}
        fields["rope_parameters"] = config["rope_parameters"] | rotary
    config = {key: value for key, value in (config | fields).items() if value is not None}
    folder.mkdir(parents=True)
    for file in original.iterdir():
        if file.name != "config.json":
            (folder / file.name).symlink_to(file)
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    return folder
