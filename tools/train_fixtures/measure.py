"""Acceptance on held-back text: greedy chains of K drafts, replayed over what the target writes by itself.

With greedy decoding the output is the target's own, whatever is drafted; a chain is correct while its drafts
equal that text. Every chain can therefore be computed with the text as its input.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import LlamaForCausalLM, PreTrainedModel

from verispec.reference.models import AuxiliaryStates, Eagle3Head, MTPHead

from .build import continue_text
from .recipe import Recipe
from .unroll import unroll, unroll_masked


@torch.no_grad()
def measure(
    target: LlamaForCausalLM, draft: LlamaForCausalLM, head: Eagle3Head, prompts: torch.Tensor, recipe: Recipe
) -> dict[str, Any]:
    """Return tokens per step (accepted ones and the target's own) and the acceptance of each draft position."""
    k, prompt_length = recipe.num_drafts, prompts.shape[1]
    texts = continue_text(target, prompts, recipe.measured_length, sampled=False)
    with AuxiliaryStates(target, recipe.aux_layers) as aux_states:
        target(texts, use_cache=False)
        aux = aux_states.take()

    chains = {"draft_model": _draft_hits(draft, texts, k), "eagle3": _head_hits(head, texts, aux, k)}
    return {name: _walk(hits, prompt_length, k) for name, hits in chains.items()}


@torch.no_grad()
def measure_parallel_and_mtp(
    target: LlamaForCausalLM,
    draft: LlamaForCausalLM,
    mask_id: int,
    head: MTPHead,
    prompts: torch.Tensor,
    recipe: Recipe,
) -> dict[str, Any]:
    """Return the same for a model of parallel drafting and an MTP head."""
    k, prompt_length = recipe.num_drafts, prompts.shape[1]
    texts = continue_text(target, prompts, recipe.measured_length, sampled=False)
    with AuxiliaryStates(target, head.config.aux_layers(target.config.num_hidden_layers)) as aux_states:
        target(texts, use_cache=False)
        aux = aux_states.take()
    masked = [
        logits.argmax(-1) == texts[:, j + 1 : j + 1 + logits.shape[1]]
        for j, logits in enumerate(unroll_masked(draft, texts, mask_id, k))
    ]
    chains = {"parallel": masked, "mtp": _head_hits(head, texts, aux, k)}
    return {name: _walk(hits, prompt_length, k) for name, hits in chains.items()}


def _head_hits(head: Eagle3Head | MTPHead, texts: torch.Tensor, aux: torch.Tensor, k: int) -> list[torch.Tensor]:
    """Return for each draft j whether it is the target's; [:, t] has the draft at distance j from known token t."""
    chain = []
    for j, normed in enumerate(unroll(head, texts, aux, k)):
        ids = head.to_target(head.logits(normed).argmax(-1))
        hits = ids[:, : texts.shape[1] - 2 - j] == texts[:, j + 2 : j + 2 + ids.shape[1]]
        chain.append(torch.cat((hits.new_zeros(len(hits), 1), hits), dim=1))
    return chain


@torch.no_grad()
def measure_draft(
    target: PreTrainedModel, draft: PreTrainedModel, prompts: torch.Tensor, recipe: Recipe
) -> dict[str, Any]:
    """Return the same of a draft model alone."""
    texts = continue_text(target, prompts, recipe.measured_length, sampled=False)
    return _walk(_draft_hits(draft, texts, recipe.num_drafts), prompts.shape[1], recipe.num_drafts)


def _draft_hits(draft: PreTrainedModel, texts: torch.Tensor, k: int) -> list[torch.Tensor]:
    """Return entry [j][:, t]: the draft at distance j from the last known token t is the target's."""
    right = draft(texts, use_cache=False).logits.argmax(-1)[:, :-1] == texts[:, 1:]
    return [right[:, j:] for j in range(k)]


def _walk(hits: list[torch.Tensor], first: int, k: int) -> dict[str, Any]:
    """Walk over the texts in steps of accepted drafts plus one, from the first written token on."""
    length = min(hit.shape[1] for hit in hits)
    table = torch.stack([hit[:, :length] for hit in hits]).long().cumprod(0).cpu()
    accepted = table.sum(0)
    steps, per_position = 0, [0] * k
    for row in accepted.tolist():
        last = first
        while last < length:
            steps += 1
            for j in range(row[last]):
                per_position[j] += 1
            last += row[last] + 1
    return {
        "tokens_a_step": round(1 + sum(per_position) / steps, 3),
        "acceptance_by_position": [round(count / steps, 3) for count in per_position],
        "steps": steps,
    }
