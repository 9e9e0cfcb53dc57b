"""Generation by the installed vLLM: one `vllm.LLM` in a process of its own, since a process can hold only one."""

from __future__ import annotations

import dataclasses
import importlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from verispec.engines import UnsupportedCall
from verispec.engines.adapters.vllm.installed.fallbacks import poison_fresh_memory, quiet
from verispec.engines.adapters.vllm.installed.mtp_checkpoint import with_mtp_layer
from verispec.engines.process.proxy import Remote
from verispec.engines.protocol.generation import (
    FinishReason,
    GenerationRequest,
    GenerationResult,
    LoadOptions,
    OnEmit,
    SpeculationMetrics,
    SpeculativeStep,
    TokenLogprobs,
)
from verispec.engines.protocol.speculation import AUTO

_REASONS = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH}
PRELOAD = "verispec.engines.adapters.vllm.installed.preload"
_MAX_LORA_RANK = 16
EXTENSION = "verispec.engines.adapters.vllm.installed.rank.Poisoned"
"""Imported by the process of each rank."""


class VllmGenerator:
    """`verispec.engines.protocol.generation.Generator` over vllm.LLM; tokens are emitted at the end of a batch.

    Raises UnsupportedCall for options that vLLM refuses.
    """

    def __init__(self, target: Path, **options: Any) -> None:
        wanted = LoadOptions(**options)
        self._remote = Remote(
            "verispec.engines.adapters.vllm.installed.generate:GeneratorServer", target, wanted, preload=PRELOAD
        )
        self._remote.start()

    def generate(self, requests: Sequence[GenerationRequest], on_emit: OnEmit | None = None) -> list[GenerationResult]:
        """Run the requests as one batch, and call `on_emit` for each at the end; see `Generator.generate`.

        Raises:
            UnsupportedCall: vLLM refuses a request.
        """
        results: list[GenerationResult] = self._remote.call("generate", list(requests))
        for index, result in enumerate(results):
            if on_emit is not None:
                on_emit(index, result.token_ids, result.kinds)
        return results

    def metrics(self) -> SpeculationMetrics:
        """Return vLLM's own counters."""
        metrics: SpeculationMetrics = self._remote.call("metrics")
        return metrics

    def close(self) -> None:
        """End the engine's process."""
        self._remote.close()


class GeneratorServer:
    """The other side: the LLM."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        with quiet():
            vllm = importlib.import_module("vllm")
            arguments = importlib.import_module("vllm.engine.arg_utils").EngineArgs
            known = {field.name for field in dataclasses.fields(arguments)}
            if options.method == "mtp" and options.draft is not None:
                self._folder = tempfile.TemporaryDirectory(prefix="verispec-mtp-")
                target = with_mtp_layer(target, options.draft, Path(self._folder.name))
            given = _known(settings(target, options), known, options)
            self._params = vllm.SamplingParams
            self._adapters = _lora_requests(options.lora_adapters)
            self._num_speculative_tokens = options.max_drafts if options.method != "none" else 0
            poison_fresh_memory()
            with refusals():
                self._llm = vllm.LLM(**given)

    def generate(self, requests: Sequence[GenerationRequest]) -> list[GenerationResult]:
        """Run the requests as one batch, and return their results in order.

        Raises:
            UnsupportedCall: vLLM refuses one of the `requests`.
        """
        prompts = [{"prompt_token_ids": list(request.prompt_token_ids)} for request in requests]
        with quiet(), refusals():
            params = [self._sampling_params(request) for request in requests]
            if any(request.abort_after is not None for request in requests):
                outputs = self._generate_and_abort(prompts, params, requests)
            else:
                adapters = [self._adapters[request.lora_adapter] for request in requests] if self._adapters else None
                outputs = self._llm.generate(prompts, params, lora_request=adapters, use_tqdm=False)
        return [_request_result(output, request) for output, request in zip(outputs, requests, strict=True)]

    def _sampling_params(self, request: GenerationRequest) -> Any:
        if request.grammar is not None:
            raise UnsupportedCall("vLLM takes grammars as text, a regex or a schema; it has none over token ids")
        params = self._params(**sampling(request))
        if request.bad_words:
            # vLLM takes bad words as text and keeps the token ids that its tokenizer makes of them here.
            if not hasattr(params, "_bad_words_token_ids"):
                raise UnsupportedCall("this vLLM takes bad words as text alone")
            params._bad_words_token_ids = [list(word) for word in request.bad_words]
        return params

    def _generate_and_abort(
        self, prompts: Sequence[Any], params: Sequence[Any], requests: Sequence[GenerationRequest]
    ) -> list[Any]:
        """Step the engine, and abort requests that have as many tokens as their caller waits for.

        The others have one output with all of their samples, as from ``LLM.generate``. An output of a step has the
        samples of that step alone.
        """
        engine, last = self._llm.llm_engine, {}
        for n, (prompt, own) in enumerate(zip(prompts, params, strict=True)):
            if requests[n].abort_after is None:
                own.output_kind = type(own.output_kind).FINAL_ONLY
            adapter = self._adapters.get(requests[n].lora_adapter)
            try:
                engine.add_request(str(n), prompt, own, lora_request=adapter)
            except Exception:
                engine.abort_request([str(earlier) for earlier in range(n)])  # the next call would get their tokens
                raise
        while engine.has_unfinished_requests():
            for output in engine.step():
                place = int(output.request_id.partition("-")[0])
                last[place] = output
                limit = requests[place].abort_after
                if limit is not None and not output.finished and len(output.outputs[0].token_ids) >= limit:
                    engine.abort_request([output.request_id])
        return [last[n] for n in range(len(requests))]

    def metrics(self) -> SpeculationMetrics:
        """Return vLLM's counters; zeros if speculation is on and a counter is missing."""
        with quiet():
            found = {metric.name: metric for metric in self._llm.get_metrics()}

        def count(name: str) -> int:
            return int(getattr(found.get(f"vllm:spec_decode_num_{name}"), "value", 0))

        # Without speculation vLLM has no such counter; where it was asked for, that is zeros and no excuse.
        none = (0,) * self._num_speculative_tokens
        per_position = getattr(found.get("vllm:spec_decode_num_accepted_tokens_per_pos"), "values", none)
        return SpeculationMetrics(
            count("drafts"), count("draft_tokens"), count("accepted_tokens"), tuple(int(n) for n in per_position)
        )


