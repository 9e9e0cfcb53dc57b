"""The protocol of a generator: `Engine.load(target, **options)` returns one, and the e2e suite tests it.

Every engine that generates (the reference on any device, vLLM, transformers) takes the same `LoadOptions` and
`GenerationRequest`, and returns the same `GenerationResult`. Prompts and results are token ids: only stop strings and
the `text` that they end need the tokenizer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from numbers import Integral
from pathlib import Path
from typing import Protocol, TypedDict, runtime_checkable

from verispec.engines.protocol.draft_tree import check_tree
from verispec.engines.protocol.grammar import TokenGrammar
from verispec.engines.protocol.speculation import AUTO, MOST_CHOSEN, check_depth, check_rates, check_schedule
from verispec.engines.protocol.values import require, whole, within

METHODS = ("none", "ngram", "suffix", "draft_model", "eagle3", "mtp")
"""Methods that propose draft tokens."""

WITH_DRAFT = ("draft_model", "eagle3", "mtp")
"""Methods whose drafter is a checkpoint of its own."""

DRAFT_SAMPLE_METHODS = ("probabilistic", "greedy")
"""Draws of a draft model for a sampled request: from its own distribution, which the sampler then gets as draft
probabilities, or its argmax, without draft probabilities."""

REJECTION_SAMPLE_METHODS = ("standard", "synthetic", "block")
"""Verification methods: each draft token by p/q, by chance at configured rates, or as one block (Sun et al. 2024)."""

SAMPLERS = ("flat", "request_state")
"""Sources of random numbers: one generator per request, which each step advances, or a counter-based RNG.

Seed, position and step determine the latter (contract philox), on every platform and in any batch."""

DTYPES = ("float64", "float32", "bfloat16", "float16")
"""Dtypes of weights, activations and KV cache."""

LOGPROBS_MODES = ("raw", "processed")
"""Log-probabilities of the model's own logits, or of the sampled distribution, after processors and temperature."""


class TokenKind(StrEnum):
    """Origin of an emitted token."""

    ACCEPTED = "accepted"
    """A draft token that passed verification."""
    RECOVERED = "recovered"
    """The target's token at the first rejected draft."""
    BONUS = "bonus"
    """The target's token after drafts that were all accepted."""
    PLAIN = "plain"
    """The target's token of a step without drafts."""


