"""Fused ops: each decision within rounding may be taken either way, and no other decision may."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from verispec.cases.request_state import RequestBatch, random_requests
from verispec.reference import contracts, oracle
from verispec.reference.contracts._fused import TRIALS
from verispec.reference.oracle._fused import (
    ALLOWED,
    EXACT,
    OUTPUTS,
    Numbers,
    allowed_results,
    inverse_cdf,
    weights,
)
from verispec.suites.sampler import _fused
from verispec.suites.sampler._fused import by_rule

VOCAB = 8


def one_request(draft: bool, drafts: int = 1) -> RequestBatch:
    """Return a request at temperature 1 over `VOCAB` tokens; its rows are for the test to fill."""
    batch = random_requests(np.random.default_rng(5), (drafts,), VOCAB, draft=draft, temperature=1.0, spare=0)
    batch.pos[:] = 3
    return batch


def numbers_of(batch: RequestBatch, step: int) -> Numbers:
    return Numbers(int(batch.seed[batch.idx_mapping[0]]), int(batch.pos[step]), step)


def inputs_of(op: str, batch: RequestBatch, **more: Any) -> dict[str, Any]:
    before = {name: np.full(batch.requests, -9) for name in OUTPUTS}
    before["sampled"] = np.full((batch.requests, batch.columns), -9)
    return batch.arguments(contracts.load(op), **before, **more)


def right(op: str, inputs: dict[str, Any]) -> set[int]:
    """Return the tokens that are right as the only one of the request."""
    expected = oracle.load(op)(**inputs)["sampled"]
    wrong = by_rule(op)["sampled"]
    answers = {token: np.array([[token] + [-1] * (expected.shape[1] - 1)]) for token in range(VOCAB)}
    return {token for token, got in answers.items() if not wrong(expected, got, inputs).any()}


def logs(probabilities: Any) -> Any:
    with np.errstate(divide="ignore"):
        return np.log(np.asarray(probabilities, dtype=np.float64))


def around(u: float, *, before: float, light: float) -> Any:
    """Return probabilities of 6 tokens of `VOCAB`: two light ones whose boundaries lie at u - before, and the rest."""
    begin = u - before
    return [begin / 2, begin / 2, light, 0.0, light, (1 - begin - 2 * light) / 2, (1 - begin - 2 * light) / 2, 0.0]


@pytest.mark.parametrize("op", ["verify_one_hot", "verify_draft_logits"])
def test_a_token_lighter_than_rounding_is_right_where_it_is_drawn(op: str) -> None:
    """The oracle's number lies a little past two light tokens; no shift of a fixed size reaches both of them."""
    batch = one_request(op == "verify_draft_logits", drafts=0)
    u = numbers_of(batch, 0).trial(0)[0]
    batch.target_logits = logs([around(u, before=2.0**-21, light=2.0**-23)])
    assert right(op, inputs_of(op, batch)) == {1, 2, 4, 5}


@pytest.mark.parametrize("op", ["verify_one_hot", "verify_draft_logits"])
def test_a_token_past_rounding_is_wrong(op: str) -> None:
    batch = one_request(op == "verify_draft_logits", drafts=0)
    u = numbers_of(batch, 0).trial(0)[0]
    batch.target_logits = logs([around(u, before=2.0**-18, light=2.0**-20)])
    assert right(op, inputs_of(op, batch)) == {5}


@pytest.mark.parametrize(("gap", "is_open"), [(2.0**-18, True), (2.0**-14, False)])
def test_a_candidate_passes_or_not_within_rounding(gap: float, is_open: bool) -> None:
    """The first candidate's v lies just below 1 - q / p; the second one passes for certain."""
    batch = one_request(draft=True)
    assert batch.draft_logits is not None
    tokens = [0, 0]
    while tokens[0] == tokens[1]:
        batch.pos += 1
        (u, v), (second, _) = (numbers_of(batch, 0).trial(t) for t in (0, 1))
        tokens = [int(number * 6) for number in (u, second)]
    p = np.array([1 / 6] * 6 + [1e-30, 0.0])
    q = np.zeros(VOCAB)
    q[tokens[0]] = p[0] * (1 - v) * (1 - gap)
    batch.draft_sampled[1] = 6  # a draft of hardly any probability, which is rejected
    q[6] = 1 - q.sum()
    batch.target_logits = logs([p, p])
    batch.draft_logits[batch.idx_mapping[0], 0] = logs(q)
    assert right("verify_draft_logits", inputs_of("verify_draft_logits", batch)) == set(tokens[: 1 + is_open])


@pytest.mark.parametrize(
    ("target", "draft", "emitted"),
    [(-1.0, -1.0, {1, 2}), (-2.0, -1.0, {1, 2}), (-np.inf, -1.0, {1}), (-1.0, -np.inf, {1, 2}), (-1.0, 0.0, {1})],
)
def test_a_draft_beyond_float64_is_accepted_or_not(target: float, draft: float, emitted: set[int]) -> None:
    """At temperature 0.001 a logit of -1 has a probability of e^-1000: its ratio is known to logarithms alone."""
    batch = one_request(draft=True)
    assert batch.draft_logits is not None
    batch.temperature[:] = 0.001
    batch.draft_sampled[1] = 6
    for logits, of_draft in ((batch.target_logits[0], target), (batch.draft_logits[batch.idx_mapping[0], 0], draft)):
        logits[:] = 0.0
        logits[6] = of_draft
    results = allowed_results("verify_draft_logits", inputs_of("verify_draft_logits", batch), 0)
    assert {result["num_sampled"] for result in results} == emitted


