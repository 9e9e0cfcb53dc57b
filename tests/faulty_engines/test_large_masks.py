"""Faults of masks in large batches (RRS-6, RGS-5), of ids past 65,536 (RRS-1), and of shared memory (ANY-3)."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from verispec.judge import Mismatch, OpUnderTest
from verispec.reference import contracts, cpu
from verispec.suites.sampler.test_every_op_large import test_wide_rows_in_threads_again as check_again
from verispec.suites.sampler.test_rejection_greedy_sample import test_sampled_rows_of_a_large_batch as check_sampled
from verispec.suites.sampler.test_rejection_random_sample import test_greedy_rows_of_a_large_batch as check_greedy
from verispec.suites.sampler.test_rejection_random_sample import test_the_row_at_ids_past_65_536 as check_ids

RANDOM, GREEDY, RECOVERED = "rejection_random_sample", "rejection_greedy_sample", "sample_recovered_tokens"
FAST: Any = SimpleNamespace(describe=lambda: SimpleNamespace(details={}))
"""An engine that runs in no interpreter."""


def modulo_64(op: str) -> Callable[..., None]:
    """Return the op with the mask of the first 64 requests for all others too."""

    def run(**arguments: Any) -> None:
        mask = arguments["is_greedy_ptr"]
        cpu.op(op)(**{**arguments, "is_greedy_ptr": mask[torch.arange(len(mask)) % 64]})

    return run


def low_bits(name: str) -> Callable[..., None]:
    """Return the op that reads one tensor of probabilities at the low 16 bits of a token."""

    def run(**arguments: Any) -> None:
        if (rows := arguments[name]) is not None:
            rows = rows[:, torch.arange(rows.shape[1]) % 2**16].contiguous()
        cpu.op(RANDOM)(**{**arguments, name: rows})

    return run


@pytest.mark.parametrize(("op", "check", "more"), [(RANDOM, check_greedy, ["present"]), (GREEDY, check_sampled, [])])
def test_masks_of_late_requests_are_seen(op: str, check: Any, more: list[str]) -> None:
    check(OpUnderTest(contracts.load(op), cpu.op(op)), 1, 300, *more)
    with pytest.raises(Mismatch):
        check(OpUnderTest(contracts.load(op), modulo_64(op)), 1, 300, *more)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("draft", "name"),
    [("present", "draft_probs_ptr"), ("present", "target_probs_ptr"), ("absent", "target_probs_ptr")],
)
def test_ids_of_16_bits_are_seen(draft: str, name: str, seed: int) -> None:
    check_ids(OpUnderTest(contracts.load(RANDOM), cpu.op(RANDOM)), seed, draft)
    with pytest.raises(Mismatch):
        check_ids(OpUnderTest(contracts.load(RANDOM), low_bits(name)), seed, draft)


def test_a_later_call_that_differs_is_seen() -> None:
    calls = []

    def run(**arguments: Any) -> None:
        cpu.op(RECOVERED)(**arguments)
        calls.append(1)
        if len(calls) == 7:
            arguments["output_token_ids_ptr"][11] += 1

    check_again(OpUnderTest(contracts.load(RECOVERED), cpu.op(RECOVERED)), FAST, 1, RECOVERED)
    with pytest.raises(Mismatch, match=r"ids_ptr\[11\] is .* \(call 7 of 30 equal ones\)"):
        check_again(OpUnderTest(contracts.load(RECOVERED), run), FAST, 1, RECOVERED)
