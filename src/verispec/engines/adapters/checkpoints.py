"""Checkpoints that an engine takes in a format of its own: a key of their content, and a tokenizer for each."""

from __future__ import annotations

import hashlib
import importlib
import json
from pathlib import Path
from typing import Any

from verispec.engines import UnsupportedCall


def content_key(folders: tuple[Path, ...], *tools: str) -> str:
    """Return a key of the files of `folders` and of the versions that convert them.

    Args:
        folders: checkpoint folders.
        tools: versions, or sources, of the programs that read the folders.
    """
    key = hashlib.blake2b("\n".join(tools).encode(), digest_size=16)
    for folder in folders:
        for path in sorted(path for path in folder.glob("*") if path.is_file()):
            key.update(path.name.encode() + path.read_bytes())
    return key.hexdigest()


def tokenizer_of(folder: Path, vocab_size: int) -> Any:
    """Return the tokenizer of a checkpoint, or one of numbers where the checkpoint has none."""
    transformers: Any = importlib.import_module("transformers")
    if (folder / "tokenizer.json").is_file():
        return transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    tokenizers: Any = importlib.import_module("tokenizers")
    words = tokenizers.models.WordLevel({str(token): token for token in range(vocab_size)}, unk_token="0")
    plain = tokenizers.Tokenizer(words)
    plain.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=plain, unk_token="0")


def end_tokens(folder: Path, config: dict[str, Any]) -> list[int]:
    """Return the end-of-sequence tokens of a checkpoint's generation configuration, else of its configuration.

    Args:
        folder: a checkpoint folder.
        config: content of its config.json.
    """
    path = folder / "generation_config.json"
    chosen = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    own = chosen.get("eos_token_id", config.get("eos_token_id"))
    return [] if own is None else own if isinstance(own, list) else [own]


def require_plain_llama(model: Any, instead: str = "") -> None:
    """Raise an error unless a converter of Llama models can convert `model`.

    Args:
        model: a model of transformers.
        instead: end of the message: the folder that the engine takes in its place.

    Raises:
        UnsupportedCall: the model has another class, biases, another activation, or rotations that change.
    """
    config = model.config
    name = type(model).__name__
    for bad, lacks in (
        (name != "LlamaForCausalLM", f"models of class {name}"),
        (getattr(config, "attention_bias", False) or getattr(config, "mlp_bias", False), "biases"),
        (getattr(config, "hidden_act", "silu") != "silu", "activations other than SiLU"),
    ):
        if bad:
            raise UnsupportedCall(f"this adapter does not convert {lacks}{instead}")
    if model.model.rotary_emb.rope_type not in ("default", "linear", "llama3"):
        raise UnsupportedCall(f"this adapter does not convert rotations that change with the length{instead}")
