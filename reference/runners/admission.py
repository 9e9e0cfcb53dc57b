"""Validation of options and requests before they are used, and defaults from the engine and the model."""

from __future__ import annotations

from transformers import PreTrainedModel

from verispec.engines.protocol.generation import GenerationRequest, LoadOptions
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


def check_model_length(wanted: int | None, own: int) -> int:
    """Return the maximum number of tokens of a sequence: `wanted`, or the model's `own` limit.

    Raises:
        VerispecError: V-GEN-OPTION if the model cannot have so many, or none could be generated.
    """
    limit = wanted or own
    if not 2 <= limit <= own:
        raise VerispecError(
            "V-GEN-OPTION",
            f"max_model_len must be from 2 to the model's own limit of {own} tokens, got {limit}",
            where="max_model_len",
            hint="omit max_model_len to take the model's limit",
        )
    return limit


def check_recurrent_options(options: LoadOptions) -> None:
    """Check that `options` fit a target with recurrent layers.

    Raises:
        VerispecError: V-GEN-OPTION for adapters or a draft tree.
    """
    for name, wanted, cause, hint in (
        ("lora_adapters", (), "adapters are added to the flattened tokens of all", "merge the adapter"),
        ("speculative_token_tree", None, "a node would need the state of its own branch", "draft a chain"),
    ):
        given = getattr(options, name)
        if given != wanted:
            raise VerispecError(
                "V-GEN-OPTION",
                f"{name} must be {wanted!r} for a target with recurrent layers, got {given!r}",
                where=name,
                cause=f"these layers run request by request; {cause}",
                hint=hint,
            )
