"""Runners with faults in verification methods, log-probabilities, requests and options: ``method_mutants:<name>``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from runner_mutants import Mutant, change_calls, engine_with

from verispec.engines.protocol.generation import FinishReason, GenerationRequest, LoadOptions
from verispec.reference.runners import base, verification
from verispec.reference.runners.cpu import CPURunner
from verispec.reference.runners.request import RequestState
from verispec.reference.sampler import synthetic_rates


def with_options(**fields: Callable[[LoadOptions], Any]) -> Callable[[], Mutant]:
    """Return an engine that takes other values of its options."""

    class Runner(CPURunner):
        def __init__(self, target: Path, options: LoadOptions) -> None:
            super().__init__(target, replace(options, **{name: value(options) for name, value in fields.items()}))

    return engine_with(Runner)


class UnconditionalRates(CPURunner):
    """Unconditional rates are taken for conditional ones (vllm#41035)."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        synthetic_rates.unconditional_to_conditional_rates = list
        super().__init__(target, options)


class ScheduledCounted(CPURunner):
    """The counters count K drafts in every verification (vllm#44056)."""

    def metrics(self) -> Any:
        told = super().metrics()
        return replace(told, num_draft_tokens=told.num_drafts * self.options.num_speculative_tokens)


class StaleResidual(CPURunner):
    """After block verification the token is recovered from a residual without the drafter's logits."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        change_calls("residual_resample", "draft_logits", torch.zeros_like)


def with_logprobs(change: Callable[..., Any]) -> Callable[[], Mutant]:
    """Return an engine whose log-probabilities are gathered from what `change` makes of logits and tokens."""

    class Runner(CPURunner):
        __doc__ = change.__doc__

        def __init__(self, target: Path, options: LoadOptions) -> None:
            super().__init__(target, options)
            gather = verification.gather_logprobs
            verification.gather_logprobs = lambda *given: change(gather, *given)

    return engine_with(Runner)


def rows_shifted(gather: Any, logits: torch.Tensor, *given: Any) -> Any:
    """Each entry is that of the next row (vllm#29216)."""
    return gather(logits.roll(-1, 0), *given)


def last_alone(gather: Any, *given: Any) -> Any:
    """Accepted tokens have no entry."""
    return [rows[-1:] for rows in gather(*given)]


def probability_one(gather: Any, *given: Any) -> Any:
    """Accepted tokens have a log-probability of 0 (llama.cpp#27972)."""
    return [[*(replace(row, sampled=0.0) for row in rows[:-1]), *rows[-1:]] for rows in gather(*given)]


class RawIsProcessed(CPURunner):
    """Raw log-probabilities are those of the processed logits (vllm#30846), and the other way round."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        other = "processed" if options.logprobs_mode == "raw" else "raw"
        self.options = replace(options, logprobs_mode=other)


class PromptOffByOne(CPURunner):
    """Prompt log-probabilities are those of the row of the token itself."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        record = base.record_prompt_logprobs
        base.record_prompt_logprobs = lambda scheduled, logits: record(scheduled, logits.roll(-1, 0))


class StopStringAtTheEnd(CPURunner):
    """Stop strings are looked for at the end of the text alone."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        emit = RequestState.emit

        def emit_then_look(request: RequestState, sampled: list[int], drafted: int) -> int:
            look = RequestState._ends_by_text
            RequestState._ends_by_text = lambda own, new: False
            emitted = emit(request, sampled, drafted)
            RequestState._ends_by_text = look
            text = request.decode(request.output_token_ids.tolist()) if request.decode else ""
            if any(text.endswith(stop) for stop in request.params.stop):
                request.finish_reason = FinishReason.STOP
            return emitted

        RequestState.emit = emit_then_look


class SamplesShareNumbers(CPURunner):
    """All samples of a prompt draw from the same seed."""

    def _admit_samples(self, index: int, request: GenerationRequest) -> Any:
        seeded = request if request.seed is not None else replace(request, seed=index)
        return [self._admit(index, seeded) for _ in range(request.n)]


class AbortedKeepsRunning(CPURunner):
    """An aborted request goes on to its end."""

    def _admit(self, index: int, request: GenerationRequest) -> Any:
        return super()._admit(index, replace(request, abort_after=None))


class CachedBlocksNotCopied(CPURunner):
    """A prompt that was seen before counts as computed up to its last block, which holds something else."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        self._seen: set[tuple[int, ...]] = set()

    def _admit(self, index: int, request: GenerationRequest) -> Any:
        state = super()._admit(index, request)
        if request.prompt_token_ids in self._seen:
            state.num_computed = (
                (len(request.prompt_token_ids) - 1) // self.options.block_size * self.options.block_size
            )
        self._seen.add(request.prompt_token_ids)
        return state


block_ignored = with_options(rejection_sample_method=lambda options: "standard")
rates_ignored = with_options(
    rejection_sample_method=lambda options: "standard",
    synthetic_acceptance_rates=lambda options: None,
    synthetic_acceptance_length=lambda options: None,
)
length_at_most_k = with_options(
    synthetic_acceptance_length=lambda options: (
        options.synthetic_acceptance_length and min(options.synthetic_acceptance_length, options.max_drafts)
    )
)
length_at_least_two = with_options(
    synthetic_acceptance_length=lambda options: (
        options.synthetic_acceptance_length and max(options.synthetic_acceptance_length, 2.0)
    )
)
depth_ignored = with_options(
    num_speculative_tokens=lambda options: (
        3 if options.rejection_sample_method == "standard" else options.num_speculative_tokens
    )
)
ngram_min_ignored = with_options(ngram_min=lambda options: 2)
ngram_max_ignored = with_options(ngram_max=lambda options: 4)
argmax_ignored = with_options(draft_sample_method=lambda options: "greedy")
dtype_ignored = with_options(dtype=lambda options: "float32")
seed_of_engine_ignored = with_options(seed=lambda options: 0)
logprobs_mode_ignored = with_options(logprobs_mode=lambda options: "raw")
max_num_seqs_ignored = with_options(max_num_seqs=lambda options: 16)
unconditional_rates = engine_with(UnconditionalRates)
scheduled_counted = engine_with(ScheduledCounted)
stale_residual = engine_with(StaleResidual)
logprob_rows_shifted = with_logprobs(rows_shifted)
logprobs_of_last_alone = with_logprobs(last_alone)
logprobs_of_one = with_logprobs(probability_one)
raw_is_processed = engine_with(RawIsProcessed)
prompt_off_by_one = engine_with(PromptOffByOne)
stop_string_at_the_end = engine_with(StopStringAtTheEnd)
samples_share_numbers = engine_with(SamplesShareNumbers)
aborted_keeps_running = engine_with(AbortedKeepsRunning)
cached_blocks_not_copied = engine_with(CachedBlocksNotCopied)
