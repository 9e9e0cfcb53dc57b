"""Checkpoint folders in the formats of the field, and the provenance beside them."""

from __future__ import annotations

import copy
import hashlib
import json
import platform
import time
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers
from safetensors.torch import save_file
from tokenizers import Tokenizer
from transformers import GenerationConfig, PreTrainedModel

from verispec.reference.models import Eagle3Head, MTPHead
from verispec.reference.models.mtp import PREFIX

from .build import MTP_FIELDS
from .corpus import END, Corpus
from .recipe import Recipe


def save_model(folder: Path, model: PreTrainedModel, tokenizer: Tokenizer, recipe: Recipe) -> None:
    """Write a Hugging Face folder: weights in bfloat16, config, generation config, tokenizer."""
    stored = copy.deepcopy(model).to(torch.bfloat16)
    stored.generation_config = GenerationConfig(eos_token_id=0, pad_token_id=0)
    stored.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": END,
            "pad_token": END,
            "model_max_length": recipe.max_positions,
            "clean_up_tokenization_spaces": False,
        },
    )


def save_hybrid(folder: Path, model: PreTrainedModel, tokenizer: Tokenizer, recipe: Recipe) -> None:
    """Write the hybrid with the names and numbers of its configuration that every engine reads."""
    save_model(folder, model, tokenizer, recipe)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    published = {"linear_attention": "mamba", "full_attention": "attention"}
    config["layer_types"] = [published[kind] for kind in config["layer_types"]]
    config["time_step_limit"] = [0.0, 1e6]  # JSON has no infinity
    write_json(folder / "config.json", config)


def save_eagle3(folder: Path, head: Eagle3Head, recipe: Recipe) -> None:
    """Write the head twice: `folder` as SafeAILab and vLLM read it, ``<folder>_speculators`` as speculators does."""
    layer = _layer_config(head)
    tensors = {
        name: (tensor.bfloat16() if tensor.is_floating_point() else tensor).contiguous().cpu()
        for name, tensor in head.state_dict().items()
        if name != "embed_tokens.weight"
    }
    own = {
        "draft_vocab_size": head.config.draft_vocab_size,
        "target_hidden_size": head.config.target_hidden_size,
        "eagle_aux_hidden_state_layer_ids": list(recipe.aux_layers),
        "norm_before_residual": False,
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", {"architectures": ["LlamaForCausalLMEagle3"], **layer, **own})
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})

    other = folder.with_name(f"{folder.name}_speculators")
    other.mkdir(parents=True, exist_ok=True)
    write_json(
        other / "config.json",
        {
            "architectures": ["Eagle3Speculator"],
            "speculators_model_type": "eagle3",
            "speculators_version": "0.1.0",
            "speculators_config": {
                "algorithm": "eagle3",
                "default_proposal_method": "greedy",
                "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": recipe.num_drafts}],
                "verifier": {"name_or_path": "target", "architectures": ["LlamaForCausalLM"]},
            },
            "transformer_layer_config": layer,
            **own,
        },
    )
    renamed = {name.replace("midlayer.", "layers.0."): tensor for name, tensor in tensors.items()}
    save_file(renamed, other / "model.safetensors", {"format": "pt"})


def save_parallel(folder: Path, draft: PreTrainedModel, tokenizer: Tokenizer, mask_id: int, recipe: Recipe) -> None:
    """Write a model of parallel drafting; ``pard_token`` of its config is the mask token (vLLM 0.32.0)."""
    save_model(folder, draft, tokenizer, recipe)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    write_json(folder / "config.json", {**config, "pard_token": mask_id})


def save_mtp(folder: Path, head: MTPHead, target: PreTrainedModel) -> None:
    """Write the head's tensors alone, named as in MiMo's checkpoints, where they stand beside the target's."""
    config = {name: getattr(head.config, name) for name in MTP_FIELDS}
    folder.mkdir(parents=True, exist_ok=True)
    write_json(
        folder / "config.json",
        {
            "architectures": ["MiMoForCausalLM"],
            "model_type": "qwen2",
            "dtype": "bfloat16",
            "num_hidden_layers": target.config.num_hidden_layers,
            "num_nextn_predict_layers": 1,
            **config,
        },
    )
    tensors = {
        PREFIX + name.removeprefix("mtp_block."): tensor.bfloat16().contiguous().cpu()
        for name, tensor in head.state_dict().items()
    }
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def _layer_config(head: Eagle3Head) -> dict[str, Any]:
    """Return the description of the head's one Llama layer, in keys that old and new transformers read."""
    names = (
        "hidden_size intermediate_size num_attention_heads num_key_value_heads head_dim num_hidden_layers vocab_size "
        "max_position_embeddings rms_norm_eps hidden_act attention_bias mlp_bias eos_token_id tie_word_embeddings"
    )
    config = {name: getattr(head.config, name) for name in names.split()}
    theta = head.config.rope_parameters["rope_theta"]
    return {"model_type": "llama", "dtype": "bfloat16", "rope_theta": theta, **config}


def circumstances(texts: Corpus, tokens: int, device: torch.device, start: float) -> dict[str, Any]:
    """Return the part of a provenance that every training has: text, versions, device and the time since `start`.

    Args:
        texts: text of the training.
        tokens: number of its tokens.
        device: device of the training.
        start: `time.monotonic` at its beginning.
    """
    return {
        "text": {
            "source": f"standard library of Python {platform.python_version()}, sources and docstrings",
            "license": "PSF-2.0",
            "files": texts.files,
            "sha256": texts.digest,
            "tokens": tokens,
        },
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "tokenizers": tokenizers.__version__,
        },
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "CPU",
        "seconds": round(time.monotonic() - start, 1),
    }


def save_provenance(folder: Path, facts: dict[str, Any]) -> None:
    """Write ``provenance.json`` with the facts and the SHA-256 of ``prompts.json`` and of every file of the models."""
    files = sorted((folder / "prompts.json", *(path for path in folder.glob("models/*/*") if path.is_file())))
    hashes = {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    write_json(folder / "provenance.json", {**facts, "sha256": hashes})


def write_json(path: Path, value: Any) -> None:
    """Write a value as readable JSON with a final newline."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
