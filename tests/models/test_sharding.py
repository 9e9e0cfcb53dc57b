"""Parts of a projection, joined, are the whole: with biases, and with sizes that the ranks do not divide."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from verispec.reference.models import sharding

RANKS = 2


@pytest.fixture
def whole() -> nn.Linear:
    torch.manual_seed(1)
    return nn.Linear(7, 5, dtype=torch.float64)


def parts_of(whole: nn.Linear, style: str) -> list[nn.Linear]:
    parts = [copy.deepcopy(whole) for _ in range(RANKS)]
    for rank, part in enumerate(parts):
        sharding._split(part, style, rank, RANKS)
    return parts


def test_columns_of_outputs_stay_apart(whole: nn.Linear) -> None:
    x = torch.randn(1, 3, 7, dtype=torch.float64)
    outputs = [part(x) for part in parts_of(whole, "colwise")]
    assert [output.shape[-1] for output in outputs] == [3, 2]
    torch.testing.assert_close(torch.cat(outputs, -1), whole(x))


def test_parts_of_a_sum_have_the_bias_once(whole: nn.Linear, monkeypatch: pytest.MonkeyPatch) -> None:
    summed: list[torch.Tensor] = []
    monkeypatch.setattr(sharding.dist, "all_reduce", summed.append)
    x = torch.randn(1, 3, 7, dtype=torch.float64)
    for part, own in zip(parts_of(whole, "rowwise"), x.tensor_split(RANKS, -1), strict=True):
        part(own)
    assert len(summed) == RANKS
    torch.testing.assert_close(sum(summed), whole(x))


@pytest.mark.parametrize("style", ["colwise_rep", "colwise_gather_output"])
def test_every_rank_gets_all_outputs(style: str, whole: nn.Linear, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[torch.Tensor] = []

    def all_gather(received: list[torch.Tensor], mine: torch.Tensor) -> None:
        sent.append(mine)
        for place, other in zip(received, sent, strict=False):
            place.copy_(other)

    monkeypatch.setattr(sharding.dist, "all_gather", all_gather)
    x = torch.randn(1, 3, 7, dtype=torch.float64)
    *_, last = [part(x) for part in parts_of(whole, style)]
    torch.testing.assert_close(last, whole(x))