def _lora_requests(folders: Sequence[Path]) -> dict[int | None, Any]:
    """Return vLLM's requests of adapters by their place, with None for none; nothing without adapters."""
    if not folders:
        return {}
    made = importlib.import_module("vllm.lora.request").LoRARequest
    return {None: None, **{n: made(f"adapter {n}", n + 1, str(folder)) for n, folder in enumerate(folders)}}


@contextmanager
def refusals() -> Iterator[None]:
    """Turn vLLM's own rejections into UnsupportedCall.

    Raises:
        UnsupportedCall: the body raised ValueError, NotImplementedError or one of vLLM's validation errors, or said
            that a package is not installed.
    """
    try:
        yield
    except Exception as error:
        # Only an ImportError of the import statement names a module; vLLM's own says in words what to install.
        asks = isinstance(error, ImportError) and error.name is None
        said = isinstance(error, ValueError | NotImplementedError) or type(error).__name__.endswith("ValidationError")
        if asks or said:
            raise UnsupportedCall(" ".join(str(error).split())[:300]) from error
        raise


def _known(given: dict[str, Any], known: set[str], options: LoadOptions) -> dict[str, Any]:
    """Return the settings that this vLLM has. Raise UnsupportedCall if the caller asks for another one."""
    defaults = settings(Path(given["model"]), LoadOptions(method="none"))
    lost = sorted(name for name in given if name not in known and given[name] != defaults.get(name))
    lost = [name for name in lost if name != "per_request_spec_decode_metrics"]
    if lost:
        raise UnsupportedCall(f"this vLLM has no engine argument {', '.join(lost)}")
    return {name: value for name, value in given.items() if name in known}


def settings(target: Path, options: LoadOptions) -> dict[str, Any]:
    """Return the arguments of vllm.LLM; the block size is vLLM's own unless the options name another."""
    given: dict[str, Any] = {
        "model": str(target),
        "skip_tokenizer_init": not (target / "tokenizer.json").exists(),
        "enforce_eager": True,
        "max_num_seqs": options.max_num_seqs,
        "max_num_batched_tokens": options.max_num_batched_tokens,
        "dtype": options.dtype,
        "seed": options.seed,
        "disable_log_stats": False,
        "logprobs_mode": f"{options.logprobs_mode}_logprobs",
    }
    if options.max_model_len:
        given["max_model_len"] = options.max_model_len
    if options.block_size != LoadOptions().block_size:
        given["block_size"] = options.block_size
    if options.num_blocks:
        given["num_gpu_blocks_override"] = options.num_blocks
    if options.tensor_parallel_size > 1:
        given["tensor_parallel_size"] = options.tensor_parallel_size
        given["worker_extension_cls"] = EXTENSION
    if options.async_scheduling:
        given["async_scheduling"] = True
    if options.lora_adapters:
        given |= {"enable_lora": True, "max_loras": len(options.lora_adapters), "max_lora_rank": _MAX_LORA_RANK}
    if options.method != "none":
        given["speculative_config"] = _speculation(options)
        given["per_request_spec_decode_metrics"] = "detailed"
    return given


