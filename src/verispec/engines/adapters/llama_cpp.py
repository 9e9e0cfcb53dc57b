"""Engine ``llama.cpp``: generation of llama.cpp in this process, through the wheel xllamacpp, on the CPU in float32.

It runs plain, with a draft model, or with n-grams of the kind that the engine's name chooses, several requests at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

from verispec.engines import Description, Engine, Unsupported
from verispec.engines.adapters.admission import Admission, Turn
from verispec.engines.adapters.counted_steps import summed
from verispec.engines.adapters.llama_gguf import converted
from verispec.engines.adapters.llama_text import MARKS, StreamedAnswer, stop_words
from verispec.engines.adapters.offers import Offers
from verispec.engines.adapters.partial import PartialEngine, imported, require_cpu
from verispec.engines.protocol.generation import (
    GenerationRequest,
    GenerationResult,
    LoadOptions,
    OnEmit,
    SpeculationMetrics,
    SpeculativeStep,
)
from verispec.errors import VerispecError

_PADDING = 256
"""A context is a multiple of as many tokens."""
_DRAWN = 10
"""Number of likeliest tokens that a draft model draws from; over more tokens its distribution is not the model's."""

OFFERS = Offers(
    "llama.cpp",
    ("none", "ngram", "draft_model"),
    options={
        "ngram_min": range(1, 1 << 16),
        "max_num_seqs": range(257),
        "block_size": range(1, 1 << 16),  # Its cache has a cell per token, so that no block is ever half full.
        "draft_sample_method": ("probabilistic", "greedy"),
    },
    parameters=("top_k", "top_p", "min_p", "repetition_penalty", "logit_bias", "logprobs", "abort_after"),
    words={
        "method": "this adapter drafts with n-grams and draft models",
        "ngram_max": "range of lengths: its n-grams have one length",
        "dtype": "model but in float32 through this adapter",
        "max_num_seqs": "more than 256 sequences",
        "num_blocks": "waiting for KV cells: a request that finds none ends in an error",
        "presence_penalty": "penalties of the output alone: the prompt counts too",
        "frequency_penalty": "penalties of the output alone: the prompt counts too",
        "n": "several samples of one prompt through this adapter",
        "grammar": "grammars of token ids: its grammars are of texts",
        "lora_adapter": "LoRA adapters in this adapter",
    },
)


class LlamaCpp(PartialEngine):
    """The llama.cpp of the xllamacpp installed here; `ngram` is the kind of its n-grams."""

    lacks: ClassVar = {
        "op": "llama.cpp verifies drafts in one C++ function, which has no name outside",
        "sampler": "llama.cpp's samplers have no name outside of the library",
        "definitions": "llama.cpp has no kernels of speculative decoding",
    }

    def __init__(self, ngram: str) -> None:
        self._ngram = ngram
        self._library, _ = imported("V-ENG-LLAMA", "llama.cpp", ("xllamacpp", "gguf"), "pip install xllamacpp gguf")

    def describe(self) -> Description:
        """Return the version of xllamacpp and the kind of n-grams."""
        return Description(
            "llama.cpp", version("xllamacpp"), "cpu", "cpu", {"wheel": "xllamacpp", "ngram": self._ngram}
        )

    def load(self, target: Path, **options: Any) -> Any | Unsupported:
        """Return a generator over the checkpoint folder `target`; see `Engine.load`."""
        wanted = LoadOptions(**options)
        return OFFERS.lacks_option(wanted) or LlamaCppGenerator(self._library, Path(target), wanted, self._ngram)


class LlamaCppGenerator:
    """`xllamacpp.Server` behind the `Generator` protocol: called in this process, and without HTTP."""

    def __init__(self, library: Any, target: Path, options: LoadOptions, ngram: str) -> None:
        self._options, self._steps = options, list[SpeculativeStep]()
        self._admission = Admission(OFFERS, options, target)
        try:
            self._server = library.Server(_parameters(library, target, options, self._admission.limit, ngram))
        except RuntimeError as error:
            raise VerispecError(
                "V-ENG-LLAMA",
                "llama.cpp refuses the models",
                where=f"{target}, {options.method}",
                cause=str(error),
                hint="its log on the standard error has the reason",
            ) from error

    def generate(self, requests: Sequence[GenerationRequest], on_emit: OnEmit | None = None) -> list[GenerationResult]:
        """Run as many requests at once as there may be; see `Generator.generate`."""
        for index, request in enumerate(requests):
            self._admission.check(index, request, _lacks(request))
        running = [
            StreamedAnswer(self._admission.turn(request), partial(on_emit or (lambda *_: None), index))
            for index, request in enumerate(requests)
        ]
        with ThreadPoolExecutor(self._options.max_num_seqs) as threads:
            list(threads.map(lambda one: self._server.handle_completions(_body(one.turn), one), running))
        results = [one.result() for one in running]
        self._steps += [step for result in results for step in result.steps]
        return [self._told(result, request) for result, request in zip(results, requests, strict=True)]

    def _told(self, result: GenerationResult, request: GenerationRequest) -> GenerationResult:
        """Return a result without its steps where their probabilities are not those of the draft model."""
        options = self._options
        drawn = options.method == "draft_model" and options.draft_sample_method == "probabilistic"
        cut = drawn and not request.greedy and self._admission.vocab_size > _DRAWN
        return replace(result, steps=()) if cut else result

    def metrics(self) -> SpeculationMetrics:
        """Return the sums of the steps of all results."""
        return summed(self._steps, self._options.max_drafts if self._options.method != "none" else 0)

    def close(self) -> None:
        """Stop the server's threads, and free the models."""
        self._server = None


