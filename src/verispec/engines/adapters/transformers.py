"""Engine ``transformers``: its own generation, one request after the other, as an oracle of generation.

It has no kernels and no end-to-end sampler of flat batches; it generates with the methods none, ngram (prompt lookup)
and draft_model (assisted generation).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers

from verispec.engines import Description, Engine, OpFunction, Unsupported, UnsupportedCall
from verispec.engines.adapters.partial import one_by_one, refuse_missing, require_room
from verispec.engines.protocol.generation import (
    FinishReason,
    GenerationRequest,
    GenerationResult,
    LoadOptions,
    OnEmit,
    SpeculationMetrics,
    TokenLogprobs,
)
from verispec.engines.protocol.grammar import TokenGrammar, state_after
from verispec.engines.protocol.speculation import AUTO
from verispec.reference.models import load_target


class Transformers:
    """The transformers installed here, as an engine."""

    def __init__(self, device: str) -> None:
        self._device = device

    def describe(self) -> Description:
        """Return the identity of the installed transformers."""
        details = {"torch": torch.__version__}
        return Description("transformers", transformers.__version__, self._device, self._device, details)

    def op(self, name: str) -> OpFunction | Unsupported:
        """Return `Unsupported` for every op `name`."""
        return Unsupported("transformers has no kernels of speculative decoding")

    def sampler(self, family: str = "flat") -> Any | Unsupported:
        """Return `Unsupported` for every `family`."""
        return Unsupported("transformers has no sampler that takes a batch of drafts")

    def load(self, target: Path, **options: Any) -> Any | Unsupported:
        """Return a generator over the checkpoint folder `target`; see `Engine.load`."""
        wanted = LoadOptions(**options)
        if wanted.method not in ("none", "ngram", "draft_model"):
            return Unsupported(f"transformers does not draft with {wanted.method}")
        if wanted.parallel_drafting:
            return Unsupported("transformers drafts one token after another")
        if wanted.sampler != "flat":
            return Unsupported("transformers draws from one generator; it has no random numbers counted by position")
        if wanted.rejection_sample_method != "standard":
            return Unsupported(f"transformers has no {wanted.rejection_sample_method} verification")
        if wanted.tensor_parallel_size > 1:
            return Unsupported("this adapter runs transformers in one process")
        if wanted.num_speculative_tokens_per_batch_size:
            return Unsupported("this adapter runs requests of transformers one by one")
        if wanted.num_speculative_tokens == AUTO:
            return Unsupported("transformers changes K by schedules of its own, which never pause drafting")
        if wanted.speculative_token_tree:
            return Unsupported("transformers drafts chains")
        if wanted.lora_adapters:
            return Unsupported("transformers leaves LoRA adapters to another package")
        if wanted.async_scheduling:
            return Unsupported("transformers has no scheduler")
        if wanted.method == "ngram" and wanted.ngram_min > LoadOptions().ngram_min:
            return Unsupported("transformers has no shortest match of prompt lookup")
        if wanted.num_blocks or wanted.block_size != LoadOptions().block_size:
            return Unsupported("transformers has no paged KV cache")
        if wanted.method == "draft_model" and wanted.draft_sample_method == "greedy":
            return Unsupported("transformers draws drafts from the assistant's distribution for sampled requests")
        return TransformersGenerator(target, wanted, self._device)

    def definitions(self) -> Mapping[str, Any] | Unsupported:
        """Return `Unsupported`."""
        return Unsupported("transformers has no kernels of speculative decoding")

    def close(self) -> None:
        """Do nothing: the engine holds nothing."""


class TransformersGenerator:
    """`model.generate` behind the `Generator` protocol; batch size one, no paged cache, no preemption.

    Raises UnsupportedCall for drafts to a model whose recurrent states transformers cannot roll back.
    """

    def __init__(self, target: Path, options: LoadOptions, device: str) -> None:
        dtype: torch.dtype = getattr(torch, options.dtype)
        self._options = options
        self._seeds = itertools.count(options.seed)  # of requests without one: no two draw alike
        self._model = load_target(target, dtype, device)
        if options.method != "none" and self._model._is_stateful:
            raise UnsupportedCall(
                f"transformers does not draft for recurrent models, such as {type(self._model).__name__}"
            )
        self._assistant = load_target(options.draft, dtype, device) if options.draft else None
        if self._assistant is not None:
            self._assistant.generation_config.num_assistant_tokens = options.max_drafts
            self._assistant.generation_config.num_assistant_tokens_schedule = "constant"
            self._assistant.generation_config.assistant_confidence_threshold = 0.0

    def generate(self, requests: Sequence[GenerationRequest], on_emit: OnEmit | None = None) -> list[GenerationResult]:
        """Run the requests one by one, and call `on_emit` after each; see `Generator.generate`."""
        return one_by_one(requests, on_emit, self._one)

    def metrics(self) -> SpeculationMetrics:
        """Return no counts: transformers has none."""
        return SpeculationMetrics()

    def close(self) -> None:
        """Do nothing: models are freed with the generator."""

    def _one(self, index: int, request: GenerationRequest) -> GenerationResult:
        _reject_missing(request)
        limit = self._options.max_model_len or self._model.config.max_position_embeddings
        length = len(request.prompt_token_ids)
        require_room(index, length, limit)
        torch.manual_seed(next(self._seeds) if request.seed is None else request.seed)
        stop = self._stop_token_ids(request)
        with torch.inference_mode():
            output = self._model.generate(
                torch.tensor([request.prompt_token_ids], device=self._model.device),
                return_dict_in_generate=True,
                output_logits=request.logprobs is not None and self._options.logprobs_mode == "raw",
                output_scores=request.logprobs is not None and self._options.logprobs_mode == "processed",
                max_new_tokens=min(request.max_tokens, limit - length),
                eos_token_id=stop or None,
                pad_token_id=0,
                **self._speculation(),
                **_sampling(request),
            )
        token_ids = tuple(output.sequences[0, length:].tolist())
        stopped = bool(token_ids) and token_ids[-1] in stop
        logits = output.logits if output.logits is not None else output.scores
        return GenerationResult(
            token_ids,
            FinishReason.STOP if stopped else FinishReason.LENGTH,
            logprobs=_logprobs(logits, token_ids, request.logprobs),
        )

    def _stop_token_ids(self, request: GenerationRequest) -> list[int]:
        own = self._model.generation_config.eos_token_id
        own_ids = [] if own is None or request.ignore_eos else own if isinstance(own, list) else [own]
        return sorted({*own_ids, *request.stop_token_ids})

    def _speculation(self) -> dict[str, Any]:
        if self._options.method == "ngram":
            return {
                "prompt_lookup_num_tokens": self._options.max_drafts,
                "max_matching_ngram_size": self._options.ngram_max,
            }
        return {} if self._assistant is None else {"assistant_model": self._assistant}


def _reject_missing(request: GenerationRequest) -> None:
    """Raise UnsupportedCall for a parameter that transformers does not have, or applies in another order or place."""
    missing = (
        (request.presence_penalty or request.frequency_penalty, "presence or frequency penalty"),
        (request.grammar is not None and request.allowed_token_ids, "grammar beside allowed token ids"),
        (request.min_p and request.top_p < 1, "min-p before top-p: it applies top-p first"),
        (request.n > 1, "seeded samples of one prompt"),
        (request.stop, "stop strings among token ids"),
        (request.prompt_logprobs is not None, "log-probabilities of a prompt"),
        (request.abort_after is not None, "aborts"),
    )
    refuse_missing("transformers", missing)


def _sampling(request: GenerationRequest) -> dict[str, Any]:
    """Return a request's parameters under transformers' names, without parameters that it does not use."""
    wanted: dict[str, Any] = {"do_sample": not request.greedy}
    if not request.greedy:
        wanted |= {"temperature": request.temperature, "top_k": request.top_k, "top_p": request.top_p}
        wanted |= {"min_p": request.min_p} if request.min_p else {}
    if request.repetition_penalty != 1:
        wanted["repetition_penalty"] = request.repetition_penalty
    if request.bad_words:
        wanted["bad_words_ids"] = [list(word) for word in request.bad_words]
    if request.allowed_token_ids:
        allowed = list(request.allowed_token_ids)
        wanted["prefix_allowed_tokens_fn"] = lambda batch, ids: allowed
    if request.grammar is not None:
        wanted["prefix_allowed_tokens_fn"] = _followed(request.grammar, len(request.prompt_token_ids))
    if request.logit_bias:
        wanted["sequence_bias"] = [[[token], bias] for token, bias in request.logit_bias.items()]
    if request.min_tokens:
        wanted["min_new_tokens"] = request.min_tokens
    return wanted


def _followed(grammar: TokenGrammar, prompt_length: int) -> Callable[[int, torch.Tensor], list[int]]:
    """Return transformers' function of the tokens that may follow.

    A row behind a draft outside of the grammar is never used; it gets the tokens of the first state.
    """

    def following(batch: int, ids: torch.Tensor) -> list[int]:
        state = state_after(grammar, ids[prompt_length:].tolist())
        return list(grammar.allowed(grammar.start() if state is None else state))

    return following


def _logprobs(
    logits: Sequence[torch.Tensor] | None, token_ids: Sequence[int], top: int | None
) -> tuple[TokenLogprobs, ...]:
    if logits is None or top is None:
        return ()
    rows = []
    for row, token in zip(logits, token_ids, strict=True):
        logprobs = torch.log_softmax(row[0].float(), dim=-1)
        values, ids = logprobs.topk(min(top, len(logprobs)))
        rows.append(TokenLogprobs(float(logprobs[token]), tuple(zip(ids.tolist(), values.tolist(), strict=True))))
    return tuple(rows)


def create(device: str | None = None) -> Engine:
    """Return the installed transformers on `device` ("cpu" if None)."""
    return Transformers(device or "cpu")