def _speculation(options: LoadOptions) -> dict[str, Any]:
    """Return the speculative configuration; raise UnsupportedCall for an option that this vLLM has no field for."""
    if options.num_speculative_tokens == AUTO:
        raise UnsupportedCall("vLLM drafts with one K, or with one per batch size")
    if options.speculative_token_tree:
        raise UnsupportedCall("this adapter passes vLLM no draft trees")
    config: dict[str, Any] = {"method": options.method, "num_speculative_tokens": options.num_speculative_tokens}
    cls = importlib.import_module("vllm.config.speculative").SpeculativeConfig
    known = {field.name for field in dataclasses.fields(cls)}
    for name in (
        "num_speculative_tokens_per_batch_size",
        "rejection_sample_method",
        "synthetic_acceptance_rates",
        "synthetic_acceptance_length",
        "parallel_drafting",
        "suffix_decoding_max_tree_depth",
        "suffix_decoding_max_cached_requests",
        "suffix_decoding_max_spec_factor",
        "suffix_decoding_min_token_prob",
    ):
        value = getattr(options, name)
        if value == getattr(LoadOptions(), name):
            continue
        if name not in known:
            raise UnsupportedCall(f"this vLLM has no {name}")
        config[name] = list(value) if isinstance(value, tuple) else value
    if options.method == "ngram":
        return {**config, "prompt_lookup_min": options.ngram_min, "prompt_lookup_max": options.ngram_max}
    if options.method == "suffix":
        return config
    if options.method != "mtp":
        config["model"] = str(options.draft)
    if "draft_sample_method" in known:
        config["draft_sample_method"] = options.draft_sample_method
    return config


def sampling(request: GenerationRequest) -> Mapping[str, Any]:
    """Return the arguments of vllm.SamplingParams."""
    text: dict[str, Any] = {"detokenize": bool(request.stop)}
    if request.stop:
        text["stop"] = list(request.stop)
    return {
        **text,
        "n": request.n,
        "prompt_logprobs": request.prompt_logprobs,
        "temperature": request.temperature,
        "top_k": request.top_k,
        "top_p": request.top_p,
        "min_p": request.min_p,
        "seed": request.seed,
        "max_tokens": request.max_tokens,
        "min_tokens": request.min_tokens,
        "stop_token_ids": list(request.stop_token_ids),
        "ignore_eos": request.ignore_eos,
        "repetition_penalty": request.repetition_penalty,
        "presence_penalty": request.presence_penalty,
        "frequency_penalty": request.frequency_penalty,
        "allowed_token_ids": list(request.allowed_token_ids) or None,
        "logit_bias": dict(request.logit_bias) or None,
        "logprobs": request.logprobs,
    }


def _request_result(output: Any, request: GenerationRequest) -> GenerationResult:
    """Return the first sample's result, with those of the other samples and of the prompt."""
    preemptions = int(getattr(output.metrics, "num_preemptions", 0))
    first, *others = (_result(sample, request, preemptions) for sample in output.outputs)
    tokens = zip(request.prompt_token_ids, output.prompt_logprobs or (), strict=False)
    return dataclasses.replace(
        first,
        samples=tuple(others),
        prompt_logprobs=tuple(row and _logprobs(token, row, request.prompt_logprobs) for token, row in tokens),
    )


def _result(output: Any, request: GenerationRequest, preemptions: int) -> GenerationResult:
    token_ids = tuple(int(token) for token in output.token_ids)
    return GenerationResult(
        token_ids,
        _REASONS.get(output.finish_reason, FinishReason.ABORT),
        text=output.text,
        steps=() if preemptions else _steps(getattr(output, "spec_decode_metrics", None), len(token_ids)),
        logprobs=tuple(
            _logprobs(t, row, request.logprobs) for t, row in zip(token_ids, output.logprobs or (), strict=False)
        ),
        preemptions=preemptions,
    )


def _steps(told: Any, num_tokens: int) -> tuple[SpeculativeStep, ...]:
    """Return all steps, of which vLLM reports only the verifications; empty if the others are not known.

    One step without drafts follows the prefill. Where there were more, as after a preemption, their places are not
    known.
    """
    if told is None:
        return ()
    verified = zip(told.per_step_drafted, told.per_step_accepted, strict=True)
    steps = (SpeculativeStep(0, 0), *(SpeculativeStep(drafted, accepted) for drafted, accepted in verified))
    return steps if sum(step.accepted + 1 for step in steps) >= num_tokens else ()


def _logprobs(token: int, row: Mapping[int, Any], top: int | None) -> TokenLogprobs:
    """Return the log-probabilities of a position; vLLM adds the sampled token if it is not among the top ones."""
    ranked = sorted(row.items(), key=lambda item: -item[1].logprob)[: top or 0]
    most_likely = tuple((int(other), float(entry.logprob)) for other, entry in ranked)
    return TokenLogprobs(float(row[token].logprob), most_likely)
