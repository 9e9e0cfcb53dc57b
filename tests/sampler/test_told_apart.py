"""Mistakes that explain the same call: which of them a failure names, and how many."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from verispec.cases.request_state import random_requests
from verispec.engines import UnsupportedCall
from verispec.judge import Failure, Kind, Mismatch, OpUnderTest, _explained, explained
from verispec.judge._compare import oracle_outputs
from verispec.judge._compared import ComparedCall
from verispec.judge._explained import AS_IF, explaining, mistakes_of, of_inputs
from verispec.judge._misread import misread
from verispec.reference import contracts, cpu, oracle
from verispec.run.record import FAULT
from verispec.suites.sampler._calls import BatchShape, make
from verispec.suites.sampler._fused import draft_normalisers, raw
from verispec.suites.sampler._fused import limits as limits_of

LIMITS, DRAW, RECOVERED = "apply_top_k_top_p", "gumbel_sample", "sample_recovered_tokens"
IGNORED, LOW = "top_k did not count", "pos had its low 8 bits alone"


def limits(rows: int = 3) -> dict[str, Any]:
    logits = np.random.default_rng(1).normal(size=(rows, 40)).astype(np.float32)
    return {"logits": logits, "k": np.resize([5, 9, 3], rows), "p": None}


def draws(rows: int, vocab: int, first: int = 0) -> dict[str, Any]:
    return {
        "logits": np.zeros((rows, vocab), np.float32), "expanded_idx_mapping": np.arange(rows),
        "temperature": np.ones(rows), "seed": np.arange(rows) * 3 + 2**34 + first,
        "pos": np.arange(rows) * 300 + 2**17 + 7, "apply_temperature": True,
        "is_drafting": False, "logits_cache": None, "logits_cache_col": None,
    }  # fmt: skip


def misreading(op: str, **changes: Callable[[Any], Any]) -> Callable[..., None]:
    """Return the op with some arguments changed."""

    def run(**arguments: Any) -> None:
        cpu.op(op)(**{**arguments, **{name: change(arguments[name]) for name, change in changes.items()}})

    return run


LOW_BITS = misreading(DRAW, pos=lambda pos: pos & 255)
WITHOUT_K = misreading(LIMITS, k=lambda _: None)


def failing(op: str, engine: Callable[..., None], values: Mapping[str, Any]) -> tuple[Failure, ComparedCall]:
    """Return the failure of a call, and the call."""
    under_test = OpUnderTest(contracts.load(op), engine)
    with pytest.raises(Mismatch) as caught:
        under_test.check_outputs(values)
    assert under_test.compared is not None
    return caught.value.failure, under_test.compared


def words_of(compared: ComparedCall) -> list[str]:
    return [mistake.words for mistake in mistakes_of(compared)]


def test_a_listed_mistake_that_is_a_misread_input_too_is_named_once() -> None:
    failure, compared = failing(LIMITS, WITHOUT_K, limits())
    assert "k were None" in {mistake.words for mistake in explaining(compared, of_inputs(compared))}
    told = explained(failure, compared)
    assert told.message.endswith(f" ({AS_IF} {IGNORED})")
    assert told.details[FAULT] == IGNORED


def test_a_listed_mistake_is_named_where_a_misread_input_always_gives_the_same() -> None:
    """No other seeds tell a temperature of 1 from one that is not applied."""
    logits = np.random.default_rng(2).normal(size=(8, 40)).astype(np.float32)
    heated = draws(8, 40) | {"temperature": np.linspace(0.5, 4, 8), "logits": logits}
    _, compared = failing(DRAW, misreading(DRAW, apply_temperature=lambda _: False), heated)
    assert [mistake.words for mistake in explaining(compared, of_inputs(compared))] == ["apply_temperature were False"]
    assert words_of(compared) == ["the temperature were 1"]


def test_other_seeds_tell_a_misread_input_from_a_listed_mistake() -> None:
    """Two tokens of two requests are by chance those of many mistakes, of which the listed ones would be named."""
    failure, compared = failing(DRAW, LOW_BITS, draws(rows=2, vocab=2))
    assert LOW not in words_of(replace(compared, otherwise=None)) != []
    told = explained(failure, compared)
    assert told.message.endswith(f" ({AS_IF} {LOW})")
    assert FAULT not in told.details, "it is of this call, and no fault of others"


def test_ids_that_are_narrowed_to_32_bits_are_no_ids_of_16_bits() -> None:
    """A kernel of another language copies ids into its own integers; these are past the vocabulary in 64 bits."""
    narrow = misreading(RECOVERED, draft_token_ids_ptr=lambda ids: ids.to(torch.int32).to(ids.dtype))
    rng = np.random.default_rng(3)
    values = {
        "cu_num_draft_tokens_ptr": np.array([64]), "draft_token_ids_ptr": 2**40 + rng.integers(0, 3, 64),
        "draft_probs_ptr": None, "target_probs_ptr": rng.dirichlet(np.ones(3), 64).astype(np.float32),
        "inv_q_ptr": np.array([[2.0, 3.0, 4.0]]), "vocab_size": 3, "BLOCK_SIZE": 8,
        "NO_DRAFT_PROBS": True, "USE_FP64_GUMBEL": True,
    }  # fmt: skip
    under_test = OpUnderTest(contracts.load(RECOVERED), narrow)
    with pytest.raises(Mismatch) as caught:
        under_test.check_outputs(values, dtypes={"draft_token_ids_ptr": "int64"})
    assert under_test.compared is not None
    told = explained(caught.value.failure, under_test.compared)
    assert told.message.endswith(f"{AS_IF} draft_token_ids_ptr had its low 32 bits alone)")


def test_ids_that_are_read_as_words_of_32_bits_are_told() -> None:
    """A kernel for ids of 32 bits walks over half of the memory of wider ones, and meets their upper halves."""

    def words(ids: torch.Tensor) -> torch.Tensor:
        return ids.contiguous().view(torch.int32).ravel()[: ids.numel()].view(ids.shape).to(ids.dtype)

    op = "rejection_random_sample"
    call = make(op, 3, BatchShape(counts=(0, 1, 0, 2, 0, 0, 3)))
    under_test = OpUnderTest(contracts.load(op), misreading(op, bonus_token_ids_ptr=words))
    with pytest.raises(Mismatch) as caught:
        under_test.check_outputs(call.values, shapes=call.shapes, dtypes={"bonus_token_ids_ptr": "int64"})
    assert under_test.compared is not None
    told = explained(caught.value.failure, under_test.compared)
    assert told.message.endswith(f"{AS_IF} bonus_token_ids_ptr were numbers of 32 bits in memory)")


def test_other_places_of_numbers_tell_a_wrong_tie_from_a_misread_row_without_its_end() -> None:
    """A call without seeds: the second of two equal scores is the first where the draft's probabilities end before."""

    def wins_last(**arguments: Any) -> None:
        cpu.op(RECOVERED)(**{**arguments, "inv_q_ptr": arguments["inv_q_ptr"].flip(-1)})
        arguments["output_token_ids_ptr"].copy_(8192 - arguments["output_token_ids_ptr"])

    noise, draft = np.ones((1, 8193)), np.full((1, 8193), 0.125, np.float32)
    noise[0, [5, 8192]] = 4
    values = {
        "cu_num_draft_tokens_ptr": np.array([1]), "draft_token_ids_ptr": np.array([0]), "draft_probs_ptr": draft,
        "target_probs_ptr": 2 * draft, "inv_q_ptr": noise, "vocab_size": 8193, "BLOCK_SIZE": 8192,
        "NO_DRAFT_PROBS": False, "USE_FP64_GUMBEL": True,
    }  # fmt: skip
    _, compared = failing(RECOVERED, wins_last, values)
    assert words_of(replace(compared, otherwise=None)) == ["draft_probs_ptr ended at column 8,192 of 8,193"]
    assert [words.partition(" in line")[0].partition(" were ")[2] for words in words_of(compared)] == [
        "the last of equals"
    ]


