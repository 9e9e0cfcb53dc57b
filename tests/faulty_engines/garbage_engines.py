"""Engines that answer with garbage: a case must blame the engine, whatever it got.

``VERISPEC_GARBAGE`` chooses the garbage, so that one module serves every process of a run.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from verispec.engines import OpFunction, Unsupported
from verispec.engines.adapters.reference import Reference
from verispec.reference import contracts

GARBAGE = os.environ.get("VERISPEC_GARBAGE", "nothing")


class Ops(Reference):
    """Ops that write nothing, or fill every output with the largest value of its type."""

    def __init__(self) -> None:
        super().__init__("verispec.reference.cpu", "garbage", "cpu", {})

    def op(self, name: str) -> OpFunction | Unsupported:
        if contracts.load(name).returns:
            return super().op(name)
        outputs = [output.name for output in contracts.load(name).outputs]

        def op(**arguments: Any) -> None:
            for output in outputs:
                if GARBAGE != "nothing" and arguments.get(output) is not None:
                    fill(arguments[output])

        return op


def fill(output: torch.Tensor) -> None:
    if output.dtype == torch.bool:
        output.fill_(True)
        return
    limits = torch.finfo(output.dtype) if output.dtype.is_floating_point else torch.iinfo(output.dtype)
    output.fill_(limits.max)


class Samplers(Reference):
    """Samplers that emit no token, tokens outside of the vocabulary, or more tokens than a step can have."""

    def __init__(self) -> None:
        super().__init__("verispec.reference.cpu", "garbage", "cpu", {})

    def sampler(self, family: str = "flat") -> Any:
        sampler = super().sampler(family)
        return sampler if isinstance(sampler, Unsupported) else Garbage(sampler)


class Garbage:
    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler

    def __call__(self, batch: Any) -> list[list[int]]:
        answers = {"nothing": [], "largest": [2**40], "many": [0] * (max(batch.counts) + 2)}
        return [list(answers[GARBAGE]) for _ in batch.counts]

    def draft_and_verify(self, batch: Any, draft_logits: torch.Tensor) -> Any:
        return replace(self._sampler.draft_and_verify(batch, draft_logits), tokens=self(batch))

    def process_and_verify(self, batch: Any, contexts: Any, logprobs_mode: str = "raw") -> Any:
        tokens = self(batch)
        processed = self._sampler.process_and_verify(batch, contexts, logprobs_mode)
        rows = [(rows * len(ids))[: len(ids)] for rows, ids in zip(processed.logprobs, tokens, strict=True)]
        return replace(processed, tokens=tokens, logprobs=rows)


class Generators(Reference):
    """Generators that lose results, or tokens."""

    def __init__(self) -> None:
        super().__init__("verispec.reference.cpu", "garbage", "cpu", {})

    def load(self, target: Path, **options: Any) -> Any | Unsupported:
        generator = super().load(target, **options)
        return generator if isinstance(generator, Unsupported) else Lost(generator)


class Lost:
    """A generator whose results of the second request on, or of all, are lost or have no tokens."""

    def __init__(self, generator: Any) -> None:
        self._generator = generator

    def __getattr__(self, name: str) -> Any:
        return getattr(self._generator, name)

    def generate(self, requests: Any, on_emit: Any = None) -> Any:
        if GARBAGE == "nothing":
            return []
        results = self._generator.generate(requests)
        if GARBAGE == "too few":
            return results[:-1]
        return [replace(result, token_ids=(), kinds=(), logprobs=(), steps=()) for result in results]
