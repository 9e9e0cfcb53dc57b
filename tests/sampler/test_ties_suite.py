"""Ties at the k-th logit: engines that keep all of them break no case that claims a reach; other masks do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from verispec.cases import CaseSpec
from verispec.judge import Mismatch, OpUnderTest
from verispec.reference import contracts
from verispec.suites.sampler import test_apply_top_k_top_p as suite
from verispec.suites.sampler import test_whole_sampler_limits as limits

NONE = float("-inf")


def top_k(size: Callable[[Any], Any] = lambda k: k, *, ties: str = "all") -> Any:
    """Return a top-k over the `size(k)` largest logits that keeps all or none of those that tie with the last."""

    def op(*, output: Any, logits: Any, k: Any, p: Any) -> None:
        edge = logits.sort(dim=1, descending=True).values.gather(1, size(k.long())[:, None] - 1)
        kept = logits >= edge if ties == "all" else logits > edge
        output.copy_(torch.where(kept, logits, NONE))

    return op


def run(op: Any, logits: str = "bfloat16", k: str = "random", vocab: int = 300) -> None:
    suite.test_ties_leave_k_tokens_and_what_is_above_them(
        OpUnderTest(contracts.load("apply_top_k_top_p"), op), 7, logits, k, vocab
    )


@pytest.mark.parametrize("logits", ["bfloat16", "all equal"])
@pytest.mark.parametrize("k", ["1", "random"])
def test_a_threshold_that_keeps_all_ties_is_allowed(logits: str, k: str) -> None:
    run(top_k(), logits, k)
    with pytest.raises(Mismatch):
        suite.test_exactly_k_among_ties(OpUnderTest(contracts.load("apply_top_k_top_p"), top_k()), 7, k, 300)


@pytest.mark.parametrize(
    ("op", "k", "logits", "vocab", "message"),
    [
        (top_k(lambda k: k + 40), "1", "bfloat16", 300, "below the k-th"),
        (top_k(lambda k: k + 1, ties="none"), "1", "bfloat16", 300, "at least k"),
        (top_k(ties="none"), "random", "all equal", 300, "at least k"),
        (top_k(lambda k: (k + 1) // 2), "random", "bfloat16", 9001, "above the k-th"),
    ],
)
def test_other_masks_are_refused(op: Any, k: str, logits: str, vocab: int, message: str) -> None:
    with pytest.raises(Mismatch, match=message):
        run(op, logits, k, vocab)


def test_a_count_of_16_bits_is_refused() -> None:
    contract = contracts.load("apply_top_k_top_p")
    suite.test_ties_past_16_bits_leave_k_tokens(OpUnderTest(contract, top_k()), 7)
    with pytest.raises(Mismatch, match="at least k"):
        suite.test_ties_past_16_bits_leave_k_tokens(OpUnderTest(contract, first_of_16_bits), 7)


def first_of_16_bits(*, output: Any, logits: Any, k: Any, p: Any) -> None:
    """Keep the first k tokens of equal logits, by a k of 16 bits."""
    output.copy_(torch.where(torch.arange(logits.shape[1]) < k[:, None] % 2**16, logits, NONE))


def test_cases_of_kept_ties_claim_no_reach() -> None:
    for test in (
        suite.test_exactly_k_among_ties,
        suite.test_exactly_k_of_equal_logits,
        suite.test_very_many_ties,
        limits.test_a_top_k_of_ties_keeps_k_tokens,
    ):
        spec: CaseSpec = test.__verispec_case__  # type: ignore[attr-defined]
        assert not any(spec.reach_of(row, "cuda") for row in spec.combinations())
        assert spec.clause == "TKP-3" or "tie" in contracts.by_clause(spec.clause).clause(spec.clause).harmless