def test_what_the_case_has_named_stays_the_fault() -> None:
    failure, compared = failing(LIMITS, WITHOUT_K, limits())
    told = explained(replace(failure, details={FAULT: "strides ignored"}), compared)
    assert told.details[FAULT] == "strides ignored"
    assert IGNORED in told.message


def test_words_of_the_case_stay_before_the_mistake() -> None:
    failure, compared = failing(LIMITS, WITHOUT_K, limits())
    told = explained(replace(failure, message=f"{failure.message} (call 2 of 9)"), compared)
    assert told.message.endswith(f" (call 2 of 9; {AS_IF} {IGNORED})")


def test_a_call_that_many_mistakes_explain_names_none() -> None:
    failure, compared = failing(DRAW, misreading(DRAW, pos=lambda pos: pos + 1), draws(rows=1, vocab=2, first=1))
    alone = replace(compared, otherwise=None, again=None)
    assert len(explaining(alone, _explained.listed(alone))) > _explained.MOST
    assert words_of(alone) == []
    assert AS_IF not in explained(failure, alone).message


AMBIGUOUS = draws(rows=2, vocab=2, first=4)
"""A call that two listed mistakes explain, and the misread input that the engine has."""


@pytest.mark.parametrize("error", [UnsupportedCall("no other seeds"), Mismatch(Failure(Kind.RAISED, "no"))])
def test_a_refused_further_call_tells_nothing_apart(error: Exception) -> None:
    def refuse(_: int) -> Any:
        raise error

    _, compared = failing(DRAW, LOW_BITS, AMBIGUOUS)
    assert len(words_of(replace(compared, otherwise=refuse))) == 2


def test_a_mistake_that_does_not_explain_a_further_call_is_none() -> None:
    def other(_: int) -> Any:
        return compared.inputs, {"sampled": compared.outputs["sampled"] + 7}

    failure, compared = failing(DRAW, LOW_BITS, AMBIGUOUS)
    assert words_of(replace(compared, otherwise=other)) == []
    assert AS_IF not in explained(failure, replace(compared, otherwise=other, again=None)).message


