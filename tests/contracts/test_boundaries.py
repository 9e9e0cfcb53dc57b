"""Boundary calls stay within the contract, in their values too."""

import random
from typing import Any

import numpy as np

from verispec.cases.boundaries import Boundary, boundaries
from verispec.judge import OpUnderTest
from verispec.reference import contracts, cpu, oracle
from verispec.suites.sampler._boundary_calls import complete, fits, structure
from verispec.suites.sampler._calls import BatchShape, make

OP = "verify_draft_logits"
SEED = random.Random("1/sampler/verify_draft_logits:ANY-5").getrandbits(63)
"""A seed whose state of temperature 0 is also a draft of id 0: the generator tried a negative temperature."""


def lowest_temperature(found: list[Boundary]) -> float:
    return min(float(np.min(boundary.values["temperature"])) for boundary in found)


def base_call() -> dict[str, Any]:
    call = make(OP, SEED, BatchShape((3, 1, 0, 2), 5, exact=True))
    outputs = {t.name: np.zeros(call.shapes.get(t.name, (4,)), np.int64) for t in contracts.load(OP).outputs}
    whole = {"top_k": None, "top_p": None}  # under limits more comparisons depend on temperatures below 0 alone
    return {**{p.name: None for p in contracts.load(OP).params}, **call.values, **outputs, **whole}


def test_no_boundary_leaves_the_contract() -> None:
    """A negative temperature has no meaning; oracle and kernel differed on it, a false alarm of ANY-5."""
    contract, fixed = contracts.load(OP), structure(OP)
    with np.errstate(over="ignore", invalid="ignore"):  # weights at a negative temperature
        free = boundaries(oracle.load(OP), [base_call()], fixed)
    kept = boundaries(oracle.load(OP), [base_call()], fixed, fits=lambda values: fits(contract, values))
    assert lowest_temperature(free) < 0
    assert lowest_temperature(kept) >= 0
    assert {(b.site, b.relation) for b in kept} == {(b.site, b.relation) for b in free}


def test_a_comparison_is_met_at_several_places() -> None:
    """An op that decides only later steps wrongly at equality passed: the first step alone was equal."""
    op = "rejection_random_sample"
    subject = OpUnderTest(contracts.load(op), cpu.op(op))
    values, _ = complete(subject, make(op, 2, BatchShape((3, 1, 0, 2), synthetic=True, exact=True)))

    def equal_at(places: int) -> set[int]:
        rng = np.random.default_rng(1)
        found = boundaries(oracle.load(op), [values], structure(op), places=places, rng=rng)
        equal = [b.values["uniform_probs_ptr"] for b in found if b.relation == "equal"]
        return {int(at) for uniform in equal for at in np.flatnonzero(uniform != values["uniform_probs_ptr"])}

    assert len(equal_at(1)) < len(equal_at(6))


def test_a_smaller_operand_is_a_comparison() -> None:
    """The last column is one less than their number, which no input holds: a table that is wider was never read."""
    op = "eagle_step_slot_mapping_metadata"
    subject = OpUnderTest(contracts.load(op), cpu.op(op))
    values, _ = complete(subject, make(op, 3, BatchShape((3, 1, 0, 2))))
    found = boundaries(oracle.load(op), [values], structure(op), fits=lambda v: fits(contracts.load(op), v))
    relations = {b.relation for b in found if b.text.startswith("min(position // block_size")}
    assert relations == {"below", "equal", "above"}
