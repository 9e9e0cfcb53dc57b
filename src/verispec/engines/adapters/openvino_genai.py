"""Engine ``openvino-genai``: generation of OpenVINO GenAI on the CPU, in batches, in float32.

Its pipeline of continuous batching runs plain, with a draft model, or with prompt lookup. It caches prefixes only as
``openvino-genai:prefix-caching``: `LLMPipeline` caches them by default, a `SchedulerConfig` does not.
"""

from __future__ import annotations

import importlib
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from verispec.engines import Description, Engine, Unsupported
from verispec.engines.adapters.checkpoints import end_tokens
from verispec.engines.adapters.openvino_ir import converted
from verispec.engines.adapters.partial import PartialEngine, refuse_missing, require_cpu, require_known, require_room
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

BLOCK = 32
"""Tokens per KV block of its CPU plugin."""
_FLOAT32 = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}


class OpenVino(PartialEngine):
    """The OpenVINO GenAI installed here."""

    lacks: ClassVar = {
        "op": "OpenVINO GenAI verifies drafts in one C++ function, which has no name outside",
        "sampler": "OpenVINO GenAI's sampler has no name outside of its pipelines",
        "definitions": "OpenVINO GenAI has no kernels with callers of their own",
    }

    def __init__(self, *, prefix_caching: bool) -> None:
        self._prefix_caching = prefix_caching
        try:
            self._openvino: Any = importlib.import_module("openvino")
            self._genai: Any = importlib.import_module("openvino_genai")
        except ImportError as error:
            raise VerispecError(
                "V-ENG-OPENVINO",
                "OpenVINO GenAI cannot be imported",
                where="--engine openvino-genai",
                cause=f"{type(error).__name__}: {error}",
                hint="pip install openvino-genai",
            ) from error

    def describe(self) -> Description:
        """Return the versions of OpenVINO GenAI and OpenVINO."""
        details = {"openvino": version("openvino"), "prefix caching": "on" if self._prefix_caching else "off"}
        return Description("openvino-genai", version("openvino-genai"), "cpu", "cpu", details)

    def load(self, target: Path, **options: Any) -> Any | Unsupported:
        """Return a generator over the checkpoint folder `target`; see `Engine.load`."""
        wanted, plain = LoadOptions(**options), LoadOptions()
        drafts = wanted.method != "none"
        for refused, reason in (
            (
                wanted.method not in ("none", "ngram", "draft_model"),
                f"this adapter converts no checkpoint for {wanted.method}",
            ),
            (wanted.sampler != "flat", "OpenVINO GenAI has no random numbers counted by position"),
            (wanted.rejection_sample_method != "standard", "OpenVINO GenAI has one verification method"),
            (wanted.parallel_drafting, "OpenVINO GenAI's draft models draft one token after another"),
            (wanted.num_speculative_tokens_per_batch_size, "OpenVINO GenAI's K does not depend on the batch"),
            (wanted.num_speculative_tokens == AUTO, "OpenVINO GenAI drafts with one K"),
            (wanted.speculative_token_tree, "OpenVINO GenAI drafts chains but with Eagle3"),
            (
                wanted.method == "ngram" and wanted.ngram_min > plain.ngram_min,
                "its lookup has no shortest match",
            ),
            (wanted.async_scheduling, "OpenVINO GenAI has no asynchronous scheduling"),
            (wanted.tensor_parallel_size > 1, "this adapter runs OpenVINO GenAI in one process"),
            (wanted.lora_adapters, "this adapter converts no LoRA adapters"),
            (wanted.dtype != "float32", "this adapter runs OpenVINO GenAI in float32, which every CPU has"),
            (wanted.block_size not in (plain.block_size, BLOCK), f"its CPU plugin has KV blocks of {BLOCK} tokens"),
            (drafts and wanted.draft_sample_method == "greedy", "OpenVINO GenAI's draft models draw their drafts"),
            (wanted.max_num_seqs == 1, "OpenVINO GenAI limits requests per step only where it does not split prompts"),
            (wanted.logprobs_mode != "raw", "OpenVINO GenAI reports log-probabilities of the model's own logits"),
        ):
            if refused:
                return Unsupported(reason)
        if wanted.num_blocks and wanted.max_model_len > wanted.num_blocks * BLOCK:
            raise VerispecError(
                "V-GEN-OPTION",
                f"num_blocks={wanted.num_blocks} holds fewer tokens than max_model_len={wanted.max_model_len}",
                where="num_blocks",
                hint=f"allow {-(-wanted.max_model_len // BLOCK)} blocks of {BLOCK} tokens, or a lower max_model_len",
            )
        return OpenVinoGenerator(self._openvino, self._genai, Path(target), wanted, self._prefix_caching)


