"""The teacher: the target in float64, fed with what an engine emitted, and how far rounding may lead away from it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from verispec.engines.generation import GenerationRequest
from verispec.judge import Failure, Kind, Mismatch
from verispec.reference.models import load_target

Array = np.ndarray[Any, Any]

SAFETY = 8.0
"""How much further an engine's logits may be from float64 than those of a plain float32 forward pass. An argmax
can change once the two logits are apart by twice the error; the other factor of 4 allows for the engine's own
order of summation (paged attention, fused projections), which a plain forward pass does not share."""


class Teacher:
    """A checkpoint in float64, and the measured rounding of float32."""

    def __init__(self, folder: Path) -> None:
        self.exact = load_target(folder, torch.float64, "cpu")
        self.single = load_target(folder, torch.float32, "cpu")

    @lru_cache(maxsize=64)  # noqa: B019 - a teacher lives as long as the process
    def logits(self, prompt: tuple[int, ...], tokens: tuple[int, ...]) -> Array:
        """[len(tokens), V] in float64: row i is what token i was chosen from."""
        return _forward(self.exact, prompt, tokens)

    def rounding(self, prompt: Any, tokens: Any) -> float:
        """Largest distance of a float32 logit from its float64 one in this sequence, times `SAFETY`."""
        return SAFETY * float(np.abs(_forward(self.single, prompt, tokens) - self.logits(prompt, tokens)).max())

    @lru_cache(maxsize=64)  # noqa: B019
    def greedy(self, prompt: tuple[int, ...], length: int) -> list[int]:
        """The float64 target's own greedy continuation."""
        with single_thread():
            ids = torch.tensor([prompt])
            options = {"do_sample": False, "eos_token_id": None, "pad_token_id": 0, "max_new_tokens": length}
            output = self.exact.generate(ids, attention_mask=torch.ones_like(ids), **options)
        tokens: list[int] = output[0, len(prompt) :].tolist()
        return tokens

    def judge_greedy(self, prompt: Any, tokens: Any, what: str) -> None:
        """Every token is the argmax or within rounding of it; raises `Mismatch` at the first that is not."""
        if not tokens:
            raise Mismatch(Failure(Kind.VALUE, f"{what} emitted nothing"))
        rows, bound = self.logits(tuple(prompt), tuple(tokens)), self.rounding(tuple(prompt), tuple(tokens))
        for i, token in enumerate(tokens):
            behind = float(rows[i].max() - rows[i][token])
            if behind > bound:
                best = int(rows[i].argmax())
                message = (
                    f"{what} emitted {token} at position {i}; the target's token is {best}, "
                    f"ahead by {behind:.3g} where rounding explains {bound:.2g}"
                )
                details = {"position": i, "token": int(token), "argmax": best, "margin": behind, "bound": bound}
                raise Mismatch(Failure(Kind.VALUE, message, total=len(tokens), details=details))

    def judge_equal(self, prompt: Any, expected: Any, got: Any, what: str) -> None:
        """Two greedy outputs agree up to the first tie within rounding; raises `Mismatch` with the margin there."""
        for i, (a, b) in enumerate(zip(expected, got, strict=False)):
            if a == b:
                continue
            row = self.logits(tuple(prompt), tuple(expected))[i]
            margin, bound = abs(float(row[a] - row[b])), self.rounding(tuple(prompt), tuple(expected))
            if margin > bound:
                message = f"{what}: token {i} is {b}, expected {a}; margin {margin:.3g}, rounding explains {bound:.2g}"
                raise Mismatch(Failure(Kind.RELATION, message, details={"position": i, "margin": margin}))
            return
        if len(expected) != len(got):
            raise Mismatch(Failure(Kind.RELATION, f"{what}: {len(got)} tokens, expected {len(expected)}"))

    def laws(self, request: GenerationRequest, tokens: Any) -> Array:
        """[len(tokens), V]: the law of each token under the request's temperature, top-k and top-p."""
        return np.stack([law(row, request) for row in self.logits(request.prompt_token_ids, tuple(tokens))])


@cache
def teacher(folder: Path) -> Teacher:
    """The teacher of a checkpoint, loaded once a process."""
    return Teacher(folder)


@contextmanager
def single_thread() -> Iterator[None]:
    """Small models gain nothing from a second thread, and wait for it on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.inference_mode():
            yield
    finally:
        torch.set_num_threads(threads)


def _forward(model: Any, prompt: Any, tokens: Any) -> Array:
    with single_thread():
        ids = torch.tensor([[*prompt, *tokens[:-1]]])
        rows: Array = model(ids).logits[0, len(prompt) - 1 :].double().numpy()
    return rows


def law(logits: Array, request: GenerationRequest) -> Array:
    """The distribution that a sampled token follows; top-k keeps ties, top-p the smallest set that reaches its mass."""
    scaled = logits / request.temperature
    if 0 < request.top_k < len(scaled):
        scaled = np.where(scaled < np.sort(scaled)[-request.top_k], -np.inf, scaled)
    weights = np.exp(scaled - scaled.max())
    weights /= weights.sum()
    if request.top_p < 1:
        order = np.argsort(-weights, kind="stable")
        before = np.cumsum(weights[order]) - weights[order]
        weights[order[before >= request.top_p]] = 0.0
        weights /= weights.sum()
    return np.asarray(weights)