class FinishReason(StrEnum):
    """Reason for the end of a request."""

    STOP = "stop"
    """A stop token (the end-of-sequence token included) was emitted; it is the last of `token_ids`."""
    LENGTH = "length"
    """`max_tokens` tokens were emitted, or the sequence has the engine's `max_model_len` tokens."""
    ABORT = "abort"
    """The caller aborted the request."""


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """Options of a generator, as keywords of `Engine.load(target, **options)`.

    Args:
        method: none, ngram, suffix, draft_model, eagle3 or mtp (`METHODS`).
        draft: folder of the draft model, of the Eagle3 head or of the checkpoint with the MTP layer; for those methods
            only.
        num_speculative_tokens: K, drafts per step, at least 1; "auto" chooses 0 to 8 for each request and step.
        num_speculative_tokens_per_batch_size: K by the number of requests in the step that drafts: (first, last, K)
            for each range from 1 on, the last one for larger batches too; K = 0 pauses. None keeps K the same.
        speculative_token_tree: K paths of ranks, the nodes of a draft tree: (1, 0) is the most likely token after the
            second most likely one. None drafts chains.
        ngram_min: minimum length in tokens of the suffix that prompt lookup matches.
        ngram_max: maximum length in tokens of that suffix.
        suffix_decoding_max_tree_depth: maximum number of tokens of a matched suffix and its draft together.
        suffix_decoding_max_cached_requests: number of outputs that suffix decoding keeps; with 0 a request's own text
            alone is searched.
        suffix_decoding_max_spec_factor: maximum number of drafts per matched token.
        suffix_decoding_min_token_prob: least estimated probability of a draft and all before it.
        parallel_drafting: True if a model trained for it drafts all K tokens in one pass, with mask tokens.
        draft_sample_method: probabilistic or greedy (`DRAFT_SAMPLE_METHODS`).
        rejection_sample_method: standard, synthetic or block (`REJECTION_SAMPLE_METHODS`).
        synthetic_acceptance_rates: K unconditional rates of the synthetic method: the probability that a draft and
            all before it are accepted. They never rise from one draft to the next.
        synthetic_acceptance_length: alternative to rates: the mean number of tokens per verification, from 1 to K + 1.
        async_scheduling: True schedules a step before the tokens of the step before are known.
        sampler: flat or request_state (`SAMPLERS`).
        dtype: float64, float32, bfloat16 or float16 (`DTYPES`).
        max_model_len: maximum tokens per sequence, prompt included; 0 is the model's own limit.
        max_num_seqs: maximum requests per batch.
        max_num_batched_tokens: maximum tokens per target forward pass; longer prompts are prefilled in chunks.
        block_size: tokens per KV block.
        num_blocks: KV blocks; 0 is enough for `max_num_seqs` sequences of `max_model_len`. Fewer cause preemption.
        logprobs_mode: raw or processed (`LOGPROBS_MODES`).
        seed: seed of requests without a seed.
        tensor_parallel_size: ranks that share the target's weights, each a process or device.
        lora_adapters: folders of LoRA adapters of the target, in PEFT's layout; each request may name one.

    Raises:
        VerispecError: V-GEN-OPTION, for a value outside of these.
    """

    method: str = "none"
    draft: Path | None = None
    num_speculative_tokens: int | str = 3
    num_speculative_tokens_per_batch_size: tuple[tuple[int, int, int], ...] | None = None
    speculative_token_tree: tuple[tuple[int, ...], ...] | None = None
    ngram_min: int = 2
    ngram_max: int = 4
    suffix_decoding_max_tree_depth: int = 24
    suffix_decoding_max_cached_requests: int = 10000
    suffix_decoding_max_spec_factor: float = 1.0
    suffix_decoding_min_token_prob: float = 0.1
    parallel_drafting: bool = False
    draft_sample_method: str = "probabilistic"
    rejection_sample_method: str = "standard"
    synthetic_acceptance_rates: tuple[float, ...] | None = None
    synthetic_acceptance_length: float | None = None
    async_scheduling: bool = False
    sampler: str = "flat"
    dtype: str = "float32"
    max_model_len: int = 0
    max_num_seqs: int = 16
    max_num_batched_tokens: int = 2048
    block_size: int = 16
    num_blocks: int = 0
    logprobs_mode: str = "raw"
    seed: int = 0
    tensor_parallel_size: int = 1
    lora_adapters: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        for name, allowed in (
            ("method", METHODS),
            ("draft_sample_method", DRAFT_SAMPLE_METHODS),
            ("rejection_sample_method", REJECTION_SAMPLE_METHODS),
            ("sampler", SAMPLERS),
            ("logprobs_mode", LOGPROBS_MODES),
            ("dtype", DTYPES),
        ):
            require(getattr(self, name) in allowed, name, f"one of {', '.join(allowed)}", getattr(self, name))
        check_depth(self)
        for name in (
            "ngram_min",
            "suffix_decoding_max_tree_depth",
            "max_num_seqs",
            "max_num_batched_tokens",
            "block_size",
            "tensor_parallel_size",
        ):
            require(whole(getattr(self, name), 1), name, "an integer of at least 1", getattr(self, name))
        for name in ("max_model_len", "num_blocks", "suffix_decoding_max_cached_requests"):
            require(whole(getattr(self, name), 0), name, "an integer of at least 0", getattr(self, name))
        wanted = f"an integer of at least ngram_min = {self.ngram_min}"
        require(whole(self.ngram_max, self.ngram_min), "ngram_max", wanted, self.ngram_max)
        require(isinstance(self.seed, Integral), "seed", "an integer", self.seed)
        factor, least = self.suffix_decoding_max_spec_factor, self.suffix_decoding_min_token_prob
        require(within(factor, 0), "suffix_decoding_max_spec_factor", "a number of at least 0", factor)
        require(within(least, 0, 1), "suffix_decoding_min_token_prob", "a number from 0 to 1", least)
        for name in ("async_scheduling", "parallel_drafting"):
            require(isinstance(getattr(self, name), bool), name, "True or False", getattr(self, name))
        needs_draft = self.method in WITH_DRAFT
        alone = "False with a method without a draft model"
        require(needs_draft or not self.parallel_drafting, "parallel_drafting", alone, self.parallel_drafting)
        folders = isinstance(self.lora_adapters, tuple) and all(isinstance(a, Path) for a in self.lora_adapters)
        require(folders, "lora_adapters", "a tuple of folders", self.lora_adapters)
        wanted = "a folder" if needs_draft else f"none with method {self.method}"
        require((self.draft is not None) == needs_draft, "draft", wanted, self.draft)
        if self.method == "none":
            wanted = "standard with method none, which has nothing to verify"
            verification = self.rejection_sample_method
            require(verification == "standard", "rejection_sample_method", wanted, verification)
        check_schedule(self)
        check_rates(self)
        check_tree(self)

    @property
    def max_drafts(self) -> int:
        """Maximum K."""
        value = self.num_speculative_tokens
        return MOST_CHOSEN if value == AUTO else int(value)

    def num_drafts(self, batch_size: int) -> int:
        """Return the maximum drafts per request that a step of `batch_size` requests makes."""
        schedule = self.num_speculative_tokens_per_batch_size or ((1, 1, self.max_drafts),)
        return next((k for _, last, k in schedule if batch_size <= last), schedule[-1][2])


