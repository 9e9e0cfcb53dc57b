"""Engine ``openvino-genai``: generation of OpenVINO GenAI on the CPU, in batches, in float32.

Its pipeline of continuous batching runs plain, with a draft model, or with prompt lookup. It caches prefixes only as
``openvino-genai:prefix-caching``: `LLMPipeline` caches them by default, a `SchedulerConfig` does not.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from verispec.engines import Description, Engine, Unsupported
from verispec.engines.adapters.admission import Admission, Turn
from verispec.engines.adapters.offers import Offers
from verispec.engines.adapters.openvino_ir import converted
from verispec.engines.adapters.partial import PartialEngine, imported, require_cpu
from verispec.engines.protocol.generation import (
    FinishReason,
    GenerationRequest,
    GenerationResult,
    LoadOptions,
    OnEmit,
    SpeculationMetrics,
    TokenLogprobs,
)
from verispec.errors import VerispecError

BLOCK = 32
"""Tokens per KV block of its CPU plugin."""
_FLOAT32 = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}

OFFERS = Offers(
    "OpenVINO GenAI",
    ("none", "ngram", "draft_model"),
    options={
        "ngram_min": range(LoadOptions().ngram_min + 1),
        "ngram_max": range(1 << 20),
        "max_num_seqs": range(2, 1 << 20),
        "block_size": (LoadOptions().block_size, BLOCK),
        "num_blocks": range(1 << 40),
    },
    parameters=("top_k", "top_p", "min_p", "min_tokens", "repetition_penalty", "logprobs", "abort_after"),
    words={
        "speculative_token_tree": "draft trees but with Eagle3",
        "dtype": "dtype but float32 through this adapter: every CPU has it",
        "max_num_seqs": "limit of one request per step where it splits prompts",
        "block_size": f"KV blocks but of {BLOCK} tokens on its CPU plugin",
        "presence_penalty": "subtracted penalties: its move logits towards zero",
        "frequency_penalty": "subtracted penalties: its move logits towards zero",
        "n": "several samples of one prompt through this adapter",
    },
)


class OpenVino(PartialEngine):
    """The OpenVINO GenAI installed here."""

    lacks: ClassVar = {
        "op": "OpenVINO GenAI verifies drafts in one C++ function, which has no name outside",
        "sampler": "OpenVINO GenAI's sampler has no name outside of its pipelines",
        "definitions": "OpenVINO GenAI has no kernels with callers of their own",
    }

    def __init__(self, *, prefix_caching: bool) -> None:
        self._prefix_caching = prefix_caching
        modules = ("openvino", "openvino_genai")
        self._openvino, self._genai = imported(
            "V-ENG-OPENVINO", "openvino-genai", modules, "pip install openvino-genai"
        )

    def describe(self) -> Description:
        """Return the versions of OpenVINO GenAI and OpenVINO."""
        details = {"openvino": version("openvino"), "prefix caching": "on" if self._prefix_caching else "off"}
        return Description("openvino-genai", version("openvino-genai"), "cpu", "cpu", details)

    def load(self, target: Path, **options: Any) -> Any | Unsupported:
        """Return a generator over the checkpoint folder `target`; see `Engine.load`."""
        wanted = LoadOptions(**options)
        if lack := OFFERS.lacks_option(wanted):
            return lack
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

    turn: Turn
    handle: Any
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    stopped: bool = False
    aborted: bool = False


class OpenVinoGenerator:
    """`ContinuousBatchingPipeline` behind the `Generator` protocol: all requests at once, read after every step."""

    def __init__(self, openvino: Any, genai: Any, target: Path, options: LoadOptions, prefix_caching: bool) -> None:
        self._openvino, self._genai, self._options = openvino, genai, options
        self._numbers = itertools.count()
        folder = converted(target)
        self._admission = Admission(OFFERS, options, folder)
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
            self._admission.check(index, request, _lacks(request))
        running = [_Running(turn, self._added(turn)) for turn in map(self._admission.turn, requests)]
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
            return f"the vocabulary has {self._admission.vocab_size} tokens"
        other = json.loads((Path(draft) / "config.json").read_text(encoding="utf-8"))["vocab_size"]
        return f"the target's vocabulary has {self._admission.vocab_size} tokens, the draft model's {other}"

    def _added(self, turn: Turn) -> Any:
        """Return the handle of a request after it was given to the pipeline."""
        options, request, stops = self._options, turn.request, set(turn.stops)
        config = self._genai.GenerationConfig(
            max_new_tokens=turn.most,
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
            config.rng_seed = turn.seed % 2**64
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
        after = one.turn.request.abort_after
        if after is not None and not one.aborted and len(one.token_ids) >= after:
            one.aborted = True
            one.handle.cancel()
        return new

    def _result(self, index: int, one: _Running) -> GenerationResult:
        # A pipeline whose requests are all cancelled ignores them too, for want of anything to schedule.
        if not one.aborted and one.handle.get_status() == self._genai.GenerationStatus.IGNORED:
            raise RuntimeError(f"OpenVINO GenAI ignored request {index}, as if no KV block could ever be free for it")
        logprobs = () if one.turn.request.logprobs is None else tuple(TokenLogprobs(value) for value in one.logprobs)
        reason = FinishReason.STOP if one.stopped else FinishReason.LENGTH
        reason = FinishReason.ABORT if one.aborted else reason
        return replace(one.turn.result(one.token_ids, logprobs), finish_reason=reason)


def _lacks(request: GenerationRequest) -> Iterable[tuple[object, str]]:
    """Return parameters that OpenVINO GenAI applies in another order, or reports in part."""
    return (
        (request.min_p and request.top_p < 1, "top-p of the mass that min-p leaves: it takes that of all tokens"),
        (request.logprobs, "log-probabilities of tokens other than the sampled one"),
    )


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
