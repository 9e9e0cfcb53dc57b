"""Exact probabilities of the number of accepted draft tokens, from float64 models over eight tokens."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from verispec.cases.request_parameters import distribution
from verispec.engines.protocol.generation import GenerationRequest
from verispec.suites.e2e._reference_model import Array, continuations
from verispec.suites.e2e._tiny import VOCAB


@dataclass(frozen=True)
class DraftSequence:
    """The K drafts of a verification, and the rows [K, V] of target and drafter at them."""

    p: Array
    q: Array
    token_ids: Sequence[int]


def standard(drafts: DraftSequence) -> Array:
    """Return P(accepted >= 1..K): each draft is accepted with probability min(1, p/q) (Leviathan et al. 2023)."""
    return np.cumprod(np.minimum(1.0, _ratios(drafts)))


def block(drafts: DraftSequence) -> Array:
    """Return P(accepted >= 1..K) of block verification (Sun et al. 2024, algorithm 2)."""
    joint, thresholds = 1.0, []
    for i, ratio in enumerate(_ratios(drafts)):
        joint = min(joint * ratio, 1.0)
        if i + 1 == len(drafts.token_ids):
            thresholds.append(joint)
            continue
        mass = np.maximum(joint * drafts.p[i + 1] - drafts.q[i + 1], 0.0).sum()
        thresholds.append(mass / (mass + 1.0 - joint) if mass + 1.0 - joint > 0 else 1.0)
    rejected: Array = np.cumprod(1.0 - np.array(thresholds)[::-1])[::-1]
    return 1.0 - rejected


METHODS = {"standard": standard, "block": block}


def accepted_lengths(
    target: Path, drafter: Path, request: GenerationRequest, method: str, depth: int, *, argmax: bool = False
) -> Array:
    """Return the joint probability of a first token and of the number of accepted drafts after it.

    Args:
        target: folder of a model over `VOCAB` tokens.
        drafter: folder of a model over the same tokens.
        request: sampled; its limits and temperature shape the target, its temperature the drafter.
        method: one of `METHODS`.
        depth: K.
        argmax: True if drafts are the drafter's most likely tokens and count as certain.

    Returns:
        [V, K + 1] float64.
    """
    exact = np.zeros((VOCAB, depth + 1))
    p_rows, q_rows = (continuations(folder, request.prompt_token_ids, depth) for folder in (target, drafter))
    for tokens in itertools.product(range(VOCAB), repeat=depth + 1):
        first, *drafts = tokens
        logits = q_rows[tokens[:-1]][1:]
        heat = np.exp((logits - logits.max(axis=1, keepdims=True)) / request.temperature)
        q = np.eye(VOCAB)[logits.argmax(axis=1)] if argmax else heat / heat.sum(axis=1, keepdims=True)
        chance = float(np.prod(q[np.arange(depth), drafts]))
        if chance > 0:
            own, *p = (distribution(row, request) for row in p_rows[tokens[:-1]])
            at_least = np.concatenate(([1.0], METHODS[method](DraftSequence(np.stack(p), q, drafts)), [0.0]))
            exact[first] += own[first] * chance * (at_least[:-1] - at_least[1:])
    return exact


def _ratios(drafts: DraftSequence) -> Array:
    places = np.arange(len(drafts.token_ids)), list(drafts.token_ids)
    ratios: Array = drafts.p[places] / drafts.q[places]
    return ratios