@dataclass(slots=True)
class _Running:
    """A request in the pipeline, its handle, and its output so far."""

    request: GenerationRequest
    handle: Any
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    stopped: bool = False
    aborted: bool = False


class OpenVinoGenerator:
    """`ContinuousBatchingPipeline` behind the `Generator` protocol: all requests at once, read after every step."""

    def __init__(self, openvino: Any, genai: Any, target: Path, options: LoadOptions, prefix_caching: bool) -> None:
        self._openvino, self._genai, self._options = openvino, genai, options
        self._seeds = itertools.count(options.seed)  # of requests without one: no two draw alike
        self._numbers = itertools.count()
        folder = converted(target)
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self._eos = end_tokens(folder, config)
        self._vocab_size = int(config["vocab_size"])
        self._limit = options.max_model_len or int(config["max_position_embeddings"])
        properties: dict[str, Any] = dict(_FLOAT32)
        if options.method == "ngram":
            properties["prompt_lookup"] = True
        if options.draft is not None:
            properties["draft_model"] = genai.draft_model(str(converted(Path(options.draft))), "CPU", **_FLOAT32)
        scheduler = genai.SchedulerConfig()
        scheduler.max_num_seqs = options.max_num_seqs
        scheduler.max_num_batched_tokens = options.max_num_batched_tokens
        scheduler.num_kv_blocks = options.num_blocks
        scheduler.enable_prefix_caching = prefix_caching
        try:
            self._pipeline = genai.ContinuousBatchingPipeline(str(folder), scheduler, "CPU", properties)
        except RuntimeError as error:
            raise VerispecError(
                "V-ENG-OPENVINO",
                f"OpenVINO GenAI refuses the models: {self._sizes(options.draft)}",
                where=f"{target}, {options.method}",
                cause=" ".join(str(error).split()),
                hint="name folders of one family, with the same tokenizer",
            ) from error

    def generate(self, requests: Sequence[GenerationRequest], on_emit: OnEmit | None = None) -> list[GenerationResult]:
        """Run all requests together; see `Generator.generate`."""
        for index, request in enumerate(requests):
            self._check(index, request)
        running = [_Running(request, self._added(request)) for request in requests]
        while self._pipeline.has_non_finished_requests():
            self._pipeline.step()
            for index, one in enumerate(running):
                if (new := self._read(one)) and on_emit is not None:
                    on_emit(index, new, ())
        return [self._result(index, one) for index, one in enumerate(running)]

    def metrics(self) -> SpeculationMetrics:
        """Return no counts: the pipeline reports none of a step."""
        return SpeculationMetrics()

    def close(self) -> None:
        """Free the pipeline."""
        self._pipeline = None

    def _sizes(self, draft: Path | None) -> str:
        """Return the vocabulary sizes of the models, for a message."""
        if draft is None:
            return f"the vocabulary has {self._vocab_size} tokens"
        other = json.loads((Path(draft) / "config.json").read_text(encoding="utf-8"))["vocab_size"]
        return f"the target's vocabulary has {self._vocab_size} tokens, the draft model's {other}"

    def _check(self, index: int, request: GenerationRequest) -> None:
        _reject_missing(request)
        require_room(index, len(request.prompt_token_ids), self._limit)
        require_known(index, request.prompt_token_ids, self._vocab_size)

    def _added(self, request: GenerationRequest) -> Any:
        """Return the handle of a request after it was given to the pipeline."""
        options = self._options
        stops = {*request.stop_token_ids, *([] if request.ignore_eos else self._eos)}
        config = self._genai.GenerationConfig(
            max_new_tokens=min(request.max_tokens, self._limit - len(request.prompt_token_ids)),
            min_new_tokens=request.min_tokens if stops else 0,
            do_sample=not request.greedy,
            repetition_penalty=request.repetition_penalty,
            logprobs=int(request.logprobs is not None),
            # It ignores all stop tokens with `ignore_eos`, and adds the model's own to them without `eos_token_id`.
            ignore_eos=not stops,
        )
        if stops:
            config.eos_token_id = min(stops)
            config.stop_token_ids = stops
        if not request.greedy:
            config.temperature, config.top_p, config.min_p = request.temperature, request.top_p, request.min_p
            config.rng_seed = (next(self._seeds) if request.seed is None else request.seed) % 2**64
            if request.top_k:
                config.top_k = request.top_k
        if options.method != "none":
            config.num_assistant_tokens = options.max_drafts
        if options.method == "ngram":
            config.max_ngram_size = options.ngram_max
        prompt = self._openvino.Tensor(np.array([request.prompt_token_ids], np.int64))
        return self._pipeline.add_request(next(self._numbers), prompt, config)

    def _read(self, one: _Running) -> list[int]:
        """Return the tokens that a request emitted since it was read, and abort it where its caller does."""
        new: list[int] = []
        while not one.aborted and one.handle.can_read():
            for output in one.handle.read().values():
                new += output.generated_ids
                one.logprobs += output.generated_log_probs
                one.stopped = output.finish_reason == self._genai.GenerationFinishReason.STOP
        one.token_ids += new
        after = one.request.abort_after
        if after is not None and not one.aborted and len(one.token_ids) >= after:
            one.aborted = True
            one.handle.cancel()
        return new

    def _result(self, index: int, one: _Running) -> GenerationResult:
        if one.handle.get_status() == self._genai.GenerationStatus.IGNORED:
            raise RuntimeError(f"OpenVINO GenAI ignored request {index}: it needs more KV blocks than there are")
        reason = FinishReason.STOP if one.stopped else FinishReason.LENGTH
        logprobs = () if one.request.logprobs is None else tuple(TokenLogprobs(value) for value in one.logprobs)
        return GenerationResult(tuple(one.token_ids), FinishReason.ABORT if one.aborted else reason, logprobs=logprobs)


