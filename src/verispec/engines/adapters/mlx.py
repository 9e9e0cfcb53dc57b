"""Engine ``mlx-lm``: the generation of mlx-lm, plain and with a draft model, one request after the other.

mlx-lm accepts a draft where it equals the token that it samples from the target there. On Linux MLX runs on the CPU.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

from verispec.engines import Description, Engine, Unsupported, UnsupportedCall
from verispec.engines.adapters.partial import (
    PartialEngine,
    one_by_one,
    refuse_missing,
    require_cpu,
    require_known,
    require_room,
)
from verispec.engines.protocol.generation import (
    FinishReason,
    GenerationRequest,
    GenerationResult,
    LoadOptions,
    OnEmit,
    SpeculationMetrics,
    TokenLogprobs,
)
from verispec.engines.protocol.speculation import AUTO
from verispec.errors import VerispecError


class Mlx(PartialEngine):
    """The mlx-lm installed here."""

    lacks: ClassVar = {
        "op": "mlx-lm has no kernels of speculative decoding",
        "sampler": "mlx-lm has no sampler that takes a batch of drafts",
        "definitions": "mlx-lm has no kernels of speculative decoding",
    }

    def __init__(self) -> None:
        try:
            self._mx: Any = importlib.import_module("mlx.core")
            self._utils: Any = importlib.import_module("mlx_lm.utils")
        except ImportError as error:
            raise VerispecError(
                "V-ENG-MLX",
                "mlx-lm cannot be imported",
                where="--engine mlx-lm",
                cause=f"{type(error).__name__}: {error}",
                hint="pip install mlx-lm, and 'mlx[cpu]' where there is no Apple GPU",
            ) from error
        self._mx.set_default_device(self._mx.cpu)

    def describe(self) -> Description:
        """Return the versions of mlx-lm and MLX."""
        return Description("mlx-lm", version("mlx-lm"), "cpu", "cpu", {"mlx": version("mlx")})

    def load(self, target: Path, **options: Any) -> Any | Unsupported:
        """Return a generator over the checkpoint folder `target`; see `Engine.load`."""
        wanted, plain = LoadOptions(**options), LoadOptions()
        for refused, reason in (
            (wanted.method not in ("none", "draft_model"), f"mlx-lm does not draft with {wanted.method}"),
            (wanted.sampler != "flat", "mlx-lm has no random numbers counted by position"),
            (wanted.rejection_sample_method != "standard", "mlx-lm has one verification method"),
            (wanted.parallel_drafting, "mlx-lm drafts one token after another"),
            (wanted.num_speculative_tokens_per_batch_size, "mlx-lm drafts with one K"),
            (wanted.num_speculative_tokens == AUTO, "mlx-lm drafts with one K"),
            (wanted.speculative_token_tree, "mlx-lm drafts chains"),
            (wanted.async_scheduling, "mlx-lm has no scheduler"),
            (wanted.tensor_parallel_size > 1, "this adapter runs mlx-lm in one process"),
            (wanted.lora_adapters, "mlx-lm adds one adapter to all requests, in a layout of its own"),
            (wanted.dtype == "float64", "MLX has no float64 on most devices"),
            (wanted.num_blocks or wanted.block_size != plain.block_size, "mlx-lm has no paged KV cache"),
            (wanted.draft_sample_method == "greedy", "mlx-lm samples drafts as it samples tokens"),
            (wanted.logprobs_mode != "raw", "mlx-lm reports log-probabilities of the model's own logits"),
        ):
            if refused:
                return Unsupported(reason)
        return MlxGenerator(self._mx, self._utils, target, wanted)


class MlxGenerator:
    """`generate_step` and `speculative_generate_step` behind the `Generator` protocol.

    Raises UnsupportedCall for drafts to a model with a cache that mlx-lm cannot trim.
    """

    def __init__(self, mx: Any, utils: Any, target: Path, options: LoadOptions) -> None:
        self._mx, self._options = mx, options
        self._seeds = itertools.count(options.seed)  # of requests without one: no two draw alike
        self._generate: Any = importlib.import_module("mlx_lm.generate")
        self._sampling: Any = importlib.import_module("mlx_lm.sample_utils")
        self._model, self._config = _load(utils, Path(target))
        self._draft = _load(utils, Path(options.draft))[0] if options.draft else None
        caches: Any = importlib.import_module("mlx_lm.models.cache")
        if self._draft is not None and not caches.can_trim_prompt_cache(caches.make_prompt_cache(self._model)):
            raise UnsupportedCall("mlx-lm does not draft for recurrent models: their cache cannot be trimmed")
        for model in (self._model, self._draft):
            if model is not None:
                model.set_dtype(getattr(mx, options.dtype))

    def generate(self, requests: Sequence[GenerationRequest], on_emit: OnEmit | None = None) -> list[GenerationResult]:
        """Run the requests one by one, and call `on_emit` after each; see `Generator.generate`."""
        return one_by_one(requests, on_emit, self._one)

    def metrics(self) -> SpeculationMetrics:
        """Return no counts: mlx-lm has none."""
        return SpeculationMetrics()

    def close(self) -> None:
        """Do nothing: models are freed with the generator."""

    def _one(self, index: int, request: GenerationRequest) -> GenerationResult:
        _reject_missing(request)
        limit = self._options.max_model_len or int(self._config["max_position_embeddings"])
        length = len(request.prompt_token_ids)
        require_room(index, length, limit)
        require_known(index, request.prompt_token_ids, int(self._config["vocab_size"]))
        self._mx.random.seed(next(self._seeds) if request.seed is None else request.seed)
        stop = self._stop_token_ids(request)
        tokens: list[int] = []
        logprobs: list[TokenLogprobs] = []
        emitted = self._emitted(request, min(request.max_tokens, limit - length))
        for token, row in emitted:
            tokens.append(token)
            if request.logprobs is not None:
                logprobs.append(self._logprobs(row, token, request.logprobs))
            if token in stop:
                break
        emitted.close()
        stopped = tokens[-1] in stop
        reason = FinishReason.STOP if stopped else FinishReason.LENGTH
        return GenerationResult(tuple(tokens), reason, logprobs=tuple(logprobs))

    def _emitted(self, request: GenerationRequest, most: int) -> Any:
        """Return a generator of tokens and of log-probabilities [V]."""
        options: dict[str, Any] = {
            "max_tokens": most,
            "prefill_step_size": self._options.max_num_batched_tokens,
            "sampler": self._sampling.make_sampler(
                temp=request.temperature,
                top_p=request.top_p if request.top_p < 1 else 0.0,
                top_k=min(request.top_k, int(self._config["vocab_size"]) - 1),
            ),
            "logits_processors": self._sampling.make_logits_processors(
                logit_bias=dict(request.logit_bias) or None,
                repetition_penalty=request.repetition_penalty if request.repetition_penalty != 1 else None,
                repetition_context_size=len(request.prompt_token_ids) + most,
            ),
        }
        prompt = self._mx.array(list(request.prompt_token_ids))
        if self._draft is None:
            return _pairs(self._generate.generate_step(prompt, self._model, **options))
        options["num_draft_tokens"] = self._options.max_drafts
        return _pairs(self._generate.speculative_generate_step(prompt, self._model, self._draft, **options))

    def _stop_token_ids(self, request: GenerationRequest) -> set[int]:
        own = self._config.get("eos_token_id")
        own_ids = [] if own is None or request.ignore_eos else own if isinstance(own, list) else [own]
        return {*own_ids, *request.stop_token_ids}

    def _logprobs(self, row: Any, token: int, top: int) -> TokenLogprobs:
        values = self._mx.array(row, dtype=self._mx.float32)
        best = self._mx.argsort(-values)[:top].tolist()
        return TokenLogprobs(float(values[token]), tuple((i, float(values[i])) for i in best))


def _load(utils: Any, folder: Path) -> Any:
    """Return the model of a checkpoint folder and its configuration."""
    try:
        return utils.load_model(folder)
    except (OSError, ValueError) as error:
        raise VerispecError(
            "V-ENG-MLX",
            "mlx-lm cannot load the checkpoint",
            where=str(folder),
            cause=f"{type(error).__name__}: {error}",
            hint="name a folder with config.json and safetensors of an architecture that mlx-lm has",
        ) from error


def _pairs(steps: Iterator[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
    for token, row, *_ in steps:
        yield int(token), row


def _reject_missing(request: GenerationRequest) -> None:
    """Raise UnsupportedCall for parameters that mlx-lm lacks, or applies in another order or place."""
    warm = not request.greedy
    limits = [name for name in ("top_k", "top_p") if getattr(request, name) != getattr(_PLAIN, name)]
    missing = (
        (warm and request.temperature != 1 and request.top_p < 1, "temperature before top-p: it applies top-p first"),
        (warm and request.min_p, "min-p after the temperature: it applies min-p first"),
        (warm and len(limits) > 1, "top-k before top-p: it applies top-p first"),
        (request.presence_penalty or request.frequency_penalty, "penalties of the output alone: the prompt counts too"),
        (request.bad_words, "bad words"),
        (request.allowed_token_ids, "allowed token ids"),
        (request.grammar is not None, "grammars"),
        (request.min_tokens, "minimum number of tokens"),
        (request.n > 1, "several samples of one prompt"),
        (request.stop, "stop strings among token ids"),
        (request.prompt_logprobs is not None, "log-probabilities of a prompt"),
        (request.logprobs is not None and _processed(request), "log-probabilities before penalties"),
        (request.abort_after is not None, "aborts"),
    )
    refuse_missing("mlx-lm", missing)


def _processed(request: GenerationRequest) -> bool:
    """Return True if logits processors change what the log-probabilities are taken from."""
    return bool(request.logit_bias) or request.repetition_penalty != 1


_PLAIN = GenerationRequest(prompt_token_ids=(0,))


def create(device: str | None = None) -> Engine:
    """Return the mlx-lm installed here.

    Args:
        device: None or "cpu".

    Raises:
        VerispecError: V-ENG-MLX when mlx-lm is missing, V-ENG-DEVICE for another device.
    """
    require_cpu(device, "mlx-lm")
    return Mlx()
