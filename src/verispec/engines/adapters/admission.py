"""A request's way into an engine without its own checks: its limits, its seed, its stop tokens, and its end."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verispec.engines.adapters.checkpoints import end_tokens
from verispec.engines.adapters.offers import Offers
from verispec.engines.adapters.partial import require_known, require_room
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
from verispec.reference.models.checkpoint import read_config


@dataclass(frozen=True, slots=True)
class Turn:
    """An admitted request.

    Attributes:
        request: the request.
        most: maximum number of tokens to emit.
        seed: seed of its random numbers.
        stops: tokens that end it, the model's own included unless the request ignores them.
    """

    request: GenerationRequest
    most: int
    seed: int
    stops: frozenset[int]

    def result(self, tokens: Sequence[int], logprobs: Iterable[TokenLogprobs] = (), **more: Any) -> GenerationResult:
        """Return the result of these tokens; a stop token at the end is the reason."""
        stopped = bool(tokens) and tokens[-1] in self.stops
        reason = FinishReason.STOP if stopped else FinishReason.LENGTH
        return GenerationResult(tuple(tokens), reason, logprobs=tuple(logprobs), **more)


class Admission:
    """The door of a generator.

    Args:
        offers: options and parameters of the engine.
        options: options of the generator.
        folder: checkpoint folder of the target.

    Raises:
        VerispecError: V-MODEL-FOLDER or V-MODEL-CONFIG, for a folder that is no checkpoint. V-GEN-OPTION, for a length
            beyond the model's own.
    """

    def __init__(self, offers: Offers, options: LoadOptions, folder: Path) -> None:
        self._offers = offers
        self._seeds = itertools.count(options.seed)  # of requests without one: no two draw alike
        config = read_config(folder)
        self.ends = frozenset(end_tokens(folder, config))
        self.vocab_size = int(config["vocab_size"])
        longest = int(config["max_position_embeddings"])
        if options.max_model_len > longest:
            raise VerispecError(
                "V-GEN-OPTION",
                f"max_model_len={options.max_model_len} is more than the model's {longest} positions",
                where="max_model_len",
                hint=f"give at most {longest}, or 0",
            )
        self.limit = options.max_model_len or longest

    def check(self, index: int, request: GenerationRequest, special: Iterable[tuple[object, str]] = ()) -> None:
        """Raise an error for a request that cannot be run.

        Args:
            index: place of the request in its batch.
            request: the request.
            special: further things that the engine lacks; see `Offers.refuse`.

        Raises:
            UnsupportedCall: the engine lacks a parameter.
            VerispecError: V-GEN-PROMPT, the prompt is too long or has unknown tokens.
        """
        self._offers.refuse(request, special)
        require_room(index, len(request.prompt_token_ids), self.limit)
        require_known(index, request.prompt_token_ids, self.vocab_size)

    def turn(self, request: GenerationRequest) -> Turn:
        """Return a checked request with its numbers."""
        return Turn(
            request,
            min(request.max_tokens, self.limit - len(request.prompt_token_ids)),
            next(self._seeds) if request.seed is None else request.seed,
            frozenset(request.stop_token_ids) | (frozenset() if request.ignore_eos else self.ends),
        )


class OneByOne:
    """Base of generators that run requests one after the other.

    A subclass overrides `run`, and `lacks` where it lacks more than `Offers` can say.

    Args:
        admission: the door.
    """

    def __init__(self, admission: Admission) -> None:
        self.admission = admission

    def run(self, turn: Turn) -> GenerationResult:
        """Generate the text of one request."""
        raise NotImplementedError

    def lacks(self, request: GenerationRequest) -> Iterable[tuple[object, str]]:
        """Return further reasons to refuse this request; see `Offers.refuse`."""
        return ()

    def generate(self, requests: Sequence[GenerationRequest], on_emit: OnEmit | None = None) -> list[GenerationResult]:
        """Run the requests one by one, and call `on_emit` after each; see `Generator.generate`."""
        results = []
        for index, request in enumerate(requests):
            self.admission.check(index, request, self.lacks(request))
            results.append(self.run(self.admission.turn(request)))
            if on_emit is not None:
                on_emit(index, results[-1].token_ids, ())
        return results

    def metrics(self) -> SpeculationMetrics:
        """Return no counts; results may have the steps."""
        return SpeculationMetrics()

    def close(self) -> None:
        """Do nothing: models are freed with the generator."""
