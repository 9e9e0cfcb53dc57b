"""The number of draft tokens by request and step, for `num_speculative_tokens="auto"`.

Each request's drafts count how often the target accepted them. A step gets the drafts that maximise its expected tokens
per second (goodput; Liu et al. 2024, arXiv 2406.14066). Seconds come from sizes of models, from contexts and from
nominal speeds of the platform. Without a clock, the same requests get the same drafts in every run.

The drafts of greedy requests depend on all that drafts with them, since no draft changes their text. A sampled request
gets the drafts that it would get among `max_num_seqs` requests like itself: neither its drafts nor its text depend on
the batch, and no full batch is slower with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from verispec.reference.models.kv_cache import KVCache

if TYPE_CHECKING:
    from .request import RequestState

_PRIOR, _PRIOR_WEIGHT = 0.8, 4.0
"""Assumed acceptance rate of a request's first drafts, and the number of drafts that it counts as."""
_WINDOW = 16.0
"""Number of drafts that the rate remembers."""
_FADING = 0.99
"""Share of the memory after a step without drafts: a rate that ended drafting returns to the prior, to be tested."""
_GAIN = 1.05
"""Least gain in tokens per second for which a step drafts: the rate is an estimate, and so are the seconds."""


@dataclass(slots=True)
class Acceptance:
    """Acceptance of a request's drafts so far.

    Attributes:
        tested: drafts that were accepted or rejected; those after a rejected one are neither. Old ones count less.
        accepted: those of them that were accepted.
    """

    tested: float = 0.0
    accepted: float = 0.0

    def count(self, drafted: int, accepted: int) -> None:
        """Count a verification of `drafted` drafts, 0 for a step without drafts."""
        self.tested += min(accepted + 1, drafted)
        self.accepted += accepted
        kept = min(1.0, _WINDOW / self.tested) if drafted else _FADING
        self.tested *= kept
        self.accepted *= kept

    @property
    def rate(self) -> float:
        """Estimated probability that a draft after accepted ones is accepted."""
        return (self.accepted + _PRIOR * _PRIOR_WEIGHT) / (self.tested + _PRIOR_WEIGHT)


@dataclass(frozen=True, slots=True)
class Speeds:
    """Nominal speeds of a platform.

    Attributes:
        bandwidth: bytes per second.
        arithmetic: operations of matrix products per second, by the bytes of an element; others are like 4.
        step: seconds of a step beside the target's pass.
        drafting: seconds of drafting beside the drafter's passes.
        chained: seconds of each pass of the drafter after the first one, beside the pass itself.
    """

    bandwidth: float
    arithmetic: dict[int, float]
    step: float
    drafting: float
    chained: float


CPU_SPEEDS = Speeds(2.5e10, {4: 6.4e10}, step=6e-4, drafting=5e-4, chained=1.5e-4)
"""One core with AVX-512, and the host's own work as measured on the fixtures."""

GPU_SPEEDS = Speeds(4e12, {4: 4e13, 2: 4e14}, step=1e-3, drafting=1e-3, chained=1e-4)
"""An H200."""


class PassCost:
    """Seconds of a forward pass: weights are read while tokens are multiplied with them, and contexts are read.

    Args:
        model: the model; its linear layers count.
        cache: its KV cache.
        speeds: speeds of the platform.
    """

    def __init__(self, model: nn.Module, cache: KVCache, speeds: Speeds) -> None:
        weights = [module.weight for module in model.modules() if isinstance(module, nn.Linear)]
        size = weights[0].element_size() if weights else torch.float32.itemsize
        elements = sum(weight.numel() for weight in weights)
        token_bytes = sum(layer.shape[1] * layer.element_size() for layer in cache.layers)
        self.weights: float = elements * size / speeds.bandwidth
        self.row: float = 2 * elements / speeds.arithmetic.get(size, speeds.arithmetic[4])
        self.token: float = token_bytes / speeds.bandwidth

    def seconds(self, rows: float, context: float) -> float:
        """Return the seconds for `rows` tokens that read `context` keys and values in all."""
        return max(self.weights, rows * self.row) + context * self.token


class DraftDepths:
    """Chooses the number of drafts of each request.

    Args:
        speeds: speeds of the platform.
        target: cost of the target's passes.
        drafter: cost of the drafter's passes; None for a drafter without a model.
        parallel: True if one pass drafts all tokens.
        most: maximum number of drafts.
        max_num_seqs: requests of a full batch.
    """

    def __init__(
        self, speeds: Speeds, target: PassCost, drafter: PassCost | None, parallel: bool, most: int, max_num_seqs: int
    ) -> None:
        self._speeds, self._target, self._drafter = speeds, target, drafter
        self._parallel, self._most, self._full = parallel, most, max_num_seqs

    def choose(self, requests: Sequence[RequestState]) -> list[int]:
        """Return the number of drafts of each request that can use some."""
        greedy = [request for request in requests if request.params.greedy]
        together = iter(self._depths(greedy) if greedy else [])
        return [
            next(together) if request.params.greedy else self._depths([request], self._full)[0] for request in requests
        ]

    def _depths(self, requests: Sequence[RequestState], copies: int = 1) -> list[int]:
        """Return the drafts that pay most for a batch of `copies` of each request."""
        size = copies * len(requests)
        context = copies * sum(request.num_tokens for request in requests)
        rates = [request.acceptance.rate for request in requests]
        rooms = [min(request.draft_room, self._most) for request in requests]
        least = _GAIN * size / (self._speeds.step + self._target.seconds(size, context))
        first, further = self._besides(size, context)
        # A batch that is accepted like its best request bounds the gain, and is the answer for one request alone.
        deepest, speed, tokens, chance = 0, 0.0, 1.0, 1.0
        for depth in range(1, max(rooms) + 1):
            chance *= max(rates)
            tokens += chance
            seconds = first + (depth - 1) * further + self._target.seconds(size * (1 + depth), 0)
            if size * tokens > speed * seconds:
                deepest, speed = depth, size * tokens / seconds
        if speed < least:
            return [0] * len(requests)
        if len(requests) == 1:
            return [deepest]
        places = np.arange(1, deepest + 1)
        chances = np.where(places <= np.array(rooms)[:, None], np.array(rates)[:, None] ** places, 0.0)
        chosen = [0] * len(requests)
        for depth in places.tolist():
            # The likeliest drafts up to this depth; those before a draft are at least as likely.
            likeliest = np.sort(chances[:, :depth], axis=None)[::-1]
            rows = size + copies * np.arange(1, len(likeliest) + 1)
            spent = first + (depth - 1) * further + np.maximum(self._target.weights, rows * self._target.row)
            speeds = (size + copies * likeliest.cumsum()) / spent
            best = int(speeds.argmax())
            if speeds[best] > least:
                least = float(speeds[best])
                chosen = (chances[:, :depth] >= likeliest[best]).sum(axis=1).tolist()
        return chosen

    def _besides(self, size: int, context: int) -> tuple[float, float]:
        """Return the seconds of a step with one draft, beside the target's weights and rows, and of each further draft.

        A drafter reads two tokens of each request before it drafts.
        """
        target = self._speeds.step + context * self._target.token
        if self._drafter is None:
            return target, 0.0
        further = size * self._drafter.row
        if not self._parallel:
            further = self._speeds.chained + self._drafter.seconds(size, context)
        return target + self._speeds.drafting + self._drafter.seconds(2 * size, context), further
