"""Logits processors of vLLM's sampler: the metadata that its input batch makes of a request's parameters."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from verispec.engines import UnsupportedCall
from verispec.engines.protocol.generation import TokenLogprobs
from verispec.engines.protocol.sampling import RequestContext, SamplerBatch


def require_supported(contexts: Sequence[RequestContext]) -> None:
    """Raise an error for parameters that vLLM's sampler does not handle for requests with drafts.

    Source: vllm 0.32.0 ``vllm.sampling_params.SamplingParams._validate_spec_decode``.

    Args:
        contexts: one per request.

    Raises:
        UnsupportedCall: a request has a logit bias, or a grammar, which vLLM applies outside of its sampler.
    """
    if any(context.params.logit_bias for context in contexts):
        raise UnsupportedCall("vLLM rejects logit_bias for requests with drafts")
    if any(context.allowed_rows is not None for context in contexts):
        raise UnsupportedCall("vLLM masks grammars in its model runner, before the sampler")


def with_contexts(
    metadata: Any, batch: SamplerBatch, contexts: Sequence[RequestContext], device: str, wanted: int | None
) -> Any:
    """Return SamplingMetadata with the parameters of `contexts`.

    Args:
        metadata: metadata of the batch, without processors.
        batch: the step.
        contexts: one per request.
        device: device of the tensors.
        wanted: most log-probabilities that a request wants; None wants none.

    Raises:
        UnsupportedCall: this vLLM has no such processor under speculation.
    """
    fields: dict[str, Any] = {
        "output_token_ids": [list(context.output_token_ids) for context in contexts],
        "max_num_logprobs": wanted,
        "allowed_token_ids_mask": _forbidden(batch, contexts, device),
        "bad_words_token_ids": {
            b: [list(word) for word in context.params.bad_words]
            for b, context in enumerate(contexts)
            if context.params.bad_words
        },
        "logitsprocs": _processors(contexts, device),
        **_penalties(batch, contexts, device),
    }
    return dataclasses.replace(metadata, **fields)


def _penalties(batch: SamplerBatch, contexts: Sequence[RequestContext], device: str) -> dict[str, Any]:
    params = [context.params for context in contexts]
    neutral = {"repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
    if all(getattr(each, name) == off for each in params for name, off in neutral.items()):
        return {}
    longest = max(len(each.prompt_token_ids) for each in params)
    prompts = torch.full((len(params), longest), batch.vocab_size, dtype=torch.int64)
    for row, each in zip(prompts, params, strict=True):
        row[: len(each.prompt_token_ids)] = torch.tensor(each.prompt_token_ids)
    values = {name: torch.tensor([getattr(each, name) for each in params], device=device) for name in neutral}
    return {
        "no_penalties": False,
        "prompt_token_ids": prompts.to(device),
        "repetition_penalties": values["repetition_penalty"],
        "presence_penalties": values["presence_penalty"],
        "frequency_penalties": values["frequency_penalty"],
    }


def _forbidden(batch: SamplerBatch, contexts: Sequence[RequestContext], device: str) -> torch.Tensor | None:
    """Return a mask [B, V] of the tokens that `allowed_token_ids` leave out; None if no request has any."""
    if not any(context.params.allowed_token_ids for context in contexts):
        return None
    mask = torch.zeros(len(contexts), batch.vocab_size, dtype=torch.bool)
    for row, context in zip(mask, contexts, strict=True):
        if context.params.allowed_token_ids:
            row[:] = True
            row[list(context.params.allowed_token_ids)] = False
    return mask.to(device)


def _processors(contexts: Sequence[RequestContext], device: str) -> Any:
    """Return LogitsProcessors with min_tokens, with the requests added as the input batch adds them."""
    module = importlib.import_module("vllm.v1.sample.logits_processor")
    if not any(context.params.min_tokens for context in contexts):
        return module.LogitsProcessors()
    cls = getattr(module, "MinTokensLogitsProcessor", None)
    if cls is None or not hasattr(cls, "apply_with_spec_decode"):
        raise UnsupportedCall("this vLLM has no min_tokens for requests with drafts")
    processor = cls(None, torch.device(device), False)
    sampling = importlib.import_module("vllm").SamplingParams
    added = [
        (
            b,
            sampling(min_tokens=c.params.min_tokens, max_tokens=None, stop_token_ids=list(c.stop_token_ids)),
            list(c.params.prompt_token_ids),
            list(c.output_token_ids),
        )
        for b, c in enumerate(contexts)
    ]
    processor.update_state(module.BatchUpdate(batch_size=len(contexts), removed=[], added=added, moved=[]))
    return module.LogitsProcessors([processor])


def sampler_options(cls: type, logprobs_mode: str) -> Mapping[str, Any]:
    """Return keywords of vLLM's `Sampler` for a mode of log-probabilities.

    Source: vllm 0.32.0 ``vllm.v1.sample.sampler.Sampler``.

    Args:
        cls: the class `Sampler` of the installed vLLM.
        logprobs_mode: "raw" or "processed".

    Raises:
        UnsupportedCall: this vLLM has only "raw".
    """
    if "logprobs_mode" in inspect.signature(cls).parameters:
        return {"logprobs_mode": f"{logprobs_mode}_logprobs"}
    if logprobs_mode != "raw":
        raise UnsupportedCall("this vLLM has raw log-probabilities alone")
    return {}


def logprobs_of(
    lists: Any, tokens: Sequence[Sequence[int]], contexts: Sequence[RequestContext]
) -> list[list[TokenLogprobs]]:
    """Return vLLM's log-probabilities as one entry per token.

    Source: vllm 0.32.0 ``vllm.v1.outputs.LogprobsLists``.

    Args:
        lists: ids and values, [number of all tokens, 1 + maximum]; column 0 is the token, the most likely ones follow.
        tokens: emitted tokens per request.
        contexts: one per request; its parameters limit the number of most likely tokens.

    Returns:
        Entries per request; none for a request that asks for no log-probabilities.
    """
    results, row = [], 0
    for emitted, context in zip(tokens, contexts, strict=True):
        top, entries = context.params.logprobs, []
        for _ in emitted if top is not None else ():
            ids, values = lists.logprob_token_ids[row].tolist(), lists.logprobs[row].tolist()
            best = tuple(zip(ids[1 : 1 + (top or 0)], values[1 : 1 + (top or 0)], strict=True))
            entries.append(TokenLogprobs(values[0], best))
            row += 1
        row += len(emitted) if top is None else 0
        results.append(entries)
    return results