def _reject_missing(request: GenerationRequest) -> None:
    """Raise UnsupportedCall for parameters that OpenVINO GenAI lacks, or applies in another order or place."""
    missing = (
        (request.min_p and request.top_p < 1, "top-p of the mass that min-p leaves: it takes that of all tokens"),
        (request.presence_penalty or request.frequency_penalty, "subtracted penalties: its move logits towards zero"),
        (request.bad_words, "bad words"),
        (request.allowed_token_ids, "allowed token ids"),
        (request.logit_bias, "logit bias"),
        (request.grammar is not None, "grammars of token ids"),
        (request.logprobs, "log-probabilities of tokens other than the sampled one"),
        (request.prompt_logprobs is not None, "log-probabilities of a prompt"),
        (request.n > 1, "several samples of one prompt through this adapter"),
        (request.stop, "stop strings among token ids"),
    )
    refuse_missing("OpenVINO GenAI", missing)


def create(device: str | None = None) -> Engine:
    """Return the OpenVINO GenAI installed here, without prefix caching.

    Args:
        device: None or "cpu".

    Raises:
        VerispecError: V-ENG-OPENVINO when a package is missing, V-ENG-DEVICE for another device.
    """
    require_cpu(device, "openvino-genai")
    return OpenVino(prefix_caching=False)


def prefix_caching(device: str | None = None) -> Engine:
    """Return the same with prefix caching; see `create`."""
    require_cpu(device, "openvino-genai:prefix-caching")
    return OpenVino(prefix_caching=True)