@pytest.mark.parametrize("op", ["verify_one_hot", "verify_draft_logits"])
@pytest.mark.parametrize(("gap", "is_open"), [(2.0**-22, True), (2.0**-16, False)])
@pytest.mark.parametrize("side", [-1, 1])
def test_a_token_is_kept_or_not_within_rounding(op: str, gap: float, is_open: bool, side: int) -> None:
    """Top-p ends next to the third token, which is the first candidate; the second candidate is the first token."""
    batch = one_request(op == "verify_draft_logits", drafts=0)
    while not (0.6 < numbers_of(batch, 0).trial(0)[0] < 0.8 and numbers_of(batch, 0).trial(1)[0] < 0.3):
        batch.pos += 1
    p = np.array([0.3, 0.0, 0.28, 0.0, 0.25, 0.0, 0.17, 0.0])
    batch.target_logits = logs([p])
    top_p = np.full(len(batch.temperature), 0.58 + side * gap)
    expected = {0, 4} if is_open else {4 if side > 0 else 0}
    assert right(op, inputs_of(op, batch, top_p=top_p)) == expected


@pytest.mark.parametrize("op", ["verify_one_hot", "verify_draft_logits"])
def test_a_token_is_drawn_from_the_kept_ones_where_top_p_drops_all_candidates(op: str) -> None:
    """Top-p keeps the first token alone, which weighs so little more than the others that no trial gives it."""
    batch = one_request(op == "verify_draft_logits", drafts=0)
    while any(numbers_of(batch, 0).trial(t)[0] < 0.2 for t in range(TRIALS)):
        batch.pos += 1
    batch.target_logits = logs([[0.15, *[0.85 / 7] * 7]])
    assert right(op, inputs_of(op, batch, top_p=np.full(len(batch.temperature), 0.1))) == {0}


@pytest.mark.parametrize("op", ["verify_one_hot", "verify_draft_logits"])
def test_another_token_of_a_random_batch_is_wrong(op: str) -> None:
    """Each token of each request is replaced by either neighbour, and each count is one too large."""
    batch = random_requests(
        np.random.default_rng(7), (2, 0, 3, 1) * 8, 37, draft=op == "verify_draft_logits", temperature=0.7
    )
    inputs = inputs_of(op, batch)
    expected, wrong = oracle.load(op)(**inputs), by_rule(op)
    for b, count in enumerate(expected["num_sampled"]):
        for column in range(count):
            for moved in (-1, 1):
                got = expected["sampled"].copy()
                got[b, column] = (got[b, column] + moved) % 37
                assert wrong["sampled"](expected["sampled"], got, inputs)[b, column]
        for name in OUTPUTS[1:]:
            got = expected[name].copy()
            got[b] += 1
            assert wrong[name](expected[name], got, inputs).tolist() == [other == b for other in range(len(got))]


def test_a_kernel_that_is_always_wrong_is_judged_by_some_of_its_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = random_requests(np.random.default_rng(7), (1,) * 500, 9, draft=False, temperature=0.7)
    inputs = inputs_of("verify_one_hot", batch)
    expected, tried = oracle.load("verify_one_hot")(**inputs)["sampled"], []

    def no_result(op: str, inputs: dict[str, Any], b: int) -> list[dict[str, Any]]:
        tried.append(b)
        return []

    monkeypatch.setattr(_fused, "allowed_results", no_result)
    assert by_rule("verify_one_hot")["sampled"](expected, expected + 100, inputs).all()
    assert tried == list(range(_fused.ENOUGH))


def test_padding_may_not_change() -> None:
    batch = random_requests(np.random.default_rng(7), (2, 1, 2), 9, draft=False, temperature=0.7, padding=[1])
    inputs = inputs_of("verify_one_hot", batch)
    expected = oracle.load("verify_one_hot")(**inputs)["sampled"]
    got = expected.copy()
    got[1] = -1
    assert by_rule("verify_one_hot")["sampled"](expected, got, inputs)[1].all()


def test_no_decision_is_open_without_rounding() -> None:
    row = np.log([0.5, 0.25, 0.25])
    assert [w.kept.tolist() for w in weights(row, 1.0, None, 0.5, EXACT)] == [[1.0, 0.0, 0.0]]
    assert len(list(weights(row, 1.0, None, 0.5, ALLOWED))) == 2
    assert inverse_cdf(np.array([0.5, 0.25, 0.25]), 0.5, EXACT.draw) == [1]
    assert inverse_cdf(np.array([0.5, 0.25, 0.25]), 0.5, ALLOWED.draw) == [0, 1]
