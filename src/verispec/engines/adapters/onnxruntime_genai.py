"""Engine ``onnxruntime-genai``: generation of ONNX Runtime GenAI on the CPU, in float32, one request after the other.

Its generator runs plain, with a draft model, or with n-grams.
"""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from verispec.engines import Description, Engine, Unsupported
from verispec.engines.adapters.admission import Admission, OneByOne, Turn
from verispec.engines.adapters.counted_steps import CountedSteps
from verispec.engines.adapters.offers import Offers
from verispec.engines.adapters.onnx_models import converted, joined
from verispec.engines.adapters.partial import PartialEngine, imported, require_cpu
from verispec.engines.protocol.generation import GenerationResult, LoadOptions
from verispec.errors import VerispecError

OFFERS = Offers(
    "ONNX Runtime GenAI",
    ("none", "ngram", "draft_model"),
    options={
        "num_speculative_tokens": range(17),
        "ngram_min": range(LoadOptions().ngram_min + 1),
        "ngram_max": range(16),
    },
    parameters=("top_k", "min_tokens", "repetition_penalty"),
    words={
        "num_speculative_tokens": "more than 16 drafts per step",
        "ngram_min": "range of lengths: its n-grams have one length",
        "dtype": "model but in float32 through this adapter",
        "top_p": "exact top-p: its nucleus may have a few tokens more, as its source says",
        "n": "several samples of one prompt with drafts",
        "abort_after": "aborts of a request by its batch",
    },
)


class OnnxRuntime(PartialEngine):
    """The ONNX Runtime GenAI installed here."""

    lacks: ClassVar = {
        "op": "ONNX Runtime GenAI's verification has no name outside of its generator",
        "sampler": "ONNX Runtime GenAI's sampler has no name outside of its generator",
        "definitions": "ONNX Runtime GenAI has no kernels with callers of their own",
    }

    def __init__(self) -> None:
        hint = "pip install onnxruntime-genai, and onnx and onnx-ir for its model builder"
        (self._genai,) = imported("V-ENG-ONNX", "onnxruntime-genai", ("onnxruntime_genai",), hint)

    def describe(self) -> Description:
        """Return the versions of ONNX Runtime GenAI and ONNX Runtime."""
        details = {"onnxruntime": version("onnxruntime")}
        return Description("onnxruntime-genai", version("onnxruntime-genai"), "cpu", "cpu", details)

    def load(self, target: Path, **options: Any) -> Any | Unsupported:
        """Return a generator over the checkpoint folder `target`; see `Engine.load`."""
        wanted = LoadOptions(**options)
        return OFFERS.lacks_option(wanted) or OnnxRuntimeGenerator(self._genai, Path(target), wanted)


class OnnxRuntimeGenerator(OneByOne):
    """`onnxruntime_genai.Generator` behind the `Generator` protocol; one sequence at a time."""

    def __init__(self, genai: Any, target: Path, options: LoadOptions) -> None:
        super().__init__(Admission(OFFERS, options, target))
        self._genai, self._options = genai, options
        self._folder = converted(target) if options.draft is None else joined(target, Path(options.draft))
        self._stops: frozenset[int] | None = None
        self._model: Any = None
        self._model_for(self.admission.ends)

    def close(self) -> None:
        """Free the model."""
        self._model = None

    def run(self, turn: Turn) -> GenerationResult:
        """Return the tokens of its generator, and the steps that its counters show."""
        generator = self._genai.Generator(model := self._model_for(turn.stops), self._parameters(model, turn))
        generator.append_tokens(np.array(turn.request.prompt_token_ids, np.int32))
        token_ids: list[int] = []
        steps = CountedSteps(*self._counts(generator))
        while not generator.is_done():
            generator.generate_next_token()
            token_ids.append(int(generator.get_next_tokens()[0]))
            steps.count(*self._counts(generator))
        # The suite knows the drafts' distribution without limits; the draft model here has the request's top-k.
        return turn.result(token_ids, steps=() if turn.request.top_k else tuple(steps.steps))

    def _model_for(self, stops: frozenset[int]) -> Any:
        """Return the model with these stop tokens, which belong to its configuration."""
        if stops != self._stops:
            config = self._genai.Config(str(self._folder))
            config.overlay(json.dumps({"model": {"eos_token_id": sorted(stops)}}))
            try:
                self._model = self._genai.Model(config)
            except RuntimeError as error:
                raise VerispecError(
                    "V-ENG-ONNX",
                    "ONNX Runtime GenAI refuses the models",
                    where=str(self._folder),
                    cause=str(error),
                    hint="name folders of one family, with the same vocabulary",
                ) from error
            self._stops = stops
        return self._model

    def _parameters(self, model: Any, turn: Turn) -> Any:
        options, request = self._options, turn.request
        length = len(request.prompt_token_ids)
        chosen = self._genai.GeneratorParams(model)
        search = {
            "max_length": length + turn.most,
            "min_length": length + request.min_tokens if request.min_tokens else 0,
            "do_sample": not request.greedy,
            "repetition_penalty": request.repetition_penalty,
        }
        if not request.greedy:
            search |= {"temperature": request.temperature, "top_k": request.top_k, "top_p": request.top_p}
            search["random_seed"] = turn.seed % 2**31
        chosen.set_search_options(**search)
        if options.method != "none":
            chosen.set_speculative_options(max_draft_tokens=options.max_drafts)
        if options.method == "ngram":
            chosen.set_speculative_options(ngram_size=options.ngram_max + 1)  # The suffix and the token after it.
        return chosen

    def _counts(self, generator: Any) -> tuple[int, int]:
        """Return proposed and accepted drafts so far."""
        found = generator.get_speculative_stats()
        return found["draft_tokens_proposed"], found["draft_tokens_accepted"]


def create(device: str | None = None) -> Engine:
    """Return the ONNX Runtime GenAI installed here.

    Args:
        device: None or "cpu".

    Raises:
        VerispecError: V-ENG-ONNX when the package is missing, V-ENG-DEVICE for another device.
    """
    require_cpu(device, "onnxruntime-genai")
    return OnnxRuntime()
