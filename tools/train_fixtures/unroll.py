"""Training-time test: a drafter run on its own drafts for all positions of a text at once.

At step 0 the row of position i stands for the text up to i. At step j it stands at position i + j: a head (Eagle3, MTP)
has its own output of step j - 1 there, a model of parallel drafting the mask token. In a real chain that starts at i,
step j sees the step-0 keys up to i and its own keys of steps 1 to j. `attend` gives exactly this for every i, so the
same pass also measures acceptance.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from transformers import AttentionInterface, PreTrainedModel
from transformers.models.llama.modeling_llama import repeat_kv

from verispec.reference.models import Eagle3Head, MTPHead

NAME = "unrolled"


def attend(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float,
    history: dict[int, list[tuple[torch.Tensor, torch.Tensor]]],
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attend to step 0 up to the own row, and to the own row of each later step; all [B, heads, R, D].

    `history` has the keys and values of all steps, by layer.
    """
    groups = module.num_key_value_groups
    seen = history.setdefault(module.layer_idx, [])
    seen.append((repeat_kv(key, groups), repeat_kv(value, groups)))
    (first_key, first_value), *later = seen
    rows = query.shape[2]
    past = torch.ones(rows, rows, dtype=torch.bool, device=query.device).tril()
    scores = [(query @ first_key.transpose(2, 3)).masked_fill(~past, float("-inf"))]
    scores += [(query * own_key).sum(-1, keepdim=True) for own_key, _ in later]
    weights = (torch.cat([score.float() for score in scores], dim=-1) * scaling).softmax(-1).to(first_value.dtype)
    mixed = weights[..., :rows] @ first_value
    for step, (_, own_value) in enumerate(later):
        mixed = mixed + weights[..., rows + step : rows + step + 1] * own_value
    return mixed.transpose(1, 2), None


AttentionInterface.register(NAME, attend)


def unroll(head: Eagle3Head | MTPHead, ids: torch.Tensor, aux: torch.Tensor, steps: int) -> Iterator[torch.Tensor]:
    """Yield for each step j the normed states, [B, T - steps, H]; row i predicts token i + 2 + j.

    Args:
        head: the head; its attention function is set to `attend`.
        ids: [B, T] the text.
        aux: [B, T, .] the target's auxiliary states of the text.
        steps: number of runs of the head.
    """
    head.set_attn_implementation(NAME)
    rows = ids.shape[1] - steps
    positions = torch.arange(rows, device=ids.device).expand(len(ids), -1)
    history: dict[int, list[tuple[torch.Tensor, torch.Tensor]]] = {}
    hidden = head.combine(aux[:, :rows])
    for step in range(steps):
        tokens = ids[:, step + 1 : step + 1 + rows]
        normed, hidden = head(tokens, hidden, positions + step, history=history)
        yield normed


def unroll_masked(draft: PreTrainedModel, ids: torch.Tensor, mask_id: int, steps: int) -> Iterator[torch.Tensor]:
    """Yield for each step j the logits [B, T - steps, V] of a model of parallel drafting; row i predicts token i + 1 + j.

    Args:
        draft: the model; its attention function is set to `attend`.
        ids: [B, T] the text.
        mask_id: token that stands for the drafts before the predicted one.
        steps: number of drafts.
    """
    draft.set_attn_implementation(NAME)
    tokens = ids[:, : ids.shape[1] - steps]
    positions = torch.arange(tokens.shape[1], device=ids.device).expand(len(ids), -1)
    history: dict[int, list[tuple[torch.Tensor, torch.Tensor]]] = {}
    for step in range(steps):
        yield draft(tokens, position_ids=positions + step, use_cache=False, history=history).logits
        tokens = torch.full_like(tokens, mask_id)