def _parameters(library: Any, target: Path, options: LoadOptions, limit: int, ngram: str) -> Any:
    chosen = library.CommonParams()
    chosen.model.path, chosen.port, chosen.verbosity = str(converted(target)), 0, 0
    chosen.n_parallel = options.max_num_seqs
    chosen.n_ctx = options.max_num_seqs * (-(-limit // _PADDING) * _PADDING)
    chosen.n_batch = chosen.n_ubatch = options.max_num_batched_tokens
    # On the CPU flash attention computes in half precision, whatever the cache holds.
    chosen.flash_attn_type = library.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    chosen.warmup, chosen.cache_prompt, chosen.cache_ram_mib = False, False, 0
    draft = chosen.speculative.draft
    for part in (chosen, draft):
        part.cache_type_k = part.cache_type_v = library.ggml_type.GGML_TYPE_F32
        part.cpuparams.n_threads = part.cpuparams_batch.n_threads = 1
    kinds = library.common_speculative_type
    draft.n_max = options.max_drafts
    if options.method == "draft_model":
        chosen.speculative.types = [kinds.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
        draft.mparams.path = str(converted(Path(str(options.draft))))
        draft.probabilistic = options.draft_sample_method == "probabilistic"
    elif options.method == "ngram":
        chosen.speculative.types = [getattr(kinds, f"COMMON_SPECULATIVE_TYPE_NGRAM_{ngram.upper()}")]
        lookup = getattr(chosen.speculative, f"ngram_{ngram}")
        if ngram == "mod":
            lookup.n_match, lookup.n_min, lookup.n_max = options.ngram_min, 1, options.max_drafts
        elif ngram != "cache":
            lookup.size_n, lookup.size_m = options.ngram_min, options.max_drafts
    return chosen


def _body(turn: Turn) -> dict[str, Any]:
    request = turn.request
    return {
        "prompt": list(request.prompt_token_ids),
        "max_tokens": turn.most,
        "seed": turn.seed % (2**32 - 1),  # The last number asks for any seed.
        "temperature": request.temperature,
        "top_k": request.top_k,
        "top_p": request.top_p,
        "min_p": request.min_p,
        "repeat_penalty": request.repetition_penalty,
        "repeat_last_n": 1 << 16,  # The whole text; -1 is refused.
        "samplers": ["penalties", "temperature", "min_p", "top_k", "top_p"],
        "logit_bias": [[token, bias] for token, bias in request.logit_bias.items()],
        "stop": stop_words(turn.stops),
        "stream": True,
        "timings_per_token": True,
    } | ({} if request.logprobs is None else {"logprobs": max(1, request.logprobs)})


def _lacks(request: GenerationRequest) -> Iterable[tuple[object, str]]:
    """Return further reasons to refuse a request; see `Offers.refuse`."""
    return ((len(request.stop_token_ids) >= MARKS, f"room for more than {MARKS} stop tokens through this adapter"),)


def create(device: str | None = None, ngram: str = "simple") -> Engine:
    """Return the llama.cpp installed here.

    Args:
        device: None or "cpu".
        ngram: kind of the n-grams of method `ngram`.

    Raises:
        VerispecError: V-ENG-LLAMA when a package is missing, V-ENG-DEVICE for another device.
    """
    require_cpu(device, "llama.cpp")
    return LlamaCpp(ngram)


ngram_cache = partial(create, ngram="cache")
ngram_map_k = partial(create, ngram="map_k")
ngram_map_k4v = partial(create, ngram="map_k4v")
ngram_mod = partial(create, ngram="mod")
