"""vLLM's whole `RejectionSampler`, driven as its model runner drives it."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, ClassVar

import torch

from verispec.engines import Unsupported, UnsupportedCall
from verispec.engines.adapters.vllm.installed import processors
from verispec.engines.protocol.sampling import (
    Draws,
    ProcessedTokens,
    RequestContext,
    SamplerBatch,
    Trace,
    replay,
)

SAMPLER_MODULE = "vllm.v1.sample.rejection_sampler"


class VllmSampler:
    """`verispec.engines.protocol.sampling.WholeSampler` over vllm.v1.sample.rejection_sampler.RejectionSampler.

    Attributes:
        verification: function of the sampler's module that draws and verifies.
    """

    verification: ClassVar = "rejection_sample"

    def __init__(self, device: str) -> None:
        self._device = device
        self._module: Any = importlib.import_module(SAMPLER_MODULE)
        self._sampler = importlib.import_module("vllm.v1.sample.sampler").Sampler

    def __call__(self, batch: SamplerBatch) -> list[list[int]]:
        """Return the tokens that vLLM's rejection sampler emits for `batch`."""
        return self._run(batch, _generators(batch, self._device))

    def trace(self, batch: SamplerBatch) -> Trace:
        """Return emitted tokens and random samples of `batch`, as `WholeSampler.trace`.

        The samples are replayed from copies of the generators at the start of vLLM's verification.
        """
        draws: list[Draws | None] = [None] * len(batch.draft_token_ids)
        with self._watch(batch, draws):
            tokens = self._run(batch, _generators(batch, self._device))
        return Trace(tokens, draws)

    def process_and_verify(
        self, batch: SamplerBatch, contexts: Sequence[RequestContext], logprobs_mode: str = "raw"
    ) -> ProcessedTokens:
        """Return tokens and log-probabilities of a step whose metadata has the processors of `contexts`."""
        processors.require_supported(contexts)
        wanted = max((c.params.logprobs for c in contexts if c.params.logprobs is not None), default=None)
        generators = _generators(batch, self._device)
        metadata = processors.with_contexts(
            sampling_metadata(batch, generators, self._device), batch, contexts, self._device, wanted
        )
        sampler = self._make(batch, processors.sampler_options(self._sampler, logprobs_mode))
        out = self._call(sampler, batch, metadata)
        given = {} if wanted is None else {"logprobs_tensors": out.logprobs_tensors}
        parsed = sampler.parse_output(out.sampled_token_ids, batch.vocab_size, **given)
        tokens = _plain(parsed)
        if wanted is None:
            return ProcessedTokens(tokens, [[] for _ in tokens])
        return ProcessedTokens(tokens, processors.logprobs_of(parsed[1], tokens, contexts))

    def without_drafts(self, batch: SamplerBatch, generators: Mapping[int, torch.Generator]) -> list[list[int]]:
        """Return the tokens of a step that verifies nothing: the sampler's alone."""
        answer = self._sampler()(batch.logits.clone(), sampling_metadata(batch, generators, self._device))
        return _plain(answer.sampled_token_ids)

    def _run(self, batch: SamplerBatch, generators: Mapping[int, torch.Generator]) -> list[list[int]]:
        sampler = self._make(batch)
        out = self._call(sampler, batch, sampling_metadata(batch, generators, self._device))
        return _plain(sampler.parse_output(out.sampled_token_ids, batch.vocab_size))

    def _call(self, sampler: Any, batch: SamplerBatch, metadata: Any) -> Any:
        """Return the sampler's own output. Raises UnsupportedCall if vLLM refuses the batch with a message."""
        draft_probs = None if batch.draft_probs is None else batch.draft_probs.clone()
        try:
            return sampler(_spec_metadata(batch, self._device), draft_probs, batch.logits.clone(), metadata)
        except AssertionError as error:
            if str(error):
                raise UnsupportedCall(str(error)) from error
            raise

    def _make(self, batch: SamplerBatch, options: Mapping[str, Any] | None = None) -> Any:
        """Make a sampler as the runner does; synthetic acceptance is a setting of the constructor."""
        cls, sampler = self._module.RejectionSampler, self._sampler(**(options or {}))
        if batch.synthetic_rates is None:
            return cls(sampler)
        if "spec_config" not in inspect.signature(cls.__init__).parameters:
            raise UnsupportedCall(f"{cls.__name__} of this vLLM has no synthetic acceptance")
        config = SimpleNamespace(
            rejection_sample_method="synthetic", synthetic_acceptance_rates=list(batch.synthetic_rates)
        )
        return cls(sampler, config, torch.device(self._device))

    @contextmanager
    def _watch(self, batch: SamplerBatch, draws: list[Draws | None]) -> Iterator[None]:
        """Note the generators' states and the bonus tokens at the entry of `verification`, which runs unchanged."""
        original = getattr(self._module, self.verification)
        signature = inspect.signature(original)

        def noting(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            given = bound.arguments
            dtype = torch.float64 if given.get("use_fp64_gumbel") else torch.float32
            for i, generator in given["sampling_metadata"].generators.items():
                if batch.counts[i]:
                    bonus = int(given["bonus_token_ids"][i].item())
                    draws[i] = replay(generator.clone_state(), batch.counts[i], batch.vocab_size, bonus, dtype)
            return original(*args, **kwargs)

        setattr(self._module, self.verification, noting)
        try:
            yield
        finally:
            setattr(self._module, self.verification, original)


def make(device: str) -> VllmSampler | Unsupported:
    """Return the sampler on `device`, or `Unsupported` with the reason."""
    try:
        return VllmSampler(device)
    except ImportError as error:
        return Unsupported(f"{SAMPLER_MODULE} cannot be imported: {error}")


def on_unknown_platform(sampler: Any) -> type:
    """Return vLLM's `Sampler` or a plugin's as a class that draws bonus tokens by `forward_native`.

    vLLM chooses it on a platform that it does not know, such as a plugin's; here it would take the code for a CPU.
    Source: vllm 0.32.0 ``vllm.v1.sample.ops.topk_topp_sampler.TopKTopPSampler``.
    """

    class Native(sampler):  # type: ignore[misc]
        def __init__(self, logprobs_mode: str = "raw_logprobs") -> None:
            super().__init__(logprobs_mode=logprobs_mode)
            self.topk_topp_sampler.forward = self.topk_topp_sampler.forward_native

    return Native


def _plain(parsed: Any) -> list[list[int]]:
    """Return the tokens of `parse_output`, which newer versions give with log-probabilities."""
    tokens = parsed[0] if isinstance(parsed, tuple) else parsed
    return [[int(token) for token in row] for row in tokens]


def _generators(batch: SamplerBatch, device: str) -> dict[int, torch.Generator]:
    seeds = enumerate(batch.seeds or ())
    return {i: torch.Generator(device).manual_seed(seed) for i, seed in seeds if seed is not None}


def _spec_metadata(batch: SamplerBatch, device: str) -> Any:
    cls = importlib.import_module("vllm.v1.spec_decode.metadata").SpecDecodeMetadata
    return cls(**spec_fields(batch, device))


def spec_fields(batch: SamplerBatch, device: str) -> dict[str, Any]:
    """Return the fields of SpecDecodeMetadata in production's dtypes: int32 throughout."""
    cls = importlib.import_module("vllm.v1.spec_decode.metadata").SpecDecodeMetadata
    target: list[int] = []
    bonus: list[int] = []
    row = 0
    for count in batch.counts:
        target += range(row, row + count)
        bonus.append(row + count)
        row += count + 1

    def int32(values: Any) -> torch.Tensor:
        return torch.tensor(list(values), dtype=torch.int32, device=device)

    counts = torch.tensor(batch.counts)
    fields = {
        "draft_token_ids": int32(token for ids in batch.draft_token_ids for token in ids),
        "num_draft_tokens": batch.counts,
        "cu_num_draft_tokens": counts.cumsum(0).to(device=device, dtype=torch.int32),
        "cu_num_sampled_tokens": (counts + 1).cumsum(0).to(device=device, dtype=torch.int32),
        "target_logits_indices": int32(target),
        "bonus_logits_indices": int32(bonus),
        "logits_indices": int32(range(row)),
    }
    return _known(cls, fields)


def sampling_metadata(batch: SamplerBatch, generators: Mapping[int, torch.Generator], device: str) -> Any:
    """Return SamplingMetadata as the input batch makes it, without penalties and processors.

    A batch of greedy requests has no temperature.
    Source: vllm 0.32.0 ``vllm.v1.worker.gpu_input_batch.InputBatch._make_sampling_metadata``.

    Args:
        batch: one step.
        generators: generator of each seeded request, by its index in the batch.
        device: device that receives the tensors.

    Raises:
        UnsupportedCall: a request has min_p, which an engine that drafts refuses, also in a step without drafts.
    """
    if batch.min_p is not None:
        raise UnsupportedCall("vLLM rejects min_p for requests with drafts")
    cls = importlib.import_module("vllm.v1.sample.metadata").SamplingMetadata
    return cls(**sampling_fields(batch, generators, device))


def sampling_fields(batch: SamplerBatch, generators: Mapping[int, torch.Generator], device: str) -> dict[str, Any]:
    """Return the fields of SamplingMetadata; see `sampling_metadata`."""
    cls = importlib.import_module("vllm.v1.sample.metadata").SamplingMetadata
    nobody = importlib.import_module("vllm.v1.sample.logits_processor").LogitsProcessors()
    temperature = batch.temperature.to(device=device, dtype=torch.float32)
    all_greedy = bool((temperature == 0).all())
    nothing = torch.empty(0, device=device)
    fields = {
        "temperature": None if all_greedy else temperature,
        "all_greedy": all_greedy,
        "all_random": bool((temperature != 0).all()),
        "top_p": None if batch.top_p is None else batch.top_p.to(device=device, dtype=torch.float32),
        "top_k": None if batch.top_k is None else batch.top_k.to(device=device, dtype=torch.int32),
        "generators": dict(generators),
        "max_num_logprobs": None,
        "no_penalties": True,
        "prompt_token_ids": None,
        "frequency_penalties": nothing,
        "presence_penalties": nothing,
        "repetition_penalties": nothing,
        "output_token_ids": [[] for _ in batch.counts],
        "allowed_token_ids_mask": None,
        "bad_words_token_ids": {},
        "logitsprocs": nobody,
        "spec_token_ids": [list(ids) for ids in batch.draft_token_ids],
    }
    return _known(cls, fields)


def _known(cls: type, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of `fields` that `cls` has."""
    names = {field.name for field in dataclasses.fields(cls)}
    return {name: value for name, value in fields.items() if name in names}
