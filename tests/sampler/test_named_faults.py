"""Faults that cases of the suites name in words: only where nothing else explains what was seen."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from wrong_offsets import OP, without_strides

from verispec.cases.sampling import random_sampler_batch
from verispec.engines import UnsupportedCall
from verispec.engines.protocol.sampling import Draws, SamplerBatch, Trace
from verispec.judge import Failure, Kind, Mismatch, OpUnderTest
from verispec.reference import contracts, cpu
from verispec.reference.oracle.apply_top_k_top_p import apply_top_k_top_p
from verispec.run.record import FAULT
from verispec.suites.sampler import test_every_op as every_op
from verispec.suites.sampler._noise_rule import MISREAD, MISTAKES, SHARED, by_rule, mistake_of
from verispec.suites.sampler._parameters import (
    AND,
    FAULTS,
    GRAMMAR_VOCAB,
    fault_of,
    greedy_by_rule,
    random_step,
)
from verispec.suites.sampler.test_apply_top_k_top_p import TIED, within
from verispec.suites.sampler.test_whole_sampler_parameters import told_apart

TIES = np.array([[3.0, 2.0, 2.0, 2.0, 1.0, 0.0], [5.0, 4.0, 3.0, 2.0, 1.0, 0.0]], dtype=np.float32)


def masked(keep: list[list[int]]) -> Any:
    got = np.full_like(TIES, -np.inf)
    for row, ids in enumerate(keep):
        got[row, ids] = TIES[row, ids]
    return got


def inputs(k: list[int] | None, p: list[float] | None) -> dict[str, Any]:
    limits = (None if limit is None else np.array(limit) for limit in (k, p))
    return dict(zip(("k", "p"), limits, strict=True)) | {"logits": TIES}


def answer(given: dict[str, Any]) -> Any:
    return apply_top_k_top_p(output=np.empty_like(TIES), **given)["output"]


@pytest.mark.parametrize(
    ("k", "p", "keep", "message"),
    [
        ([2, 2], None, [[0, 1, 2, 3], [0, 1]], "row 0 keeps 4 tokens, expected 2: too many of those with"),
        ([3, 2], None, [[0, 3], [0, 1]], "row 0 keeps 2 tokens, expected 3: too few of those with"),
        ([2, 2], None, [[0, 3], [0, 1]], "row 0 keeps 2 tokens, but not the first of those with"),
        (None, [0.7, 0.5], [[0, 2, 3], [0]], "row 0 keeps 3 tokens, but not the first of those with"),
    ],
)
def test_ties_at_a_limit_are_named(k: Any, p: Any, keep: list[list[int]], message: str) -> None:
    given = inputs(k, p)
    with pytest.raises(Mismatch, match=f"{message} the last kept logit, 2") as caught:
        within(answer(given), masked(keep), given)
    assert caught.value.failure.details == {FAULT: TIED}
    assert caught.value.failure.wrong == len(caught.value.failure.examples) > 0


@pytest.mark.parametrize(
    ("k", "p", "keep"),
    [
        ([2, 2], None, [[0, 1, 2, 3], [0, 1, 2]]),  # the second row has no ties
        ([2, 2], None, [[0], [0]]),
        ([2, 2], None, [[1, 2], [0, 1]]),  # the first token is lost
        (None, [0.7, 0.5], [[0, 1, 2, 3], [0]]),  # a wrong number of first tokens: top-p's boundary
    ],
)
def test_other_wrong_masks_are_not_named(k: Any, p: Any, keep: list[list[int]]) -> None:
    given = inputs(k, p)
    assert within(answer(given), masked(keep), given).any()


SAMPLERS = {
    ("forgets", "bonus"): "the bonus row does not count the accepted drafts as output",
    ("forgets", "all"): "no row counts the drafts before it as output",
    ("ignores", "bonus"): "the bonus row ignores the parameter",
    ("ignores", "drafts"): "the rows of drafts ignore the parameter",
    ("ignores", "all"): "the parameter is ignored",
    ("words", "last"): "of a bad word the last two tokens alone count",
    ("words", "any"): "a bad word forbids its last token whatever stands before it",
    ("words", "one"): "bad words of several tokens are ignored",
    ("words", "short"): "of a bad word that is longer than the text its end alone counts",
    ("counts", "last"): "the last token alone counts as output",
    ("counts", "drafts"): "drafts alone count as output",
    ("counts", "prompt"): "presence and frequency penalties count the prompt as output",
    ("counts", "ids"): "token 0 has no presence and frequency penalties",
}
MISREADINGS = {
    "the logit bias counts by its whole part alone": "logit bias",
    "min_tokens forbids the first of several stop tokens alone": "min tokens",
    "min_tokens forbids the last of several stop tokens alone": "min tokens",
    "a grammar forbids no token past the last whole word of 32 bits": "grammar",
}
"""Parameters that a sampler misreads, each with the one that shows it."""
ORDERS = {
    ("order", words): words
    for words in (
        "the presence penalty was missing",
        "the frequency penalty was missing",
        "the repetition penalty was missing",
        "the logit bias was missing",
        "the repetition penalty came before the logit bias",
        "presence and frequency penalties came before the repetition penalty",
    )
}
"""Wrong orders and missing parameters of requests with several."""
PARAMETERS = {
    "words": ("bad words", 48),
    "counts": ("penalties", 24),
    "order": (AND.join(("logit bias", "penalties")), 24),
}
"""Parameter and number of steps that show a fault, by the field of a `Step`; others show by "min tokens" in twelve."""


@pytest.mark.parametrize(
    ("fault", "name"), [*SAMPLERS.items(), *ORDERS.items(), *((("misread", name), name) for name in MISREADINGS)]
)
def test_a_sampler_with_a_fault_has_its_name(fault: tuple[str, str], name: str) -> None:
    rng = np.random.default_rng(5)
    named = set()
    parameter, steps = PARAMETERS.get(fault[0], (MISREADINGS.get(name, "min tokens"), 12))
    for _ in range(steps):
        step = random_step(rng, parameter, "absent", 0.0, vocab=GRAMMAR_VOCAB)
        faulty = replace(step, **dict([fault]))  # type: ignore[arg-type]
        tokens = [(greedy_by_rule(faulty, b) or ([],))[0] for b in range(len(step.contexts))]
        right = [(greedy_by_rule(step, b) or ([],))[0] for b in range(len(step.contexts))]
        if tokens != right:
            named |= set(fault_of(step, tokens).split(" or "))
            assert fault_of(step, [*tokens[:-1], [44, 44, 44, 44]]) == "", "one request that it does not explain"
    assert name in named


def test_every_named_fault_of_a_sampler_is_tested() -> None:
    assert list(FAULTS) == list(SAMPLERS.values())


@pytest.mark.parametrize("mistake", [*MISTAKES, *SHARED])
def test_a_mistake_with_random_numbers_has_its_name(mistake: str) -> None:
    """Eight steps of three drafts leave no other mistake that explains all of their tokens."""
    rng = np.random.default_rng(7)
    traced = []
    for n in range(8):
        step = random_sampler_batch(rng, [3] * 8, 32, temperature=0.9, draft=True, seeds=[8 * n + b for b in range(8)])
        draws: list[Draws | None] = [
            Draws(torch.from_numpy(rng.random(3)), torch.from_numpy(rng.exponential(size=32))) for _ in range(8)
        ]
        tokens = [answer_of(step, b, draw, mistake) for b, draw in enumerate(draws)]
        traced.append((step, Trace(tokens, draws)))
    assert mistake_of(traced) == mistake
    step, trace = traced[0]
    wrong = Trace([[31] * 4, *trace.tokens[1:]], trace.draws)
    assert mistake_of([(step, wrong), *traced[1:]]) == "", "one request that it does not explain"


@pytest.mark.parametrize("mistake", MISREAD)
@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")
def test_a_misread_batch_has_its_name(mistake: str) -> None:
    """Greedy requests stand between the others, as in the mixed batches of WS-9; their samples are not told."""
    rng = np.random.default_rng(7)
    heat = np.array([0.7, 0.0, 0.7, 0.7, 0.0, 0.7, 0.7, 0.7])
    traced = []
    for _ in range(8):
        step = random_sampler_batch(rng, [3] * 8, 32, temperature=heat, draft=True, seeds=list(range(8)))
        draws = [Draws(torch.from_numpy(rng.random(3)), torch.from_numpy(rng.exponential(size=32))) for _ in heat]
        read = MISREAD[mistake](step)
        tokens = [answer_of(read, b, draw, "") for b, draw in enumerate(draws)]
        traced.append((step, Trace(tokens, [draw if hot else None for draw, hot in zip(draws, heat, strict=True)])))
    assert mistake_of(traced) == mistake
    step, trace = traced[0]
    wrong = Trace([[31] * 4, *trace.tokens[1:]], trace.draws)
    assert mistake_of([(step, wrong), *traced[1:]]) == "", "one request that it does not explain"


def answer_of(step: SamplerBatch, b: int, draw: Draws | None, mistake: str) -> list[int]:
    """Return the tokens of a request whose sampler makes the mistake, with 0 as any bonus token."""
    assert draw is not None
    uniform, noise = draw.uniform.numpy(), draw.noise.numpy()
    numbers = SHARED[mistake](uniform, noise) if mistake in SHARED else MISTAKES.get(mistake, lambda u: u)(uniform)
    ruled = by_rule(step, b, numbers, noise)
    assert ruled is not None, "no near tie with this seed"
    emitted, rejected = ruled
    return emitted if rejected else [*emitted, 0]


def one_off(**arguments: Any) -> None:
    cpu.op(OP)(**arguments)
    arguments["next_token_ids_ptr"] += 1


@pytest.mark.parametrize(("kernel", "fault"), [(without_strides, "strides ignored"), (one_off, "")])
def test_pairs_of_axes_name_strides_where_dense_tensors_pass(kernel: Any, fault: str) -> None:
    with pytest.raises(Mismatch) as caught:
        for part in range(1, every_op.PAIR_PARTS + 1):
            every_op.test_all_pairs_of_axes(OpUnderTest(contracts.load(OP), kernel), 1, OP, part)
    assert caught.value.failure.details.get(FAULT, "") == fault


def test_the_name_is_that_of_the_clauses_on_layouts() -> None:
    assert every_op.STRIDES in {clause.fault for name in contracts.names() for clause in contracts.load(name).clauses}


@pytest.mark.parametrize("error", [UnsupportedCall("no min-p"), Mismatch(Failure(Kind.RAISED, "no"))])
def test_a_refused_further_step_leaves_the_failure(error: Exception) -> None:
    """Else a case that has failed would end as refused."""

    def refuse(*_: Any) -> Any:
        raise error

    sampler: Any = SimpleNamespace(process_and_verify=refuse)
    step: Any = SimpleNamespace(batch=None, contexts=None)
    assert told_apart(sampler, "one or another", lambda: step) == "one or another"
