"""Explanations of wrong elements: their places, and the misread input that gives all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from changed_ops import told

from verispec.cases.batches import random_batch
from verispec.judge import Failure, Kind, Mismatch, OpUnderTest, explained
from verispec.reference import contracts, cpu
from verispec.run.record import SILENT
from verispec.suites.sampler import test_every_op as every_op
from verispec.suites.sampler import test_every_op_large as large
from verispec.suites.sampler._calls import BatchShape, make
from verispec.suites.sampler._drafting import expanded_arguments, next_token_arguments, random_inputs
from verispec.suites.sampler._rejection import greedy_arguments, random_arguments, recovered_arguments
from verispec.suites.sampler.test_apply_top_k_top_p import within

RANDOM, GREEDY, RECOVERED = "rejection_random_sample", "rejection_greedy_sample", "sample_recovered_tokens"
MAKE: dict[str, Callable[..., dict[str, Any]]] = {
    RANDOM: random_arguments,
    GREEDY: greedy_arguments,
    RECOVERED: recovered_arguments,
}
COUNTS = (0, 3, 5, 1, 4, 0, 2, 3, 6, 1) * 10
FAST: Any = SimpleNamespace(describe=lambda: SimpleNamespace(details={}))
"""An engine that runs in no interpreter."""


def misread(name: str, change: Callable[[dict[str, Any]], Any]) -> Callable[[str], Callable[..., None]]:
    """Return a maker of an op that takes one argument for another."""

    def of(op: str) -> Callable[..., None]:
        return lambda **arguments: cpu.op(op)(**{**arguments, name: change(arguments)})

    return of


def without_bonus(op: str) -> Callable[..., None]:
    """Return the op without the bonus token of requests without drafts."""

    def run(**arguments: Any) -> None:
        output = arguments["output_token_ids_ptr"]
        before = output.clone()
        cpu.op(op)(**arguments)
        sums = arguments["cu_num_draft_tokens_ptr"].long()
        none = torch.diff(sums, prepend=torch.zeros(1, dtype=torch.long)) == 0
        output[none] = before[none]

    return run


def goes_on(**arguments: Any) -> None:
    """Write one token more behind the first rejection of each request."""
    output = arguments["output_token_ids_ptr"]
    cpu.op(RANDOM)(**arguments)
    for row, drafts in zip(output, torch.diff(arguments["cu_num_draft_tokens_ptr"]), strict=False):
        if row[1:2].lt(0).any() and drafts > 3 and row[0] >= 0:
            row[1] = 1


def without_last_draft(**arguments: Any) -> None:
    """Leave the place of the last draft of each request as it is."""
    output = arguments["output_token_ids_ptr"]
    before = output.clone()
    cpu.op(GREEDY)(**arguments)
    counts = torch.diff(arguments["cu_num_draft_tokens_ptr"].long(), prepend=torch.zeros(1, dtype=torch.long))
    rows = torch.arange(len(counts))[counts > 0]
    output[rows, counts[rows] - 1] = before[rows, counts[rows] - 1]


def draft_for_argmax(**arguments: Any) -> None:
    """Write the draft where it is rejected."""
    output = arguments["output_token_ids_ptr"]
    cpu.op(GREEDY)(**arguments)
    sums = arguments["cu_num_draft_tokens_ptr"].tolist()
    for row, start, end in zip(output, [0, *sums], sums, strict=False):
        for place in range(end - start):
            if row[place] >= 0:
                row[place] = arguments["draft_token_ids_ptr"][start + place]


def reversed_tokens(**arguments: Any) -> None:
    """Write the tokens of each request in reverse order."""
    output = arguments["output_token_ids_ptr"]
    cpu.op(RECOVERED)(**arguments)
    sums = arguments["cu_num_draft_tokens_ptr"].tolist()
    for start, end in zip([0, *sums], sums, strict=False):
        output[start:end] = output[start:end].flip(0).clone()


def noise_by_draft(**arguments: Any) -> None:
    """Read the noise at the number of the draft."""
    noise, tokens = arguments["inv_q_ptr"], len(arguments["draft_token_ids_ptr"])
    sums = arguments["cu_num_draft_tokens_ptr"]
    alone = {"inv_q_ptr": noise[torch.arange(tokens) % len(noise)].contiguous()}
    cpu.op(RECOVERED)(
        **{**arguments, **alone, "cu_num_draft_tokens_ptr": torch.arange(1, tokens + 1, dtype=sums.dtype)}
    )


def modulo_64(arguments: dict[str, Any]) -> Any:
    mask = arguments["is_greedy_ptr"]
    return mask[torch.arange(len(mask)) % 64].contiguous()


FAULTS = [
    (RANDOM, misread("is_greedy_ptr", modulo_64), "is_greedy_ptr were read at the request's number modulo 64"),
    (
        RANDOM,
        misread(
            "recovered_token_ids_ptr",
            lambda a: torch.cat([a["recovered_token_ids_ptr"][i:j] for i, j in ((0, 1), (0, -1))]),
        ),
        "recovered_token_ids_ptr were read one row before",
    ),
    (
        RANDOM,
        misread("uniform_probs_ptr", lambda a: a["uniform_probs_ptr"].half().double()),
        "uniform_probs_ptr had been rounded to float16",
    ),
    (
        RANDOM,
        misread("uniform_probs_ptr", lambda a: (a["uniform_probs_ptr"] * 256).floor() / 256),
        "uniform_probs_ptr had 8 bits behind the point",
    ),
    (RANDOM, lambda _: goes_on, "wrong only behind the last token of a request"),
    (GREEDY, lambda _: without_last_draft, "wrong only at the last draft of a request"),
    (GREEDY, lambda _: draft_for_argmax, "the wrong values are those of draft_token_ids_ptr at their place"),
    (RECOVERED, lambda _: reversed_tokens, "the values of each request are in reverse order"),
    (RECOVERED, lambda _: noise_by_draft, "inv_q_ptr were read at the number of the draft"),
    (RANDOM, without_bonus, "wrong only in requests without drafts"),
    (GREEDY, misread("is_greedy_ptr", lambda a: torch.ones_like(a["is_greedy_ptr"])), "where is_greedy_ptr is false"),
    (
        RECOVERED,
        misread("inv_q_ptr", lambda a: torch.cat((a["inv_q_ptr"][:, :-3], 0 * a["inv_q_ptr"][:, -3:]), 1)),
        "inv_q_ptr ended at column 24 of 27",
    ),
]


def message_of(op: str, function: Callable[..., None]) -> str:
    batch = random_batch(np.random.default_rng(3), COUNTS, 27, draft=True, greedy=0.3)
    batch.uniform[::3] = np.round(batch.uniform[::3], 2)
    p, q = (rows[np.arange(batch.tokens), batch.draft_token_ids] for rows in (batch.target_probs, batch.draft_probs))
    batch.uniform[1::7] = (p / q)[1::7] * (1 - 2.0**-13)  # float16 rounds some up, and rejects
    batch.uniform[2::7] = (p / q)[2::7] * (1 + 2.0**-10)  # eight bits round some down, and accept
    under_test = OpUnderTest(contracts.load(op), function)
    with pytest.raises(Mismatch) as caught:
        under_test.check_outputs(MAKE[op](batch))
    return explained(caught.value.failure, under_test.compared).message


@pytest.mark.parametrize(("op", "fault", "words"), FAULTS)
def test_a_misread_input_is_named(op: str, fault: Callable[[str], Callable[..., None]], words: str) -> None:
    message = message_of(op, fault(op))
    assert words in message
    assert message.endswith(")")


def test_the_last_draft_of_a_request_is_named_where_it_is_the_first_wrong_element() -> None:
    """That of the longest request alone is wrong, which may be by chance."""

    def run(**arguments: Any) -> None:
        output = arguments["output_token_ids_ptr"]
        before = output[2, 4].clone()
        cpu.op(GREEDY)(**arguments)
        output[2, 4] = before

    batch = random_batch(np.random.default_rng(3), (1, 2, 5, 3), 27, draft=True)
    batch.argmax[3:8] = batch.draft_token_ids[3:8]
    under_test = OpUnderTest(contracts.load(GREEDY), run)
    with pytest.raises(Mismatch) as caught:
        under_test.check_outputs(greedy_arguments(batch, is_greedy_ptr=None))
    message = explained(caught.value.failure, under_test.compared).message
    assert message.endswith("(the first wrong one is the last draft of a request of 5 drafts)")


def test_wrong_elements_that_a_right_mask_marks_are_named() -> None:
    name = "copy_and_expand_eagle_inputs"

    def run(**arguments: Any) -> None:
        cpu.op(name)(**arguments)
        arguments["out_positions_ptr"][arguments["out_is_rejected_token_mask_ptr"]] += 7

    call = make(name, 5, BatchShape(**every_op.MODES["plain"]))
    under_test = OpUnderTest(contracts.load(name), run)
    with pytest.raises(Mismatch) as caught:
        under_test.check_outputs(call.values, shapes=call.shapes, compare=call.compare)
    message = explained(caught.value.failure, under_test.compared).message
    assert "(wrong only where out_is_rejected_token_mask_ptr is true" in message


def shift_ids(ids: Any, places: list[int]) -> None:
    ids[places] += 1


def test_slots_of_a_request_are_counted_where_it_has_more_than_tokens() -> None:
    values = expanded_arguments(np.random.default_rng(2), [12, 5, 12], p=4, shift=False)  # 16, 9 and 16 slots
    message = told(
        "copy_and_expand_eagle_inputs", values, lambda a: shift_ids(a["out_input_ids_ptr"], [10, 11, 35, 40])
    ).message
    assert "wrong only from slot 10 of a request on" in message


def test_integers_that_are_right_in_their_low_bits() -> None:
    def change(arguments: dict[str, Any]) -> None:
        indices = arguments["token_indices_to_sample_ptr"]
        indices[indices > 2**15] -= 2**16

    message = told("eagle_prepare_inputs_padded", random_inputs(np.random.default_rng(2), [700] * 60), change).message
    assert "the wrong values are right in their low 16 bits" in message


def test_a_neighbour_s_number_is_named_where_requests_are_wrong() -> None:
    name, values = "eagle_prepare_next_token_padded", next_token_arguments(np.full((40, 3), -1))

    def change(arguments: dict[str, Any]) -> None:
        place = torch.tensor([8, 16, 32])
        arguments["next_token_ids_ptr"][place] = arguments["backup_next_token_ids_ptr"][place - 1]

    message = told(name, values, change).message
    assert "as if backup_next_token_ids_ptr were read at the request before where requests are wrong" in message


def test_a_mask_that_is_read_once_for_two_requests() -> None:
    def pairs(arguments: dict[str, Any]) -> Any:
        mask = arguments["is_greedy_ptr"]
        return mask[torch.arange(len(mask)) // 2 * 2].contiguous()

    message = message_of(GREEDY, misread("is_greedy_ptr", pairs)(GREEDY))
    assert "is_greedy_ptr were read at the first request of every 2" in message


def test_a_value_that_is_kept_by_the_address_of_its_tensor() -> None:
    kept: dict[int, Any] = {}

    def run(**arguments: Any) -> None:
        bonus = arguments["bonus_token_ids_ptr"]
        cpu.op(GREEDY)(**{**arguments, "bonus_token_ids_ptr": kept.setdefault(bonus.data_ptr(), bonus.clone())})

    judged = every_op.test_other_values_in_the_same_memory
    judged(OpUnderTest(contracts.load(GREEDY), cpu.op(GREEDY)), FAST, 1, GREEDY)
    with pytest.raises(Mismatch, match="in the same memory"):
        judged(OpUnderTest(contracts.load(GREEDY), run), FAST, 1, GREEDY)


def test_a_variable_that_threads_share_is_seen_in_one_of_many_calls() -> None:
    calls, record = [], {"reach": "threads"}
    name = "eagle_prepare_inputs_padded"

    def run(**arguments: Any) -> None:
        cpu.op(name)(**arguments)
        calls.append(1)
        if torch.get_num_threads() > 1 and len(calls) == 500:
            arguments["num_rejected_tokens_gpu_ptr"][7] += 1

    with pytest.raises(Mismatch, match="call 500 of 1000 equal ones"):
        large.test_many_requests_in_threads_again(OpUnderTest(contracts.load(name), run), FAST, record, 1, name)
    assert record == {"reach": "threads"}


def test_a_wrong_value_of_no_kind_is_not_explained() -> None:
    def run(**arguments: Any) -> None:
        cpu.op(RANDOM)(**arguments)
        arguments["output_token_ids_ptr"][[1, 17, 33], 0] += 1

    assert message_of(RANDOM, run).endswith("the values are wrong")


def test_a_call_that_is_right_when_made_again() -> None:
    calls = []

    def run(**arguments: Any) -> None:
        cpu.op(RANDOM)(**arguments)
        calls.append(1)
        if len(calls) == 1:
            arguments["output_token_ids_ptr"][[1, 17, 33], 0] += 1

    assert "the same call is right when it is made again" in message_of(RANDOM, run)


def test_a_call_that_is_right_in_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = [2]
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads[-1])
    monkeypatch.setattr(torch, "set_num_threads", threads.append)

    def run(**arguments: Any) -> None:
        cpu.op(RANDOM)(**arguments)
        if threads[-1] > 1:
            arguments["output_token_ids_ptr"][[1, 17, 33], 0] += 1

    assert "the same call is right in one thread" in message_of(RANDOM, run)
    assert threads[-1] == 2


def test_the_first_wrong_copy_of_a_batch_is_named() -> None:
    def run(**arguments: Any) -> None:
        cpu.op(GREEDY)(**arguments)
        arguments["output_token_ids_ptr"][61 * 64 :] += 1

    under_test = OpUnderTest(contracts.load(GREEDY), run)
    engine: Any = SimpleNamespace(describe=lambda: SimpleNamespace(details={}))
    with pytest.raises(Mismatch) as caught:
        every_op.test_very_many_rows(under_test, engine, 1, GREEDY, "plain")
    message = explained(caught.value.failure, under_test.compared).message
    assert message.endswith("(right up to request 3904 of copies of 61 requests)")


def test_only_the_failure_of_the_compared_call_is_explained() -> None:
    batch = random_batch(np.random.default_rng(3), COUNTS, 27, draft=True, greedy=0.3)
    under_test = OpUnderTest(contracts.load(RANDOM), without_bonus(RANDOM))
    with pytest.raises(Mismatch) as caught:
        under_test.check_outputs(random_arguments(batch))
    failure = caught.value.failure
    for other in (replace(failure, wrong=failure.wrong + 1), Failure(Kind.LAW, "a law")):
        assert explained(other, under_test.compared) is other
    assert explained(failure, None) is failure
    described = explained(replace(failure, message=f"{failure.message} (7 requests)"), under_test.compared)
    assert described.message.endswith(
        " (7 requests; wrong only in requests without drafts; wrong only at bonus tokens)"
    )


@pytest.mark.parametrize("place", ["first", "all"])
@pytest.mark.parametrize("mode", ["plain", "other"])
@pytest.mark.parametrize("op", every_op.OPS)
def test_a_wrong_output_of_any_op_keeps_its_message(op: str, mode: str, place: str) -> None:
    def run(**arguments: Any) -> None:
        cpu.op(op)(**arguments)
        for tensor in contracts.load(op).outputs:
            if (output := arguments.get(tensor.name)) is not None and output.numel():
                wrong = output if place == "all" else output[:1]
                wrong.copy_(~wrong if wrong.dtype == torch.bool else wrong + 3)

    under_test = OpUnderTest(contracts.load(op), run)
    call = make(op, 5, BatchShape(**every_op.MODES[mode]))
    with pytest.raises(Mismatch) as caught:
        under_test.check_outputs(call.values, shapes=call.shapes, compare=call.compare)
    failure = explained(caught.value.failure, under_test.compared)
    assert failure.message.startswith(caught.value.failure.message)
    assert replace(failure, message="", details={}) == replace(caught.value.failure, message="", details={})
    assert failure.details.keys() <= {*SILENT, "fault"}


def keeps_all_ties(**arguments: Any) -> None:
    """Keep all tokens that tie with the last one of top-k; there is no top-p."""
    logits, k = arguments["logits"], arguments["k"]
    last = torch.stack([row.topk(int(count)).values[-1] for row, count in zip(logits, k, strict=True)])
    arguments["output"].copy_(logits.masked_fill(logits < last[:, None], float("-inf")))


def failure_of(op: OpUnderTest) -> Failure:
    """Return the failure of a call with a tie at its limit."""
    logits = np.array([[3.0, 3.0, 1.0, 0.0]], np.float32)
    values = {"output": np.zeros_like(logits), "logits": logits, "k": np.array([1], np.int32), "p": None}
    with pytest.raises(Mismatch) as caught:
        op.check_outputs(values, compare={"output": within})
    return caught.value.failure


def test_a_comparison_with_words_of_its_own_is_explained_by_them() -> None:
    op = OpUnderTest(contracts.load("apply_top_k_top_p"), keeps_all_ties)
    failure = failure_of(op)
    assert "too many of those with the last kept logit" in failure.message
    assert explained(failure, op.compared).kind == failure.kind


def test_a_fault_of_an_explanation_costs_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(*_: Any) -> list[str]:
        raise RuntimeError("never")

    monkeypatch.setattr("verispec.judge._explained.places", fault)
    op = OpUnderTest(contracts.load("apply_top_k_top_p"), keeps_all_ties)
    failure = failure_of(op)
    assert explained(failure, op.compared).message == f"{failure.message} (no explanation: RuntimeError: never)"
