"""Mistakes of ops that a failing call names: each by its own words, and nothing else by any."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from verispec.judge import Failure, Kind, Mismatch, OpUnderTest, _explained, explained
from verispec.judge._compared import ComparedCall
from verispec.judge._explained import explaining, listed
from verispec.judge._number_mistakes import NUMBER_MISTAKES
from verispec.judge._op_mistakes import OP_MISTAKES
from verispec.reference import contracts, cpu, oracle
from verispec.run.record import ALTERNATIVELY, FAULT
from verispec.suites.sampler._calls import BatchShape, make

SEEDS = range(12)
SHAPES = (BatchShape(), BatchShape(counts=(3, 1, 5, 3), vocab=48, temperature=0.7), BatchShape(vocab=32, draft=False))
LONG = BatchShape(counts=(9,) * 20, vocab=8)
"""Chains and trees in which several drafts of a request are decided."""
OF_NUMBERS = {
    "acceptance had the number by which a token is drawn": "probabilistic_rejection",
    "every candidate of a draw were tested by the number of the first": "verify_draft_logits",
    "every candidate of a draw had the number of the first": "verify_draft_logits",
    "a candidate were tested by the number that has drawn it": "verify_draft_logits",
    **{f"the numbers of candidates returned after {turn}": "verify_draft_logits" for turn in (4, 8, 16, 32)},
    "a later candidate had the number of the first at as many positions later": "verify_draft_logits",
}
"""Ops that show a mistake with random numbers; `gumbel_sample` shows the others."""


def inputs_of(op: str, seed: int, shape: BatchShape) -> dict[str, Any]:
    """Return the arguments of a call as an oracle takes them, seeds and positions of 64 bits among them."""
    under_test = OpUnderTest(contracts.load(op), lambda **arguments: None)
    if seed % 4 == 2 and op in ("verify_one_hot", "verify_draft_logits"):
        shape = replace(shape, counts=(3,) * 16, vocab=700, temperature=1.0)
    if seed % 4 == 2 and op in ("verify_tree_sampled", "verify_tree_typical"):  # three blocks of ids
        shape = replace(shape, vocab=3000)
    call = make(op, seed, shape)
    inputs, _ = under_test.call(call.values, shapes=call.shapes)
    if seed % 4 == 2 and op in ("verify_one_hot", "verify_draft_logits"):  # hundreds of tokens are kept
        return {**inputs, "top_k": np.full(len(inputs["temperature"]), 600), "top_p": None}
    if seed % 4 == 0 and (changes := OTHERWISE.get(op)):
        return {**inputs, **changes[seed // 4 % len(changes)](inputs)}
    if op == "expand_batch_to_tokens" and seed % 4 == 3:
        zeros = np.where(np.arange(len(inputs["input_ptr"])) % 2, -0.0, 0.0).astype(np.float32)
        return {**inputs, "input_ptr": zeros, "replace_from": 0, "replace_to": 1}
    if op == "expand_batch_to_tokens" and seed % 2:  # a fraction that float32 rounds
        values = np.resize(np.array([0.1, 0.5], np.float32), len(inputs["input_ptr"]))
        output = np.full(len(inputs["output_ptr"]), -7, np.float32)
        return {**inputs, "input_ptr": values, "output_ptr": output, "replace_from": 0.1}
    if op == "expand_batch_to_tokens":  # integers that a float of 64 bits does not tell from the one to be replaced
        wide = 2**53 + np.arange(len(inputs["input_ptr"])) % 3
        output = np.full(len(inputs["output_ptr"]), -7)
        return {**inputs, "input_ptr": wide, "output_ptr": output, "replace_from": 2**53}
    if op == "verify_tree_sampled":
        inputs = {**inputs, "WITHOUT_REPLACEMENT": True}
    if op in ("verify_tree_sampled", "verify_tree_typical") and seed % 2:  # paths are full before their last node
        return {**inputs, "accept_index": inputs["accept_index"][:, : max(inputs["accept_index"].shape[1] // 2, 1)]}
    if op in ("verify_one_hot", "verify_draft_logits") and seed % 2:
        return {**inputs, **tied(inputs, seed)}
    return inputs


def colder(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return temperatures below 0.01, and logits that are as close to each other at them as before."""
    heat = inputs["temperature"]
    logits = {
        name: inputs[name] for name in ("target_logits", "draft_logits", "logits") if inputs.get(name) is not None
    }
    cold = {name: (values * np.float32(0.004)).astype(values.dtype) for name, values in logits.items()}
    return {"temperature": np.where(heat > 0, heat * 0.004, 0).astype(heat.dtype), **cold}


