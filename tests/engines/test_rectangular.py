"""Ragged batches for engines of rectangular ones."""

from __future__ import annotations

import torch

from verispec.engines import SamplerBatch
from verispec.engines.adapters.rectangular import Group, by_groups


def batch(counts: list[int], *, probs: bool) -> SamplerBatch:
    """Return a batch of four tokens whose row r has the logit r at its first token."""
    rows, drafts = sum(counts) + len(counts), sum(counts)
    logits = torch.zeros(rows, 4)
    logits[:, 0] = torch.arange(rows)
    tokens = iter(range(drafts))
    return SamplerBatch(
        logits=logits,
        draft_token_ids=[[next(tokens) for _ in range(count)] for count in counts],
        temperature=torch.arange(float(len(counts))),
        draft_probs=torch.arange(float(drafts))[:, None].expand(-1, 4).clone() if probs else None,
    )


def test_each_group_has_the_rows_of_its_requests() -> None:
    seen: dict[int, Group] = {}

    def verify(group: Group) -> list[list[int]]:
        seen[group.count] = group
        return [[request] * (group.count + 1) for request in group.requests]

    step = batch([2, 0, 2, 1], probs=True)
    assert by_groups(step, verify) == [[0] * 3, [1], [2] * 3, [3] * 2]
    two = seen[2]
    assert two.requests == [0, 2]
    assert two.logits[:, :, 0].tolist() == [[0, 1, 2], [4, 5, 6]]
    assert two.drafts.tolist() == [[0, 1], [2, 3]]
    assert two.draft_probs is not None and two.draft_probs[:, :, 0].tolist() == [[0, 1], [2, 3]]
    assert two.of(step.temperature).tolist() == [0, 2]
    assert seen[0].drafts.shape == (1, 0)
    two.logits.zero_()
    assert step.logits[6, 0] == 6  # A group has copies.


def test_a_step_without_draft_probabilities_has_none() -> None:
    groups: list[Group] = []

    def verify(group: Group) -> list[list[int]]:
        groups.append(group)
        return [[7]] * len(group.requests)

    assert by_groups(batch([1, 1], probs=False), verify) == [[7], [7]]
    assert groups[0].draft_probs is None