def test_a_further_call_whose_mistakes_are_not_all_tried_tells_nothing_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    now, outputs_with = [0.0], _explained._outputs_with
    _, compared = failing(DRAW, LOW_BITS, AMBIGUOUS)

    def and_no_time_is_left(mistake: Any, call: ComparedCall) -> Any:
        outputs = outputs_with(mistake, call)
        is_given = outputs is not None and call.is_given_by(outputs)
        now[0] += 9 * (is_given and call.inputs is not compared.inputs)
        return outputs

    monkeypatch.setattr(_explained, "time", SimpleNamespace(process_time=lambda: now[0], monotonic=lambda: 0.0))
    monkeypatch.setattr(_explained, "_outputs_with", and_no_time_is_left)
    assert len(words_of(compared)) == 2
    assert now == [9]


def test_further_calls_change_nothing_of_the_op() -> None:
    under_test = OpUnderTest(contracts.load(DRAW), LOW_BITS)
    with pytest.raises(Mismatch) as caught:
        under_test.check_outputs(draws(rows=2, vocab=2))
    last, compared = under_test.last, under_test.compared
    under_test.before_call = lambda _: pytest.fail("the further call is recorded")
    explained(caught.value.failure, compared)
    assert under_test.last is last
    assert under_test.compared is compared


def test_a_right_token_that_a_comparison_accepts_shows_no_mistake() -> None:
    """Such comparisons test tokens by the right scores, and would accept each right one of any mistake."""
    _, compared = failing(DRAW, LOW_BITS, draws(rows=7, vocab=2, first=1))
    right, every = compared.expected["sampled"], (_explained.listed, of_inputs)
    bounded = replace(compared, compare={"sampled": lambda expected, got, _: (got != right) & (got != expected)})
    told, exact = ([m.words for of in every for m in explaining(call, of(call))] for call in (bounded, compared))
    assert told == exact == [LOW]


def test_the_search_ends_with_its_processor_time(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def slow(*_: Any) -> None:
        tried.append(1)

    monkeypatch.setattr(_explained, "_outputs_with", slow)
    monkeypatch.setattr(_explained, "SECONDS", -1.0)
    _, compared = failing(LIMITS, WITHOUT_K, limits())
    assert words_of(compared) == tried == []


@pytest.mark.parametrize("most", ["LARGEST", "ROWS"])
def test_large_calls_are_not_tried(monkeypatch: pytest.MonkeyPatch, most: str) -> None:
    _, compared = failing(LIMITS, WITHOUT_K, limits(rows=6))
    assert words_of(compared) == [IGNORED]
    monkeypatch.setattr(_explained, most, 5)
    assert words_of(compared) == []


@pytest.mark.parametrize(("op", "values"), [(LIMITS, limits()), (DRAW, draws(4, 70))])
def test_each_misread_input_is_another(op: str, values: dict[str, Any]) -> None:
    inputs, _ = OpUnderTest(contracts.load(op), lambda **_: None).call(values)
    found = list(misread(contracts.load(op), inputs))
    assert len({words for words, _ in found}) == len(found) > 5
    given = [tuple((name, np.asarray(value).tobytes()) for name, value in changed.items()) for _, changed in found]
    assert len(set(given)) == len(given)
    for words, changed in found:
        assert any(not np.array_equal(inputs[name], value) for name, value in changed.items()), words


def test_an_oracle_gets_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    def fills(*, output: Any, **_: Any) -> dict[str, Any]:
        output[:] = 1
        return {"output": output}

    monkeypatch.setattr(oracle, "load", lambda _: fills)
    given = np.zeros(3)
    assert oracle_outputs(LIMITS, {"output": given, "k": 3})["output"].tolist() == [1, 1, 1]
    assert given.tolist() == [0, 0, 0]


STATES = "verify_draft_logits"


def by_number(**arguments: Any) -> None:
    """Read top-k at the number of the request."""
    states, k = arguments["idx_mapping"].long(), arguments["top_k"].clone()
    k[states] = arguments["top_k"][: len(states)]
    cpu.op(STATES)(**{**arguments, "top_k": k})


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        (misreading(STATES, draft_normaliser=lambda x: x[:, :1].expand_as(x)), "draft_normaliser were read at step 0"),
        (misreading(STATES, top_k=lambda k: torch.cat((k[:1], k[:-1]))), "top_k were read at the state before"),
        (by_number, "top_k were read at the number of the request, not at its state"),
    ],
    ids=["step", "state", "request"],
)
def test_what_a_state_holds_was_read_elsewhere(engine: Callable[..., None], words: str) -> None:
    requests = raw(random_requests(np.random.default_rng(4), (3,) * 12, 60, spare=0, temperature=1.0))
    numbers = draft_normalisers(requests)
    numbers += 9.0 * (np.indices(numbers.shape).sum(0) % 2)
    arguments = requests.arguments(contracts.load(STATES), draft_normaliser=numbers, **limits_of(requests, [2, 9, 30]))
    under_test = OpUnderTest(contracts.load(STATES), engine)
    with pytest.raises(Mismatch) as caught:
        under_test.check_outputs(arguments, shapes={"sampled": (requests.requests, requests.columns)})
    assert words in explained(caught.value.failure, under_test.compared).message
