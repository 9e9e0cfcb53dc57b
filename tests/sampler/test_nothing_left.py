"""Requests without a token and drafts without a probability, between others: clauses of the ops themselves see them."""

from __future__ import annotations

from typing import Any

import pytest

from verispec.judge import Mismatch, OpUnderTest
from verispec.reference import contracts, cpu
from verispec.suites.sampler import test_flatten_sampled as flatten
from verispec.suites.sampler import test_probabilistic_rejection as rejection


def flatten_to_the_first_gap(*, num_sampled: Any, **arguments: Any) -> None:
    """Copy the requests before the first one without tokens."""
    counts = num_sampled.clone()
    counts[(counts <= 0).cumsum(0) > 0] = 0
    cpu.op("flatten_sampled")(num_sampled=counts, **arguments)


def accept_what_neither_has(*, target_logits: Any, draft_logits: Any, **arguments: Any) -> None:
    """Accept drafts that have a probability of 0 in both rows, as a rejection by ``<`` does."""
    rows = target_logits.clone()
    if draft_logits is not None:
        states, steps = arguments["expanded_idx_mapping"].long(), arguments["expanded_local_pos"].long()
        for row in range(len(rows) - 1):
            token = int(arguments["draft_sampled"][row + 1])
            inside = steps[row] < draft_logits.shape[1] and 0 <= token < rows.shape[1]
            if inside and rows[row, token] == draft_logits[states[row], steps[row], token] == float("-inf"):
                rows[row, token] = 100.0
    cpu.op("probabilistic_rejection")(target_logits=rows, draft_logits=draft_logits, **arguments)


def under_test(name: str, op: Any) -> OpUnderTest:
    return OpUnderTest(contracts.load(name), op)


@pytest.mark.parametrize("counts", ["ragged", "wide"])
def test_requests_behind_one_without_tokens_are_copied(counts: str) -> None:
    check, name = flatten.test_requests_without_tokens_between_others, "flatten_sampled"
    check(under_test(name, cpu.op(name)), 7, counts)
    flatten.test_nothing_sampled_writes_nothing(under_test(name, flatten_to_the_first_gap), 7, counts)
    with pytest.raises(Mismatch):
        check(under_test(name, flatten_to_the_first_gap), 7, counts)


@pytest.mark.parametrize("temperature", ["0.7", "1.0"])
def test_a_draft_that_neither_row_has_is_rejected(temperature: str) -> None:
    check, name = rejection.test_tokens_that_neither_target_nor_draft_has, "probabilistic_rejection"
    check(under_test(name, cpu.op(name)), 7, temperature)
    rejection.test_normalisers_of_the_rejected_row(under_test(name, accept_what_neither_has), 7, temperature, "present")
    with pytest.raises(Mismatch):
        check(under_test(name, accept_what_neither_has), 7, temperature)
