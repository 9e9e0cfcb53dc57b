"""Faults at the edges of numbers fail the cases of their clauses: an ulp out of range, tiny rates, a top-p of NaN."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from verispec.engines import GenerationRequest, TokenLogprobs
from verispec.engines.protocol.sampling import RequestContext
from verispec.judge import Mismatch, OpUnderTest
from verispec.reference import contracts, cpu
from verispec.reference.sampler import synthetic_rates
from verispec.suites.sampler import test_apply_top_k_top_p as top_p_suite
from verispec.suites.sampler import test_sample_recovered_tokens as recovered_suite
from verispec.suites.sampler import test_whole_sampler_parameters as parameter_suite
from verispec.suites.synthetic import test_acceptance_length_to_rates as length_suite
from verispec.suites.synthetic import test_resolve_synthetic_acceptance_rates as resolve_suite
from verispec.suites.synthetic import test_unconditional_to_conditional_rates as conditional_suite

LENGTH_OP, CONDITIONAL_OP = "acceptance_length_to_rates", "unconditional_to_conditional_rates"


def fails(test: Callable[..., None], op: str, faulty: Any, right: Any, *arguments: Any) -> None:
    """Run a case on a right function, and see it fail on a faulty one."""
    test(OpUnderTest(contracts.load(op), right), *arguments)
    with pytest.raises(Mismatch):
        test(OpUnderTest(contracts.load(op), faulty), *arguments)


def resolve(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a resolution of rates that asks `function` first; None leaves the answer to the reference."""

    def op(*, n: int, rates: Any, length: Any) -> Any:
        answer = function(n, rates, length)
        return synthetic_rates.resolve_synthetic_acceptance_rates(n, rates, length) if answer is None else answer

    return op


def the_callers_list(n: int, rates: Any, length: Any) -> Any:
    return rates


def up_to_a_thousandth_more(n: int, rates: Any, length: Any) -> Any:
    near = rates is not None and all(later <= earlier + 1e-3 for earlier, later in pairwise(rates))
    return list(rates) if near and all(0 <= rate <= 1 for rate in rates) else None


def up_to_a_billionth_outside(n: int, rates: Any, length: Any) -> Any:
    if rates is not None:
        return list(rates) if all(-1e-9 <= rate <= 1 + 1e-9 for rate in rates) else None
    return [1.0] * n if 1 - 1e-9 <= length <= n + 1 + 1e-9 else None


@pytest.mark.parametrize(
    ("test", "faulty", "values"),
    [
        (resolve_suite.test_valid_rates_are_returned, the_callers_list, (0.9, 0.5, 0.5)),
        (resolve_suite.test_a_rising_rate, up_to_a_thousandth_more, (1.0, 0.49999999999999994, 0.5)),
        (resolve_suite.test_a_rate_out_of_range, up_to_a_billionth_outside, (1.0000000000000002, 0.5, 0.5)),
        (resolve_suite.test_a_rate_out_of_range, up_to_a_billionth_outside, (0.5, 0.5, -5e-324)),
        (resolve_suite.test_a_length_out_of_range, up_to_a_billionth_outside, 0.9999999999999999),
        (resolve_suite.test_a_length_out_of_range, up_to_a_billionth_outside, 4.000000000000001),
    ],
)
def test_resolving_rates(test: Callable[..., None], faulty: Callable[..., Any], values: Any) -> None:
    fails(test, "resolve_synthetic_acceptance_rates", resolve(faulty), resolve(lambda *_: None), values)


def test_a_length_just_below_a_whole_one() -> None:
    def rounded(*, length: float, n: int) -> list[float]:
        accepted = length - 1
        whole = math.floor(accepted + 1e-9)
        return ([1.0] * whole + [accepted - whole] + [0.0] * n)[:n]

    fails(length_suite.test_generated, LENGTH_OP, rounded, synthetic_rates.acceptance_length_to_rates, 7)


def test_a_tiny_rate_is_not_zero() -> None:
    def cut(*, rates: list[float]) -> list[float]:
        return [rate / before if before > 1e-6 else 0.0 for rate, before in zip(rates, [1.0, *rates[:-1]], strict=True)]

    right = synthetic_rates.unconditional_to_conditional_rates
    fails(conditional_suite.test_generated, CONDITIONAL_OP, cut, right, 7)


def test_a_top_p_of_nan_keeps_one_token() -> None:
    """The bound for rounding at the edge of top-p does not excuse it."""
    right = cpu.op("apply_top_k_top_p")

    def keeps_all(*, output: Any, logits: Any, k: Any, p: Any) -> None:
        right(output=output, logits=logits, k=k, p=p.nan_to_num(1.0))

    fails(top_p_suite.test_nan, "apply_top_k_top_p", keeps_all, right, 7, "p", 300)


@pytest.mark.parametrize("draft", ["present", "absent"])
def test_a_tiny_residual_is_not_zero(draft: str) -> None:
    op = "sample_recovered_tokens"
    right = cpu.op(op)

    def cut(*, target_probs_ptr: Any, **arguments: Any) -> None:
        right(target_probs_ptr=target_probs_ptr * (target_probs_ptr > 1e-30), **arguments)

    fails(recovered_suite.test_no_residual_is_too_small, op, cut, right, 7, draft)


def test_a_log_probability_of_nan_is_wrong_and_one_of_a_masked_token_is_not() -> None:
    exact = np.array([math.log(0.75), math.log(0.25), -math.inf])
    context = RequestContext(GenerationRequest((1,), max_tokens=1, logprobs=3))
    top = tuple(enumerate(exact.tolist()))
    parameter_suite.check_entry(exact, 0, TokenLogprobs(top[0][1], top), context, "here")
    for sampled, last in ((math.nan, -math.inf), (top[0][1], math.nan), (top[0][1], -1e4)):
        entry = TokenLogprobs(sampled, (*top[:2], (2, last)))
        with pytest.raises(Mismatch):
            parameter_suite.check_entry(exact, 0, entry, context, "here")
