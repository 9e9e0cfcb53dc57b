"""Faults of logits processors, limits and log-probabilities are caught by the clause that names them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import processing_faults as faults
import pytest
import torch

from verispec.engines import SamplerBatch
from verispec.judge import Kind, Mismatch, SamplerUnderTest
from verispec.judge.statistics import FEWEST_EXPECTED
from verispec.reference import contracts
from verispec.reference.sampler import flat, request_state, whole
from verispec.reference.sampler.whole import WholeFlatSampler
from verispec.reference.sampler.whole_request_state import WholeRequestStateSampler
from verispec.suites.sampler import test_whole_sampler_parameters as suite
from verispec.suites.sampler._parameters import outcomes

Patch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Caught:
    """A fault, and what catches it.

    Attributes:
        clause: clause that names the fault.
        fault: changes the reference.
        parameter: parameter of the case; a mode of log-probabilities for WS-23.
        drawn: True tests its distribution instead of greedy tokens.
    """

    clause: str
    fault: Patch
    parameter: str
    drawn: bool = False


def processing(change: faults.Process) -> Patch:
    """Return a patch that processes rows by `change`."""
    return lambda patch: patch.setattr(whole, "process_logits", change)


def min_p_of_bonus_only(patch: pytest.MonkeyPatch) -> None:
    """Apply min-p to the row of the bonus token alone."""
    original = flat.FlatSampler._constrain

    def constrain(sampler: Any, logits: torch.Tensor, drafts: Any, params: Any) -> None:
        bonus, rows = drafts.rows(logits.device)[1], logits.clone()
        original(sampler, rows, drafts, params)
        original(sampler, logits, drafts, replace(params, min_p=None))
        logits[bonus] = rows[bonus]

    patch.setattr(flat.FlatSampler, "_constrain", constrain)


def min_p_after_top_p(patch: pytest.MonkeyPatch) -> None:
    """Apply min-p after top-k and top-p."""
    for module in (flat, request_state):
        mask, cut = module.mask_below_min_p, module.apply_top_k_top_p
        waiting: list[Any] = []

        def after(logits: torch.Tensor, k: Any, p: Any, *, inplace: bool, given: Any = (cut, mask, waiting)) -> None:
            given[0](logits, k, p, inplace=inplace)
            if given[2]:
                given[1](logits, given[2].pop())

        patch.setattr(module, "mask_below_min_p", lambda logits, min_p, waiting=waiting: waiting.append(min_p))
        patch.setattr(module, "apply_top_k_top_p", after)


def gathering(change: Callable[..., Any]) -> Patch:
    """Return a patch that gathers log-probabilities by ``change(gather, logits, *given)``."""
    gather = whole.gather_logprobs
    return lambda patch: patch.setattr(whole, "gather_logprobs", lambda *given: change(gather, *given))


def of_next_row(gather: Any, logits: torch.Tensor, *given: Any) -> Any:
    return gather(logits.roll(-1, 0), *given)


def of_last_row(gather: Any, logits: torch.Tensor, *given: Any) -> Any:
    """Give every token of a request the row of its last one."""
    return [[rows[-1]] * len(rows) if rows else rows for rows in gather(logits, *given)]


def other_mode(patch: pytest.MonkeyPatch) -> None:
    """Take raw for processed, and the other way round."""
    original = whole.with_processors

    def other(batch: SamplerBatch, contexts: Any, mode: str, *given: Any) -> Any:
        return original(batch, contexts, "processed" if mode == "raw" else "raw", *given)

    patch.setattr(whole, "with_processors", other)


CAUGHT = [
    Caught("WS-16", processing(faults.not_at_bonus), "allowed ids"),
    Caught("WS-16", processing(faults.only_at_bonus), "allowed ids"),
    Caught("WS-16", processing(faults.special_requests_first), "allowed ids"),
    Caught("WS-16", processing(faults.only_at_bonus), "allowed ids", drawn=True),
    Caught("WS-17", processing(faults.without_draft_prefix), "bad words"),
    Caught("WS-17", processing(faults.bad_word_prefix_off_by_one), "bad words"),
    Caught("WS-17", processing(faults.bad_word_prefix_off_by_one), "bad words", drawn=True),
    Caught("WS-18", processing(faults.limit_of_the_step_at_bonus), "min tokens"),
    Caught("WS-18", processing(faults.without_draft_prefix), "min tokens", drawn=True),
    Caught("WS-19", processing(faults.not_at_bonus), "logit bias"),
    Caught("WS-19", processing(faults.special_requests_first), "logit bias", drawn=True),
    Caught("WS-20", processing(faults.without_draft_prefix), "presence penalty"),
    Caught("WS-20", processing(faults.without_draft_prefix), "frequency penalty"),
    Caught("WS-20", processing(faults.prompt_not_counted), "repetition penalty"),
    Caught("WS-20", processing(faults.rejected_drafts_counted), "penalties"),
    Caught("WS-20", processing(faults.only_at_bonus), "repetition reward", drawn=True),
    Caught("WS-21", min_p_of_bonus_only, "min-p", drawn=True),
    Caught("WS-22", processing(faults.special_requests_first), "everything"),
    Caught("WS-22", min_p_after_top_p, "min-p and top-p", drawn=True),
    Caught("WS-22", min_p_after_top_p, "all limits", drawn=True),
    Caught("WS-23", gathering(of_next_row), "raw"),
    Caught("WS-23", gathering(of_last_row), "processed"),
    Caught("WS-23", other_mode, "raw"),
    Caught("WS-23", other_mode, "processed"),
    Caught("WS-24", processing(faults.grammar_of_the_next_row), "grammar"),
    Caught("WS-24", processing(faults.grammar_of_the_step), "grammar", drawn=True),
]


@pytest.mark.parametrize("draft", ["present", "absent"])
@pytest.mark.parametrize("parameter", ["min-p", "min-p and top-p", "all limits", "everything"])
def test_every_seed_draws_outcomes_that_can_be_tested(parameter: str, draft: str) -> None:
    """Of the first draws of min-p, one in three has a single outcome with drawn drafts."""
    for seed in range(12):
        exact = outcomes(suite.telling_pair(np.random.default_rng(seed), parameter, draft), 1)
        assert suite.CALLS * suite.COPIES * (1 - exact.max()) >= 2 * FEWEST_EXPECTED


def judge(caught: Caught, sampler: Any, draft: str) -> None:
    """Run the case of `caught` on `sampler`."""
    torch.manual_seed(5)
    under_test = SamplerUnderTest(sampler)
    if caught.clause == "WS-23":
        suite.test_log_probabilities_are_those_of_the_row(under_test, 5, caught.parameter, "mixed", draft)
    elif caught.drawn:
        suite.check_sampled(under_test, 5, caught.parameter, draft)
    else:
        suite.check_greedy(under_test, np.random.default_rng(5), caught.parameter, "mixed", draft)


def name(value: Any) -> str:
    return f"{value.clause}-{value.parameter}" if isinstance(value, Caught) else str(value)


@pytest.mark.parametrize("draft", ["present", "absent"])
@pytest.mark.parametrize("caught", CAUGHT, ids=name)
def test_a_fault_is_caught_by_what_it_computes(caught: Caught, draft: str, monkeypatch: pytest.MonkeyPatch) -> None:
    caught.fault(monkeypatch)
    with pytest.raises(Mismatch) as found:
        judge(caught, WholeFlatSampler(), draft)
    assert found.value.failure.kind in (Kind.VALUE, Kind.LAW)


@pytest.mark.parametrize("sampler", [WholeFlatSampler, WholeRequestStateSampler])
@pytest.mark.parametrize(("clause", "parameter", "drawn"), sorted({(c.clause, c.parameter, c.drawn) for c in CAUGHT}))
def test_the_reference_passes(clause: str, parameter: str, drawn: bool, sampler: Any) -> None:
    judge(Caught(clause, lambda patch: None, parameter, drawn), sampler(), "present")


def test_every_clause_of_the_suite_has_a_fault() -> None:
    """Those of the request's parameters, WS-16 to WS-24."""
    clauses = {clause.id for clause in contracts.load("whole_sampler").clauses if 16 <= int(clause.id[3:]) <= 24}
    assert {caught.clause for caught in CAUGHT} == clauses


def test_a_sampler_without_processors_offers_none() -> None:
    class Plain:
        def __call__(self, batch: SamplerBatch) -> list[list[int]]:
            return WholeFlatSampler()(batch)

    with pytest.raises(Exception, match="process_and_verify") as found:
        judge(CAUGHT[0], Plain(), "present")
    assert type(found.value).__name__ == "NotOffered"
