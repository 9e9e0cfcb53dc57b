"""Validation of a request before it is queued, and its defaults from the engine and the model."""

from __future__ import annotations

from transformers import PreTrainedModel

from verispec.engines.protocol.generation import GenerationRequest
from verispec.errors import VerispecError


def check_request(
    index: int, request: GenerationRequest, max_model_len: int, vocab_size: int, num_adapters: int
) -> None:
    """Check that a request fits the loaded model.

    Raises:
        VerispecError: V-GEN-PROMPT for a prompt that leaves no room for a token, or for unknown token ids;
            V-GEN-REQUEST for a LoRA adapter that is not loaded.
    """
    length = len(request.prompt_token_ids)
    where = f"request {index}"
    if length >= max_model_len:
        raise VerispecError(
            "V-GEN-PROMPT",
            f"the prompt has {length} tokens; max_model_len is {max_model_len}, one of them for the output",
            where=where,
            hint="shorten the prompt or raise max_model_len",
        )
    mentioned = (
        *request.prompt_token_ids,
        *request.allowed_token_ids,
        *request.logit_bias,
        *(token for word in request.bad_words for token in word),
    )
    unknown = sorted({token for token in mentioned if not 0 <= token < vocab_size})
    if unknown:
        raise VerispecError(
            "V-GEN-PROMPT",
            f"token ids {unknown[:4]} are outside of the vocabulary, 0 to {vocab_size - 1}",
            where=where,
            hint="encode the prompt and the request's token ids with the tokenizer of this model",
        )
    if request.lora_adapter is not None and request.lora_adapter >= num_adapters:
        raise VerispecError(
            "V-GEN-REQUEST",
            f"lora_adapter must be below the number of loaded adapters, {num_adapters}, got {request.lora_adapter}",
            where=where,
            hint="name the adapter's folder in lora_adapters when loading",
        )


def eos_token_ids(model: PreTrainedModel) -> frozenset[int]:
    """Return the end-of-sequence tokens that the model's generation configuration or its configuration names."""
    named = (getattr(config, "eos_token_id", None) for config in (model.generation_config, model.config))
    ids: int | list[int] = next((ids for ids in named if ids is not None), [])
    return frozenset(ids if isinstance(ids, list) else [ids])


def default_seed(engine_seed: int, arrived: int) -> int:
    """Return a seed for a request that brings none, from the engine's seed and the request's place among all."""
    return (engine_seed * 0x9E3779B97F4A7C15 + arrived + 1) % 2**63
