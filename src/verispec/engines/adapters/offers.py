"""The options and parameters that an engine's generation has. An adapter names these; all others are refused.

A new field of `LoadOptions` or `GenerationRequest` is therefore refused by every engine until its adapter offers it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from verispec.engines import Unsupported, UnsupportedCall
from verispec.engines.protocol.generation import GenerationRequest, LoadOptions
from verispec.engines.protocol.speculation import AUTO

_PLAIN = LoadOptions()
_REQUEST = GenerationRequest((0,))
_COMMON = (
    "method",
    "draft",
    "num_speculative_tokens",
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
    "seed",
)
_OF_METHOD = {"ngram_min": "ngram", "ngram_max": "ngram", "draft_sample_method": "draft_model"}
"""Options that mean something with one method alone."""

OPTIONS: Mapping[str, str] = {
    "num_speculative_tokens_per_batch_size": "K that depends on the batch",
    "speculative_token_tree": "draft trees",
    "ngram_min": "shortest match of prompt lookup",
    "ngram_max": "such long matches of prompt lookup",
    "parallel_drafting": "drafts of one pass",
    "draft_sample_method": "greedy drafts for sampled requests",
    "rejection_sample_method": "second verification method",
    "async_scheduling": "asynchronous scheduling",
    "sampler": "random numbers counted by position",
    "max_num_seqs": "such limit of requests per step",
    "block_size": "KV blocks of this size",
    "num_blocks": "limit of KV blocks",
    "logprobs_mode": "log-probabilities of the processed distribution",
    "tensor_parallel_size": "ranks in this adapter",
    "lora_adapters": "LoRA adapters in this adapter",
}
"""Words for an option that an engine lacks."""

PARAMETERS: Mapping[str, str] = {
    "top_k": "top-k",
    "top_p": "top-p",
    "min_p": "min-p",
    "min_tokens": "minimum number of tokens",
    "repetition_penalty": "repetition penalty",
    "presence_penalty": "presence or frequency penalty",
    "frequency_penalty": "presence or frequency penalty",
    "bad_words": "bad words",
    "allowed_token_ids": "allowed token ids",
    "logit_bias": "logit bias",
    "grammar": "grammars of token ids",
    "logprobs": "log-probabilities",
    "prompt_logprobs": "log-probabilities of a prompt",
    "stop": "stop strings among token ids",
    "n": "several samples of one prompt",
    "abort_after": "aborts",
    "lora_adapter": "LoRA adapters in this adapter",
}
"""Words for a parameter that an engine lacks."""


@dataclass(frozen=True)
class Offers:
    """Options and parameters of an engine.

    Attributes:
        engine: its name in messages.
        methods: drafting methods.
        options: values of further options by name; those of every engine need no entry.
        parameters: further parameters of a request; prompt, limits of length, temperature, seed, stop tokens and
            `ignore_eos` need no entry.
        words: other words for options and parameters that it lacks, by name.
    """

    engine: str
    methods: tuple[str, ...]
    options: Mapping[str, Container[Any]] = field(default_factory=dict)
    parameters: tuple[str, ...] = ()
    words: Mapping[str, str] = field(default_factory=dict)

    def lacks_option(self, wanted: LoadOptions) -> Unsupported | None:
        """Return why the engine cannot be loaded with `wanted`; None if it can."""
        if wanted.method not in self.methods:
            return Unsupported(self.words.get("method", f"{self.engine} does not draft with {wanted.method}"))
        if wanted.num_speculative_tokens == AUTO and AUTO not in self.options.get("num_speculative_tokens", ()):
            return Unsupported(f"{self.engine} drafts with one K")
        for entry in fields(LoadOptions):
            name, value = entry.name, getattr(wanted, entry.name)
            of = _OF_METHOD.get(name, wanted.method)
            foreign = name.startswith(("suffix_", "synthetic_")) or wanted.method != of
            if name in self.options:
                good = value in self.options[name] or foreign
            else:
                good = name in _COMMON or value == getattr(_PLAIN, name) or foreign
            if not good:
                lack = self.words.get(name, OPTIONS.get(name, f"{name}={value}"))
                return Unsupported(f"{self.engine} has no {lack}")
        return None

    def refuse(self, request: GenerationRequest, special: Iterable[tuple[object, str]] = ()) -> None:
        """Raise UnsupportedCall for a parameter that the engine lacks.

        Args:
            request: a request.
            special: a true value if the request has it, and its name, for each further thing that the engine lacks.
        """
        for name in PARAMETERS:
            if name not in self.parameters and getattr(request, name) != getattr(_REQUEST, name):
                raise UnsupportedCall(f"{self.engine} has no {self.words.get(name, PARAMETERS[name])}")
        for used, name in special:
            if used:
                raise UnsupportedCall(f"{self.engine} has no {name}")
