"""Source that runs vLLM's sampler, or generates with it, without verispec."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from verispec.engines import StandaloneBody, Unsupported
from verispec.engines.adapters.vllm.installed import generate, sampler
from verispec.engines.adapters.vllm.installed.preload import ENVIRONMENT
from verispec.engines.protocol.generation import GenerationRequest, LoadOptions
from verispec.engines.protocol.sampling import SamplerBatch

FILLED = "torch.use_deterministic_algorithms(True, warn_only=True)  # Unwritten memory then holds NaN in every run."
"""The line that makes a result that depends on uninitialised memory the same in every run."""
NOT_NEEDED = ("disable_log_stats", "per_request_spec_decode_metrics", "logprobs_mode", "seed")
"""Engine arguments that verispec needs for its own counts."""


def step_body(batch: SamplerBatch, device: str, setup: Sequence[str]) -> StandaloneBody | Unsupported:
    """Return the source of one step of the rejection sampler.

    Args:
        batch: the step; logits and draft probabilities are variables.
        device: device of the tensors.
        setup: lines that install vLLM's kernels.
    """
    if batch.synthetic_rates is not None:
        return Unsupported("synthetic acceptance needs a configuration object of vLLM's own")
    imports = (
        "import torch",
        *setup,
        "from vllm.v1.sample.logits_processor import LogitsProcessors",
        "from vllm.v1.sample.metadata import SamplingMetadata",
        f"from {sampler.SAMPLER_MODULE} import RejectionSampler",
        "from vllm.v1.sample.sampler import Sampler",
        "from vllm.v1.spec_decode.metadata import SpecDecodeMetadata",
        FILLED,
    )
    seeds = {b: seed for b, seed in enumerate(batch.seeds or ()) if seed is not None}
    fields = sampler.sampling_fields(batch, {}, device)
    generators = {b: f"torch.Generator({device!r}).manual_seed({seed})" for b, seed in seeds.items()}
    made = ", ".join(f"{b}: {text}" for b, text in generators.items())
    own = {"generators": f"{{{made}}}", "logitsprocs": "LogitsProcessors()"}
    sampling = {name: own.get(name) or _source(value) for name, value in fields.items()}
    spec = {name: _source(value) for name, value in sampler.spec_fields(batch, device).items()}
    vocab = batch.vocab_size
    cls = getattr(importlib.import_module(sampler.SAMPLER_MODULE), "RejectionSampler")  # noqa: B009 - an Any
    parsed = cls.parse_output(torch.zeros((1, 1), dtype=torch.int32), vocab)
    first = "[0]" if isinstance(parsed, tuple) else ""
    moved = "" if device == "cpu" else f".to({device!r})"
    probs = "draft_probs" if batch.draft_probs is None else f"draft_probs{moved}"
    return StandaloneBody(
        imports,
        (
            f"spec = SpecDecodeMetadata({_arguments(spec)})",
            f"sampling = SamplingMetadata({_arguments(sampling)})",
            f"output = RejectionSampler(Sampler())(spec, {probs}, logits{moved}, sampling)",
            f"tokens = RejectionSampler.parse_output(output.sampled_token_ids, {vocab}){first}",
        ),
    )


def text_body(options: LoadOptions, requests: Sequence[GenerationRequest]) -> StandaloneBody | Unsupported:
    """Return the source that loads ``vllm.LLM`` and generates.

    Args:
        options: options of the generator; the folders are the variables TARGET and DRAFT.
        requests: one batch.
    """
    if any(request.bad_words or request.grammar or request.abort_after for request in requests):
        return Unsupported("bad words, grammars and aborts by token id are no part of vLLM's own interface")
    settings = generate.settings(Path("TARGET"), options)
    default = generate.settings(Path(), LoadOptions())
    kept = {
        name: value
        for name, value in settings.items()
        if name not in NOT_NEEDED and (name in ("enforce_eager", "dtype") or value != default.get(name))
    }
    plain = generate.sampling(GenerationRequest((1,), max_tokens=1))
    params = [
        {
            n: v
            for n, v in generate.sampling(r).items()
            if n in ("max_tokens", "temperature", "detokenize") or v != plain[n]
        }
        for r in requests
    ]
    environment = {name: value for name, value in ENVIRONMENT.items() if name.startswith("VLLM_")}
    imports = (
        "import os",
        f"os.environ.update({_dict(environment)})",
        "import torch",
        "from vllm import LLM, SamplingParams",
        FILLED,
    )
    prompts = [list(map(int, request.prompt_token_ids)) for request in requests]
    asked = ", ".join(f"SamplingParams({_arguments({n: repr(v) for n, v in each.items()})})" for each in params)
    if all(each == params[0] for each in params):
        asked = f"SamplingParams({_arguments({n: repr(v) for n, v in params[0].items()})})"
        asked = f"{asked}" if len(params) == 1 else f"*[{asked}] * {len(params)}"
    arguments = _arguments({name: _text(value) for name, value in kept.items()})
    return StandaloneBody(
        imports,
        (
            f"llm = LLM({arguments})",
            f"prompts = [{', '.join(f'dict(prompt_token_ids={ids})' for ids in prompts)}]",
            f"params = [{asked}]",
            "tokens = [output.outputs[0].token_ids for output in llm.generate(prompts, params, use_tqdm=False)]",
        ),
    )


def _source(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        where = "" if value.device.type == "cpu" else f", device={value.device.type!r}"
        kind = "" if value.dtype == torch.float32 else f", dtype={value.dtype}"
        if not value.numel():
            return f"torch.empty(0{kind}{where})"
        return f"torch.tensor({value.tolist()}{kind}{where})"
    return repr(value)


def _text(value: Any) -> str:
    """Return a setting as source, folders as the variables that hold them."""
    if isinstance(value, Mapping):
        own = {name: ("DRAFT" if name == "model" else _text(each)) for name, each in value.items()}
        return "{" + ", ".join(f"{name!r}: {text}" for name, text in own.items()) + "}"
    return "TARGET" if value == "TARGET" else repr(value)


def _arguments(texts: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={text}" for name, text in texts.items())


def _dict(values: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{name!r}: {value!r}" for name, value in values.items()) + "}"
