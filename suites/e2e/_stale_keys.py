"""Heads whose keys of accepted drafts stay those of the drafting passes: a mistake that depends on a text's steps.

A head writes the keys of its drafts from its own states. The pass behind a verification writes those of accepted drafts
again, from the target's states.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedModel

from verispec.engines.protocol.generation import GenerationResult, SpeculativeStep
from verispec.suites.e2e._draft_heads import DraftHead
from verispec.suites.e2e._reference_model import Array, ReferenceModel, Text, head_and_target, quiet, states_for

STALE = "the head's keys of accepted drafts stayed those of its own states, not made again from the target's"
"""The mistake in words, to follow "as if"."""


def reference_stale(
    folder: Path,
    target: Path,
    depth: int,
    texts: Sequence[tuple[Sequence[int], GenerationResult]],
    reads_first: bool = False,
) -> ReferenceModel:
    """Return the float64 reference model of chains with `STALE` keys; it has logits where a step of `texts` begins.

    All other logits are 0. See `reference_chain` for the rest.
    """
    steps = {(tuple(prompt), result.token_ids): result.steps for prompt, result in texts}
    exact, single = (partial(_rows, *models, depth, steps) for models in head_and_target(folder, target, reads_first))
    return ReferenceModel(exact, single)


def _rows(
    head: DraftHead,
    target: PreTrainedModel,
    depth: int,
    steps: Mapping[Text, Sequence[SpeculativeStep]],
    prompt: tuple[int, ...],
    tokens: tuple[int, ...],
) -> Array:
    """Return the logits [emitted, depth, V], as `reference_chain` does.

    The last accepted draft of a step that accepts all has no keys yet, since no pass has read it.
    """
    with quiet():
        combined = head.combine(states_for(head, target, [(prompt, tokens)])[0])
        ids = torch.tensor([*prompt, *tokens, *[0] * depth])
        read: list[torch.Tensor] = list(combined)
        found, place = np.zeros((len(tokens), depth, target.config.vocab_size)), 0
        for step in steps[prompt, tokens]:
            last = len(prompt) - 2 + place
            if step.drafted and 0 <= last < len(combined):
                hidden = [*read[:last], combined[last]]
                for n in range(depth):
                    size = last + n + 1
                    positions, sees = torch.arange(size), torch.ones(size, size, dtype=torch.bool).tril()
                    embeds = head.embed(ids[1 : size + 1], positions)
                    following = head.rows(embeds, torch.stack(hidden), positions, sees)[-1:]
                    found[place, n] = head.logits(following)[0].double().numpy()
                    hidden.append(head.fed(following)[0])
                stale = min(step.accepted, step.drafted - 1)
                read[last + 1 : last + 1 + stale] = hidden[last + 1 : last + 1 + stale]
            place += step.accepted + 1
    return found