class LoadKeywords(TypedDict, total=False):
    """The fields of `LoadOptions` as keywords of `Engine.load`; a self-test keeps the two equal."""

    method: str
    draft: Path | None
    num_speculative_tokens: int | str
    num_speculative_tokens_per_batch_size: tuple[tuple[int, int, int], ...] | None
    speculative_token_tree: tuple[tuple[int, ...], ...] | None
    ngram_min: int
    ngram_max: int
    suffix_decoding_max_tree_depth: int
    suffix_decoding_max_cached_requests: int
    suffix_decoding_max_spec_factor: float
    suffix_decoding_min_token_prob: float
    parallel_drafting: bool
    draft_sample_method: str
    rejection_sample_method: str
    synthetic_acceptance_rates: tuple[float, ...] | None
    synthetic_acceptance_length: float | None
    async_scheduling: bool
    sampler: str
    dtype: str
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int
    num_blocks: int
    logprobs_mode: str
    seed: int
    tensor_parallel_size: int
    lora_adapters: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A prompt and the parameters of its continuation.

    Args:
        prompt_token_ids: one or more tokens.
        max_tokens: maximum number of emitted tokens, at least 1.
        temperature: divisor of the logits; 0 is greedy.
        top_k: keep the k most likely tokens; 0 keeps all.
        top_p: keep the smallest set of most likely tokens with at least this mass; 1 keeps all.
        min_p: keep tokens with at least this fraction of the most likely token's probability.
        seed: seed of this request's random numbers, None for the engine's own.
        stop_token_ids: tokens that end the request when emitted.
        ignore_eos: True if the model's own end-of-sequence token does not end the request.
        min_tokens: number of tokens before which neither `stop_token_ids` nor the end-of-sequence token is emitted.
        repetition_penalty: above 1 makes tokens of prompt and output less likely (divides positive logits).
        presence_penalty: number subtracted from the logit of each token of the output.
        frequency_penalty: number subtracted from a token's logit once per occurrence in the output.
        bad_words: token sequences that are never completed.
        allowed_token_ids: the only tokens to emit; empty allows all.
        logit_bias: summand of the logit, by token id.
        grammar: automaton of the tokens that each place of the output may have; None allows all.
        logprobs: number of most likely tokens to report per emitted position; None reports nothing.
        prompt_logprobs: the same per prompt token.
        stop: strings that end the output; the text ends before the first of them.
        n: number of samples of the prompt, each from random numbers of its own.
        abort_after: number of tokens after which the caller aborts the request; None never aborts.
        lora_adapter: place of the request's adapter in `lora_adapters`; None is the target without one.

    Raises:
        VerispecError: V-GEN-REQUEST, for a value outside of these.
    """

    prompt_token_ids: tuple[int, ...]
    max_tokens: int = 16
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    min_tokens: int = 0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    bad_words: tuple[tuple[int, ...], ...] = ()
    allowed_token_ids: tuple[int, ...] = ()
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    grammar: TokenGrammar | None = None
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    stop: tuple[str, ...] = ()
    n: int = 1
    abort_after: int | None = None
    lora_adapter: int | None = None

    def __post_init__(self) -> None:
        optional = "None or an integer of at least"
        for good, name, wanted in (
            (len(self.prompt_token_ids) > 0, "prompt_token_ids", "at least one token"),
            (all(isinstance(t, Integral) for t in self.prompt_token_ids[:1]), "prompt_token_ids", "token ids"),
            (whole(self.max_tokens, 1), "max_tokens", "an integer of at least 1"),
            (within(self.temperature, 0), "temperature", "a number of at least 0"),
            (whole(self.top_k, 0), "top_k", "an integer of at least 0"),
            (within(self.top_p, 0, 1) and self.top_p > 0, "top_p", "a number above 0 and at most 1"),
            (within(self.min_p, 0, 1), "min_p", "a number from 0 to 1"),
            (self.seed is None or isinstance(self.seed, Integral), "seed", "None or an integer"),
            (whole(self.min_tokens, 0), "min_tokens", "an integer of at least 0"),
            (within(self.repetition_penalty, 0) and self.repetition_penalty > 0, "repetition_penalty", "above 0"),
            (within(self.presence_penalty, -math.inf), "presence_penalty", "a number"),
            (within(self.frequency_penalty, -math.inf), "frequency_penalty", "a number"),
            (self.grammar is None or isinstance(self.grammar, TokenGrammar), "grammar", "None or a TokenGrammar"),
            (all(self.bad_words), "bad_words", "sequences of at least one token"),
            (all(within(b, -math.inf) for b in self.logit_bias.values()), "logit_bias", "numbers by token id"),
            (self.logprobs is None or whole(self.logprobs, 0), "logprobs", f"{optional} 0"),
            (self.prompt_logprobs is None or whole(self.prompt_logprobs, 0), "prompt_logprobs", f"{optional} 0"),
            (all(self.stop), "stop", "strings of at least one character"),
            (whole(self.n, 1), "n", "an integer of at least 1"),
            (self.abort_after is None or whole(self.abort_after, 1), "abort_after", f"{optional} 1"),
            (self.lora_adapter is None or whole(self.lora_adapter, 0), "lora_adapter", f"{optional} 0"),
        ):
            if not good:  # a test of a distribution makes thousands of requests
                require(good, name, wanted, getattr(self, name), code="V-GEN-REQUEST")

    @property
    def greedy(self) -> bool:
        """True if the request wants the most likely token at each position."""
        return self.temperature == 0


@dataclass(frozen=True, slots=True)
class SpeculativeStep:
    """Counts of one verification of one request, before a stop token or a length limit cuts the output.

    Attributes:
        drafted: number of drafts that were verified.
        accepted: number of drafts that were accepted.
    """

    drafted: int
    accepted: int


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log-probabilities at one position.

    Attributes:
        sampled: natural log-probability of the token at this position.
        top: (token id, log-probability) of the most likely tokens, in falling order.
    """

    sampled: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class GenerationResult:
    """Result of a request.

    Attributes:
        token_ids: emitted tokens.
        finish_reason: reason for the end of the request.
        kinds: origin of each token, as its step makes it; empty if the engine does not report it.
        steps: one entry per target forward pass that emitted; empty if the engine does not report them.
        logprobs: one entry per token if the request asks for them.
        preemptions: number of times that the request lost its KV blocks and was computed again.
        prompt_logprobs: one entry per prompt token if the request asks for them, None for the first.
        text: decoded output without special tokens if the request has stop strings, else empty.
        samples: results of the second sample and of those after it.
    """

    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    kinds: tuple[TokenKind, ...] = ()
    steps: tuple[SpeculativeStep, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()
    preemptions: int = 0
    prompt_logprobs: tuple[TokenLogprobs | None, ...] = ()
    text: str = ""
    samples: tuple[GenerationResult, ...] = ()


@dataclass(frozen=True, slots=True)
class SpeculationMetrics:
    """Sums over all requests since the generator was loaded.

    Attributes:
        num_drafts: verifications with at least one draft.
        num_draft_tokens: drafts that were verified.
        num_accepted_tokens: drafts that were accepted.
        accepted_per_position: entry i counts the verifications that accepted draft i. It has K entries, or none if the
            engine does not count them.
    """

    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    accepted_per_position: tuple[int, ...] = ()

    @property
    def mean_length(self) -> float:
        """Mean number of tokens per verification: accepted drafts and the target's own token."""
        return 1 + self.num_accepted_tokens / self.num_drafts if self.num_drafts else 1.0

    @property
    def acceptance_per_position(self) -> tuple[float, ...]:
        """Fraction of verifications that accepted draft i."""
        return tuple(count / self.num_drafts for count in self.accepted_per_position) if self.num_drafts else ()

    def since(self, before: SpeculationMetrics) -> SpeculationMetrics:
        """Return the counts since `before` was taken from the same generator."""
        earlier = before.accepted_per_position or (0,) * len(self.accepted_per_position)
        return SpeculationMetrics(
            self.num_drafts - before.num_drafts,
            self.num_draft_tokens - before.num_draft_tokens,
            self.num_accepted_tokens - before.num_accepted_tokens,
            tuple(now - then for now, then in zip(self.accepted_per_position, earlier, strict=True)),
        )


OnEmit = Callable[[int, Sequence[int], Sequence[TokenKind]], None]
"""Called with a request's index, its newly emitted tokens and their kinds (empty where not known)."""


@runtime_checkable
class Generator(Protocol):
    """A loaded target with its proposer."""

    def generate(self, requests: Sequence[GenerationRequest], on_emit: OnEmit | None = None) -> list[GenerationResult]:
        """Run all requests to their end.

        Args:
            requests: any number of requests; the engine batches as many as fit.
            on_emit: function called as ``on_emit(index, tokens, kinds)``: a request's index, its new tokens, and their
                `TokenKind` (empty where not known). It is called as early as the engine can, at the latest at the end;
                None for no calls.

        Returns:
            Results in the order of the requests.

        Raises:
            UnsupportedCall: the engine does not support a parameter of a request.
            VerispecError: V-GEN-PROMPT for a prompt that leaves no room for a token or has unknown ids.
        """
        ...

    def metrics(self) -> SpeculationMetrics:
        """Return the counts since the generator was loaded; without counters `accepted_per_position` is empty."""
        ...

    def close(self) -> None:
        """Release the engine's memory and processes."""
        ...
