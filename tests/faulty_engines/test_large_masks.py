"""Faults of masks in large batches (RRS-6, RGS-5), of ids past 65,536 (RRS-1, SRT-5), and of shared memory (ANY-3)."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from verispec.judge import Mismatch, OpUnderTest
from verispec.reference import contracts, cpu
from verispec.suites.sampler.test_every_op import test_any_number_of_threads as check_threads
from verispec.suites.sampler.test_every_op_large import test_wide_rows_in_threads_again as check_again
from verispec.suites.sampler.test_rejection_greedy_sample import test_sampled_rows_of_a_large_batch as check_sampled
from verispec.suites.sampler.test_rejection_random_sample import test_greedy_rows_of_a_large_batch as check_greedy
from verispec.suites.sampler.test_rejection_random_sample import test_the_row_at_ids_past_65_536 as check_ids
from verispec.suites.sampler.test_sample_recovered_tokens import test_ids_past_65_536 as check_recovered

RANDOM, GREEDY, RECOVERED = "rejection_random_sample", "rejection_greedy_sample", "sample_recovered_tokens"
SERVERS = "a server with another number of cores"
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


def token_of_16_bits(**arguments: Any) -> None:
    """Leave out the token that the low 16 bits of a draft name."""
    cpu.op(RECOVERED)(**{**arguments, "draft_token_ids_ptr": arguments["draft_token_ids_ptr"] & 0xFFFF})


def low_ids(**arguments: Any) -> None:
    """Give tokens past 65,536 no noise that could win."""
    noise = arguments["inv_q_ptr"].clone()
    noise[:, 2**16 :] = 0.0
    cpu.op(RECOVERED)(**{**arguments, "inv_q_ptr": noise})


@pytest.mark.parametrize(("draft", "fault"), [("absent", token_of_16_bits), ("absent", low_ids), ("present", low_ids)])
def test_recovered_ids_of_16_bits_are_seen(draft: str, fault: Callable[..., None]) -> None:
    check_recovered(OpUnderTest(contracts.load(RECOVERED), cpu.op(RECOVERED)), 1, draft)
    with pytest.raises(Mismatch):
        check_recovered(OpUnderTest(contracts.load(RECOVERED), fault), 1, draft)


def test_a_later_call_that_differs_is_seen() -> None:
    calls = []

    def run(**arguments: Any) -> None:
        cpu.op(RECOVERED)(**arguments)
        calls.append(1)
        if len(calls) == 7:
            arguments["output_token_ids_ptr"][11] += 1

    record = {"reach": SERVERS}
    check_again(OpUnderTest(contracts.load(RECOVERED), cpu.op(RECOVERED)), FAST, record, 1, RECOVERED)
    with pytest.raises(Mismatch, match=r"ids_ptr\[11\] is .* \(call 7 of 60 equal ones\)"):
        check_again(OpUnderTest(contracts.load(RECOVERED), run), FAST, record, 1, RECOVERED)
    assert record == {"reach": SERVERS}


def wrong_in(*threads: int) -> Callable[..., None]:
    """Return the op with a wrong token in these numbers of threads."""

    def run(**arguments: Any) -> None:
        cpu.op(RECOVERED)(**arguments)
        arguments["output_token_ids_ptr"][3] += torch.get_num_threads() in threads

    return run


@pytest.mark.parametrize(("threads", "reach"), [((1,), SERVERS), ((1, 2, 3), "")])
def test_what_is_wrong_in_any_number_of_threads_is_not_blamed_on_them(threads: tuple[int, ...], reach: str) -> None:
    record = {"reach": SERVERS}
    with pytest.raises(Mismatch):
        check_threads(
            OpUnderTest(contracts.load(RECOVERED), wrong_in(*threads)), FAST, record, 1, RECOVERED, "1", "rows"
        )
    assert record == {"reach": reach}


@pytest.mark.parametrize(("threads", "reach"), [((3,), SERVERS), ((1, 2, 3), "")])
def test_wide_rows_that_are_wrong_in_one_thread_too(threads: tuple[int, ...], reach: str) -> None:
    record = {"reach": SERVERS}
    with pytest.raises(Mismatch):
        check_again(OpUnderTest(contracts.load(RECOVERED), wrong_in(*threads)), FAST, record, 1, RECOVERED)
    assert record == {"reach": reach}
