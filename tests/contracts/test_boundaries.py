"""Boundary calls stay within the contract, in their values too."""

import random
from typing import Any

import numpy as np

from verispec.cases.boundaries import Boundary, boundaries
from verispec.reference import contracts, oracle
from verispec.suites.sampler._calls import BatchShape, make, structure
from verispec.suites.sampler.test_every_op import fits

OP = "verify_draft_logits"
SEED = random.Random("1/sampler/verify_draft_logits:ANY-5").getrandbits(63)
"""A seed whose state of temperature 0 is also a draft of id 0: the generator tried a negative temperature."""


def lowest_temperature(found: list[Boundary]) -> float:
    return min(float(np.min(boundary.values["temperature"])) for boundary in found)


def base_call() -> dict[str, Any]:
    call = make(OP, SEED, BatchShape((3, 1, 0, 2), 5, exact=True))
    outputs = {t.name: np.zeros(call.shapes.get(t.name, (4,)), np.int64) for t in contracts.load(OP).outputs}
    return {**{p.name: None for p in contracts.load(OP).params}, **call.values, **outputs}


def test_no_boundary_leaves_the_contract() -> None:
    """A negative temperature has no meaning; oracle and kernel differed on it, a false alarm of ANY-5."""
    contract, fixed = contracts.load(OP), structure(OP)
    free = boundaries(oracle.load(OP), [base_call()], fixed)
    kept = boundaries(oracle.load(OP), [base_call()], fixed, fits=lambda values: fits(contract, values))
    assert lowest_temperature(free) < 0
    assert lowest_temperature(kept) >= 0
    assert {(b.site, b.relation) for b in kept} == {(b.site, b.relation) for b in free}
