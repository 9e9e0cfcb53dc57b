"""The one function for every platform, on the CPU; the kernels' own clauses are tested with all others."""

from __future__ import annotations

import pytest
import torch
from op_cases import Size, make, verdict

from verispec.reference.contracts._check import ContractError
from verispec.reference.sampler.top_k_top_p import apply_top_k_top_p


def test_in_place_and_out_of_place_give_the_same() -> None:
    case = make("apply_top_k_top_p", "ends", Size(500))
    logits, k, p = (torch.from_numpy(case.arguments[name].copy()) for name in ("logits", "k", "p"))
    before = logits.clone()
    masked = apply_top_k_top_p(logits, k, p)
    assert torch.equal(logits, before)
    assert not verdict(case, {"output": masked.numpy()})
    assert apply_top_k_top_p(logits, k, p, inplace=True) is logits
    assert torch.equal(logits, masked)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_row_alone_is_what_it_is_in_a_batch(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(6, 300, generator=generator).to(dtype)
    k = torch.tensor([3, 300, 0, 1, 40, 7])
    p = torch.tensor([0.5, 0.9, 1.0, 0.0, 0.7, 2.0])
    batch = apply_top_k_top_p(logits, k, p)
    for b in range(6):
        assert torch.equal(apply_top_k_top_p(logits[b : b + 1], k[b : b + 1], p[b : b + 1])[0], batch[b])


def test_rows_that_are_not_adjacent() -> None:
    """A slice of padded logits, as a captured graph leaves them (vllm#42779)."""
    padded = torch.randn(4, 128, generator=torch.Generator().manual_seed(4))
    k = torch.full((4,), 5)
    expected = apply_top_k_top_p(padded[:, :100].contiguous(), k, None)
    assert torch.equal(apply_top_k_top_p(padded[:, :100], k, None), expected)
    assert torch.equal(apply_top_k_top_p(padded.t()[:100].t(), k, None), expected)


def test_exactly_k_stay_and_the_lowest_ids_of_those_that_tie() -> None:
    logits = torch.zeros(1, 10)
    logits[0, 7] = 1.0
    kept = apply_top_k_top_p(logits, torch.tensor([4]), None)[0].isfinite().nonzero().flatten()
    assert kept.tolist() == [0, 1, 2, 7]


def test_a_wrong_dtype_is_refused_by_name() -> None:
    with pytest.raises(ContractError, match="apply_top_k_top_p: p: expected dtype float32"):
        apply_top_k_top_p(torch.zeros(1, 4), None, torch.zeros(1, dtype=torch.float64))
