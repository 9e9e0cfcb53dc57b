"""Targets and draft models: any causal checkpoint folder, loaded by transformers."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from verispec.errors import VerispecError

from .checkpoint import is_eagle3, read_config


def load_target(
    folder: str | Path, dtype: torch.dtype = torch.float32, device: str | torch.device = "cpu"
) -> PreTrainedModel:
    """Load a causal language model for inference: on `device`, in `dtype`, in eval mode, without gradients.

    It also loads draft models. Transformers alone would fill a missing weight with random numbers and continue.

    Raises:
        VerispecError: V-MODEL-FOLDER or V-MODEL-CONFIG if `folder` is not a checkpoint; V-MODEL-KIND if it is an Eagle3
            head or not a causal model; V-MODEL-WEIGHTS if a weight is missing, has another shape, or cannot be read.
    """
    folder = Path(folder)
    if is_eagle3(read_config(folder)):
        raise VerispecError(
            "V-MODEL-KIND",
            "this is an Eagle3 head, which cannot run alone",
            where=str(folder),
            hint="give the head as the drafter and the model it was trained for as the target",
        )
    try:
        model, info = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, local_files_only=True, output_loading_info=True
        )
    except (OSError, RuntimeError, SafetensorError) as error:
        raise VerispecError(
            "V-MODEL-WEIGHTS",
            "weights cannot be read",
            where=str(folder),
            cause=str(error),
            hint="copy the weights again: a file is damaged, or is not a checkpoint",
        ) from error
    except (ValueError, KeyError) as error:
        raise VerispecError(
            "V-MODEL-KIND",
            "transformers has no causal language model for this checkpoint",
            where=str(folder),
            cause=str(error),
            hint="give a decoder-only checkpoint whose config.json names its architecture",
        ) from error
    absent = sorted(info["missing_keys"]) + sorted(str(key) for key in info["mismatched_keys"])
    if absent:
        raise VerispecError(
            "V-MODEL-WEIGHTS",
            f"{len(absent)} weights are missing or have another shape than config.json says",
            where=str(folder),
            cause=", ".join(absent[:4]),
            hint="copy config.json and the weights again, from one checkpoint",
        )
    loaded: PreTrainedModel = model.to(device).eval().requires_grad_(False)
    return loaded


def load_tokenizer(folder: str | Path) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a checkpoint folder.

    Raises:
        VerispecError: V-MODEL-FOLDER if `folder` is not a checkpoint, V-MODEL-TOKENIZER if it has no tokenizer.
    """
    folder = Path(folder)
    read_config(folder)
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise VerispecError(
            "V-MODEL-TOKENIZER",
            "no tokenizer that transformers can read",
            where=str(folder),
            cause=str(error),
            hint="the folder needs tokenizer.json and tokenizer_config.json",
        ) from error
    return tokenizer
