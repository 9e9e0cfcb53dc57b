"""Failures of ops of the reference whose outputs are changed behind the call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from verispec.judge import Failure, Mismatch, OpUnderTest, explained
from verispec.reference import contracts, cpu


def told(name: str, values: dict[str, Any], change: Callable[[dict[str, Any]], None]) -> Failure:
    """Return the failure of an op that changes its outputs behind the call."""

    def run(**arguments: Any) -> None:
        cpu.op(name)(**arguments)
        change(arguments)

    under_test = OpUnderTest(contracts.load(name), run)
    with pytest.raises(Mismatch) as caught:
        under_test.check_outputs(values)
    return explained(caught.value.failure, under_test.compared)
