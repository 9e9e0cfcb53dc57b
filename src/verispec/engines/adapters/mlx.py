"""Engine ``mlx-lm``: the generation of mlx-lm, plain and with a draft model, one request after the other.

mlx-lm accepts a draft where it equals the token that it samples from the target there. On Linux MLX runs on the CPU.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

from verispec.engines import Description, Engine, Unsupported, UnsupportedCall
from verispec.engines.adapters.admission import Admission, OneByOne, Turn
from verispec.engines.adapters.counted_steps import summed
from verispec.engines.adapters.offers import Offers
from verispec.engines.adapters.partial import PartialEngine, imported, require_cpu
from verispec.engines.protocol.generation import (
    GenerationRequest,
    GenerationResult,
    LoadOptions,
    SpeculationMetrics,
    SpeculativeStep,
    TokenLogprobs,
)
from verispec.errors import VerispecError

OFFERS = Offers(
    "mlx-lm",
    ("none", "draft_model"),
    options={"dtype": ("float32", "float16", "bfloat16")},
    parameters=("top_k", "top_p", "min_p", "repetition_penalty", "logit_bias", "logprobs"),
    words={
        "dtype": "float64, as most devices of MLX",
        "lora_adapters": "adapters per request: it adds one to all, in a layout of its own",
        "logprobs_mode": "log-probabilities but those of the model's own logits",
        "presence_penalty": "penalties of the output alone: the prompt counts too",
        "frequency_penalty": "penalties of the output alone: the prompt counts too",
    },
)


class Mlx(PartialEngine):
    """The mlx-lm installed here."""

    lacks: ClassVar = {
        "op": "mlx-lm has no kernels of speculative decoding",
        "sampler": "mlx-lm has no sampler that takes a batch of drafts",
        "definitions": "mlx-lm has no kernels of speculative decoding",
    }

    def __init__(self) -> None:
        hint = "pip install mlx-lm, and 'mlx[cpu]' where there is no Apple GPU"
        self._mx, self._utils = imported("V-ENG-MLX", "mlx-lm", ("mlx.core", "mlx_lm.utils"), hint)
        self._mx.set_default_device(self._mx.cpu)

    def describe(self) -> Description:
        """Return the versions of mlx-lm and MLX."""
        return Description("mlx-lm", version("mlx-lm"), "cpu", "cpu", {"mlx": version("mlx")})

    def load(self, target: Path, **options: Any) -> Any | Unsupported:
        """Return a generator over the checkpoint folder `target`; see `Engine.load`."""
        wanted = LoadOptions(**options)
        return OFFERS.lacks_option(wanted) or MlxGenerator(self._mx, self._utils, Path(target), wanted)


class MlxGenerator(OneByOne):
    """`generate_step` and `speculative_generate_step` behind the `Generator` protocol.

    Raises UnsupportedCall for drafts to a model with a cache that mlx-lm cannot trim.
    """

    def __init__(self, mx: Any, utils: Any, target: Path, options: LoadOptions) -> None:
        super().__init__(Admission(OFFERS, options, target))
        self._mx, self._options, self._steps = mx, options, list[SpeculativeStep]()
        self._generate: Any = importlib.import_module("mlx_lm.generate")
        self._sampling: Any = importlib.import_module("mlx_lm.sample_utils")
        self._model = _load(utils, target)
        self._draft = _load(utils, Path(options.draft)) if options.draft else None
        caches: Any = importlib.import_module("mlx_lm.models.cache")
        if self._draft is not None and not caches.can_trim_prompt_cache(caches.make_prompt_cache(self._model)):
            raise UnsupportedCall("mlx-lm does not draft for recurrent models: their cache cannot be trimmed")
        for model in (self._model, self._draft):
            if model is not None:
                model.set_dtype(getattr(mx, options.dtype))

    def run(self, turn: Turn) -> GenerationResult:
        """Return the tokens that one of its generators yields until a stop token, and the steps of greedy text.

        A sampled draft is accepted where it equals the target's sample, so that no ratio of probabilities explains
        its step.
        """
        self._mx.random.seed(turn.seed)
        tokens: list[int] = []
        logprobs: list[TokenLogprobs] = []
        steps: list[SpeculativeStep] = []
        begun, accepted = 0, 0
        emitted = self._emitted(turn.request, turn.most)
        for place, (token, row, *is_draft) in enumerate(emitted, start=1):
            if not tokens or tokens[-1] not in turn.stops:
                tokens.append(int(token))
                if turn.request.logprobs is not None:
                    logprobs.append(self._logprobs(row, tokens[-1], turn.request.logprobs))
            accepted += any(is_draft)
            if not any(is_draft) or place == turn.most:
                steps.append(SpeculativeStep(min(turn.most - begun, self._options.max_drafts), accepted))
                begun, accepted = place, 0
                if tokens[-1] in turn.stops:
                    break
        emitted.close()
        told = steps if self._draft is not None and turn.request.greedy else ()
        self._steps += told
        return turn.result(tokens, logprobs, steps=tuple(told))

    def metrics(self) -> SpeculationMetrics:
        """Return the sums of the steps of greedy requests."""
        return summed(self._steps, self._options.max_drafts if self._draft is not None else 0)

    def lacks(self, request: GenerationRequest) -> Iterable[tuple[object, str]]:
        """Return parameters that mlx-lm applies in another order or place."""
        warm = not request.greedy
        limits = (request.top_k != 0) + (request.top_p < 1)
        processed = bool(request.logit_bias) or request.repetition_penalty != 1
        cooled = warm and request.temperature != 1 and request.top_p < 1
        return (
            (cooled, "temperature before top-p: it applies top-p first"),
            (warm and request.min_p, "min-p after the temperature: it applies min-p first"),
            (warm and limits > 1, "top-k before top-p: it applies top-p first"),
            (request.logprobs is not None and processed, "log-probabilities before penalties"),
            ((request.seed or 0) < 0, "seeds below 0: those of MLX have no sign"),
        )

    def _emitted(self, request: GenerationRequest, most: int) -> Any:
        """Return a generator of tokens and of log-probabilities [V]."""
        options: dict[str, Any] = {
            "max_tokens": most,
            "prefill_step_size": self._options.max_num_batched_tokens,
            "sampler": self._sampling.make_sampler(
                temp=request.temperature,
                top_p=request.top_p if request.top_p < 1 else 0.0,
                top_k=min(request.top_k, self.admission.vocab_size - 1),
            ),
            "logits_processors": self._sampling.make_logits_processors(
                logit_bias=dict(request.logit_bias) or None,
                repetition_penalty=request.repetition_penalty if request.repetition_penalty != 1 else None,
                repetition_context_size=len(request.prompt_token_ids) + most,
            ),
        }
        prompt = self._mx.array(list(request.prompt_token_ids))
        if self._draft is None:
            return self._generate.generate_step(prompt, self._model, **options)
        options["num_draft_tokens"] = self._options.max_drafts
        return self._generate.speculative_generate_step(prompt, self._model, self._draft, **options)

    def _logprobs(self, row: Any, token: int, top: int) -> TokenLogprobs:
        values = self._mx.array(row, dtype=self._mx.float32)
        best = self._mx.argsort(-values)[:top].tolist()
        return TokenLogprobs(float(values[token]), tuple((i, float(values[i])) for i in best))


def _load(utils: Any, folder: Path) -> Any:
    """Return the model of a checkpoint folder."""
    try:
        return utils.load_model(folder)[0]
    except (OSError, ValueError) as error:
        raise VerispecError(
            "V-ENG-MLX",
            "mlx-lm cannot load the checkpoint",
            where=str(folder),
            cause=f"{type(error).__name__}: {error}",
            hint="name a folder with config.json and safetensors of an architecture that mlx-lm has",
        ) from error


def create(device: str | None = None) -> Engine:
    """Return the mlx-lm installed here.

    Args:
        device: None or "cpu".

    Raises:
        VerispecError: V-ENG-MLX when mlx-lm is missing, V-ENG-DEVICE for another device.
    """
    require_cpu(device, "mlx-lm")
    return Mlx()