def tiny(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return logits below 2^-14 for a cache of float16."""
    rows, vocab = inputs["logits"].shape
    return {
        "logits": (inputs["logits"] * np.float32(1e-6)).astype(np.float32),
        "logits_cache": np.zeros((len(inputs["temperature"]), 1, vocab), np.float16),
        "logits_cache_col": np.zeros(rows, np.int32),
    }


def lost(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return places of which every third one, but for roots, is outside of the batch."""
    places = inputs["retrieve_index"].copy()
    places[:, 1::3] = -1
    return {"retrieve_index": places}


def near(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return rejected drafts whose drafter is nearly its target: one candidate in 30 passes."""
    target, draft, tokens = inputs["target_logits"], inputs["draft_logits"].copy(), inputs["draft_sampled"].copy()
    starts = inputs["cu_num_logits"].tolist()
    for state, start, end in zip(inputs["idx_mapping"].tolist(), starts, starts[1:], strict=False):
        for step in range(end - start - 1):
            own = draft[state, step]
            own[:] = target[start + step, : len(own)] + 0.1
            order, weights = own.argsort(), np.exp(np.sort(own))
            own[order[weights.cumsum() < 0.05 * weights.sum()]] -= 1.0
            tokens[start + step + 1] = own.argmin()
            own[own.argmin()] += 9.0
    heat = np.ones_like(inputs["temperature"])
    return {"draft_logits": draft, "draft_sampled": tokens, "temperature": heat, "top_k": None, "top_p": None}


def limited(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return likely drafts under both limits."""
    tokens, states = inputs["draft_sampled"].copy(), len(inputs["temperature"])
    tokens[1:] = inputs["target_logits"].argmax(axis=1)[:-1]
    return {"draft_sampled": tokens, "top_k": np.full(states, 9), "top_p": np.full(states, 0.6, np.float32)}


def with_nan(name: str) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Return the change of rates, where a call has some, of which the second is NaN."""

    def changed(inputs: Mapping[str, Any]) -> dict[str, Any]:
        rates = inputs[name]
        return {} if rates is None else {name: np.where(np.arange(len(rates)) == 1, np.nan, rates).astype(rates.dtype)}

    return changed


OTHERWISE: dict[str, tuple[Callable[[Mapping[str, Any]], dict[str, Any]], ...]] = {
    "apply_top_k_top_p": (lambda inputs: {"logits": np.round(inputs["logits"])},),
    "gather_draft_logits_and_target_argmax": (
        lambda inputs: {"target_logits": inputs["target_logits"] - np.float32(90)},
    ),
    "gumbel_sample": (tiny, colder),
    "probabilistic_rejection": (colder,),
    "residual_resample": (colder,),
    "rejection_greedy_sample": (with_nan("synthetic_conditional_rates_ptr"),),
    "rejection_random_sample": (with_nan("synthetic_conditional_rates_ptr"),),
    "synthetic_rejection": (
        lambda inputs: {"acceptance_rates": inputs["acceptance_rates"][:1]},
        with_nan("acceptance_rates"),
    ),
    "verify_draft_logits": (colder, near),
    "verify_one_hot": (colder, limited),
    "verify_tree_typical": (dict, dict, lost),
}
"""Other arguments of every fourth call."""


def tied(inputs: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Return logits that tie where limits end, and drafts whose logits do."""
    logits, states = np.round(inputs["target_logits"]), len(inputs["temperature"])
    k = 1 + seed % 4
    drafts = inputs["draft_sampled"].copy()
    for row in range(len(logits) - 1):
        ties = np.flatnonzero(logits[row] == np.sort(logits[row])[-k])
        drafts[row + 1] = ties[(row + seed) % len(ties)]
    return {
        "target_logits": logits,
        "draft_sampled": drafts,
        "top_k": np.full(states, k),
        "top_p": np.full(states, 0.6 + 0.06 * (seed % 7), np.float32),
    }


def drawing(seed: int, *, is_drafting: bool) -> dict[str, Any]:
    """Return arguments of gumbel_sample over 9,000 tokens, with seeds and positions past 32 bits."""
    rng = np.random.default_rng(seed)
    return {
        "sampled": np.full(6, -7),
        "logits": rng.normal(size=(6, 9000)).astype(np.float32),
        "expanded_idx_mapping": np.arange(6, dtype=np.int32),
        "temperature": rng.uniform(0.5, 2.0, 6).astype(np.float32),
        "seed": rng.integers(2**40, 2**62, 6),
        "pos": rng.integers(2**33, 2**40, 6),
        "apply_temperature": True,
        "is_drafting": is_drafting,
        "logits_cache": np.zeros((6, 3, 9000), np.float32) if is_drafting else None,
        "logits_cache_col": rng.permutation(6).astype(np.int32) % 3 if is_drafting else None,
    }


@pytest.mark.parametrize("mistake", NUMBER_MISTAKES)
def test_a_mistake_with_numbers_has_its_name(mistake: str) -> None:
    op = OF_NUMBERS.get(mistake, "gumbel_sample")
    named = set()
    for seed in SEEDS:
        inputs = drawing(seed, is_drafting=bool(seed % 2)) if op == "gumbel_sample" else inputs_of(op, seed, SHAPES[1])
        named |= told(op, inputs, NUMBER_MISTAKES[mistake])
        if mistake in named:
            return
    raise AssertionError(f"named instead: {named}")


@pytest.mark.parametrize(("op", "mistake"), [(op, mistake) for op in OP_MISTAKES for mistake in OP_MISTAKES[op]])
def test_a_mistake_of_an_op_has_its_name(op: str, mistake: str) -> None:
    named: set[str] = set()
    for seed in SEEDS:
        for shape in (*SHAPES, LONG, BatchShape(synthetic=True)):
            named |= told(op, inputs_of(op, seed, shape), OP_MISTAKES[op][mistake])
            if mistake in named:
                return
    raise AssertionError(f"named instead: {named}")


def told(op: str, inputs: Mapping[str, Any], rule: Any) -> set[str]:
    """Return the names of the mistakes that explain the outputs of one; none where they are right."""
    wrong = rule(op, inputs)
    if wrong is None:
        return set()
    right = oracle.load(op)(**{name: np.copy(v) if isinstance(v, np.ndarray) else v for name, v in inputs.items()})
    if all(np.array_equal(right[name], wrong[name]) for name in right):
        return set()
    return set(mistakes_in(op, inputs, wrong))


def mistakes_in(op: str, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> list[str]:
    """Return the listed mistakes that give these outputs."""
    compared = ComparedCall(contracts.load(op), Failure(Kind.VALUE, ""), inputs, outputs, outputs, {})
    return [mistake.words for mistake in explaining(compared, listed(compared))]


@pytest.mark.parametrize("op", sorted(OP_MISTAKES))
def test_other_wrong_outputs_have_no_name(op: str) -> None:
    inputs = inputs_of(op, 3, SHAPES[1])
    right = oracle.load(op)(**{name: np.copy(v) if isinstance(v, np.ndarray) else v for name, v in inputs.items()})
    wrong = {name: values + 1 if values.dtype.kind == "i" else values for name, values in right.items()}
    if op == "apply_top_k_top_p":
        wrong = {"output": right["output"][::-1].copy()}
    assert mistakes_in(op, inputs, wrong) == []


def failure_of(op: str, engine: Callable[..., None], values: Mapping[str, Any]) -> Failure:
    """Return the failure of a case with one call."""
    under_test = OpUnderTest(contracts.load(op), engine)
    with pytest.raises(Mismatch) as caught:
        under_test.check_outputs(values)
    return explained(caught.value.failure, under_test.compared)


def test_a_failing_call_says_what_its_outputs_are() -> None:
    def ignoring(*, p: Any, **arguments: Any) -> None:
        cpu.op("apply_top_k_top_p")(p=None, **arguments)

    logits = np.random.default_rng(1).normal(size=(3, 40)).astype(np.float32)
    values = {"logits": logits, "k": np.array([40, 9, 3]), "p": np.array([0.5, 0.6, 0.9], np.float32)}
    failure = failure_of("apply_top_k_top_p", ignoring, values)
    assert "all outputs are as if top_p did not count" in failure.message
    assert failure.details[FAULT] == "top_p did not count"


def test_other_seeds_tell_mistakes_apart() -> None:
    """One row of two tokens has many explanations, and eight calls with other seeds have one."""
    mistake = "positions did not count"

    def without_positions(*, pos: Any, **arguments: Any) -> None:
        cpu.op("gumbel_sample")(pos=pos * 0, **arguments)

    values = {
        "logits": np.zeros((8, 3), np.float32), "expanded_idx_mapping": np.arange(8), "temperature": np.ones(8),
        "seed": np.arange(8) * 3 + 2**34, "pos": np.arange(8) + 7, "apply_temperature": True, "is_drafting": False,
        "logits_cache": None, "logits_cache_col": None,
    }  # fmt: skip
    assert failure_of("gumbel_sample", without_positions, values).details[FAULT] == mistake


def test_the_key_of_a_fault_is_that_of_records() -> None:
    assert (_explained.FAULT, _explained.ALTERNATIVELY) == (FAULT, ALTERNATIVELY)


@pytest.mark.parametrize("op", contracts.names())
def test_a_mistake_of_a_clause_is_listed_for_its_op(op: str) -> None:
    clauses = contracts.load(op).clauses
    listed_words = OP_MISTAKES.get(op, {}) | NUMBER_MISTAKES
    words = [mistake for clause in clauses for mistake in clause.mistakes]
    assert set(words) <= set(listed_words)
    assert len(words) == len(set(words))


@pytest.mark.parametrize("op", sorted(OP_MISTAKES))
def test_a_mistake_of_an_op_is_one_of_a_clause(op: str) -> None:
    """A report then names the clause that the mistake breaks, and not the one that fails most often."""
    of_clauses = {mistake for clause in contracts.load(op).clauses for mistake in clause.mistakes}
    assert set(OP_MISTAKES[op]) - of_clauses == set()


def test_a_mistake_that_explained_a_call_is_tried_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call of large rows has time for few of them."""
    op, mistake = "verify_one_hot", "the rejected draft could be drawn"
    inputs = inputs_of(op, 4, SHAPES[2])
    outputs = OP_MISTAKES[op][mistake](op, inputs)
    assert outputs is not None
    compared = ComparedCall(contracts.load(op), Failure(Kind.VALUE, ""), inputs, outputs, outputs, {})
    assert [each.words for each in _explained.mistakes_of(compared)] == [mistake]
    assert _explained._named[op] == {mistake}
    monkeypatch.setattr(_explained, "of_inputs", None)
    monkeypatch.setattr(_explained, "SECONDS", -1.0)
    assert [each.words for each in _explained.mistakes_of(compared)] == [mistake]
