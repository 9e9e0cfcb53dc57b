"""Both poison patterns count: what an op may not write keeps either, and what it writes depends on neither."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from judging import verdict_on

from verispec.judge import Kind, Mismatch, OpUnderTest
from verispec.judge._memory import GuardedTensor
from verispec.judge._output import under_poison
from verispec.reference import contracts, cpu, oracle
from verispec.run import runfile
from verispec.suites.sampler._calls import MAKERS, BatchShape, make

WRITES_ALL = "sample_recovered_tokens"
LEAVES_SOME = "rejection_greedy_sample"
LEAVES_NAN = "probabilistic_rejection"


def check(op: str, function: Any) -> None:
    call = make(op, 1, BatchShape())
    OpUnderTest(contracts.load(op), function).check_outputs(call.values, shapes=call.shapes, compare=call.compare)


def turned_into_the_first_poison(**arguments: Any) -> None:
    """Write what lies under the first pattern where the second lies: the first call shows nothing."""
    output = arguments["output_token_ids_ptr"]
    before = output.clone()
    cpu.op(LEAVES_SOME)(**arguments)
    untouched = output == before
    output[untouched & (output != FIRST_POISON)] = FIRST_POISON


def added_to_what_lay_there(**arguments: Any) -> None:
    output = arguments["output_token_ids_ptr"]
    stale = int(output.flatten()[0]) != FIRST_POISON
    cpu.op(WRITES_ALL)(**arguments)
    output += stale


FIRST_POISON = -7777


@pytest.mark.parametrize(
    ("op", "function"), [(LEAVES_SOME, turned_into_the_first_poison), (WRITES_ALL, added_to_what_lay_there)]
)
def test_a_fault_of_the_second_call_alone_is_caught(op: str, function: Any) -> None:
    check(op, cpu.op(op))
    with pytest.raises(Mismatch):
        check(op, function)


@pytest.mark.parametrize(("op", "times"), [(WRITES_ALL, 1), (LEAVES_SOME, 1), (LEAVES_NAN, 2)])
def test_the_oracle_runs_again_where_poison_may_be_a_result(
    op: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oracle takes nearly all the time of a large call."""
    runs = []
    run = oracle.load(op)

    def counted(**arguments: Any) -> Any:
        runs.append(arguments)
        return run(**arguments)

    monkeypatch.setattr(oracle, "load", lambda name: counted)
    check(op, cpu.op(op))
    assert len(runs) == times


def forgets_one(**arguments: Any) -> None:
    output = arguments["output_token_ids_ptr"]
    before = output.clone()
    cpu.op(WRITES_ALL)(**arguments)
    output[1] = before[1]


def forgets_one_and_errs(**arguments: Any) -> None:
    forgets_one(**arguments)
    arguments["output_token_ids_ptr"][2] += 1


def fills_the_rest(**arguments: Any) -> None:
    output = arguments["output_token_ids_ptr"]
    before = output.clone()
    cpu.op(LEAVES_SOME)(**arguments)
    output[output == before] = 5


def computes_nan(**arguments: Any) -> None:
    """Write NaN to one element and a wrong number to another."""
    output = arguments["output"]
    cpu.op("apply_top_k_top_p")(**arguments)
    output[0, 0], output[0, 1] = float("nan"), 99.0


@pytest.mark.parametrize(
    ("op", "function", "message"),
    [
        (
            WRITES_ALL,
            forgets_one,
            r"output_token_ids_ptr\[1\] was not written, expected \d+: elements that the op must",
        ),
        (WRITES_ALL, forgets_one_and_errs, r"output_token_ids_ptr\[1\] was not written, expected \d+: the values are"),
        (LEAVES_SOME, fills_the_rest, r"output_token_ids_ptr\[\d, \d\] must stay untouched, was written: 5: elements"),
        ("apply_top_k_top_p", computes_nan, r"output\[0, 0\] is nan, expected .*"),
    ],
)
def test_the_mark_of_an_unwritten_element_is_no_value(op: str, function: Any, message: str) -> None:
    """A reader does not know what the harness puts into outputs before a call."""
    with pytest.raises(Mismatch) as raised:
        check(op, function)
    failure = raised.value.failure
    assert re.match(message, failure.message), failure.message
    assert not [e for e in failure.examples if str(FIRST_POISON) in (str(e["got"]), str(e["expected"]))]


@pytest.mark.parametrize("op", MAKERS)
def test_what_is_expected_under_other_poison_is_what_the_oracle_says(op: str) -> None:
    contract, call = contracts.load(op), make(op, 1, BatchShape(special=True))
    under_test = OpUnderTest(contract, cpu.op(op))
    first, second = (under_test.call(call.values, shapes=call.shapes, pattern=pattern)[0] for pattern in (0, 1))
    expected, again = (oracle.load(op)(**arguments) for arguments in (first, second))
    for name, values in under_poison(contract, first, second, expected).items():
        assert np.array_equal(values, again[name], equal_nan=values.dtype.kind == "f"), name


EXPAND = "expand_batch_to_tokens"


def forgets_what_looks_like_poison(**arguments: Any) -> None:
    output = arguments["output_ptr"]
    before = output.clone()
    cpu.op(EXPAND)(**arguments)
    alike = output == FIRST_POISON
    output[alike] = before[alike]


def test_an_id_that_looks_like_poison_is_an_output_like_others() -> None:
    """An op that copies what it is given writes the mark of the first poison rightly, and must write it."""
    call = make(EXPAND, 1, BatchShape())
    values = {**call.values, "input_ptr": np.full(np.shape(call.values["input_ptr"]), FIRST_POISON)}
    dtypes = dict.fromkeys(("input_ptr", "output_ptr"), "int32")
    OpUnderTest(contracts.load(EXPAND), cpu.op(EXPAND)).check_outputs(values, dtypes=dtypes, shapes=call.shapes)
    with pytest.raises(Mismatch):
        wrong = OpUnderTest(contracts.load(EXPAND), forgets_what_looks_like_poison)
        wrong.check_outputs(values, dtypes=dtypes, shapes=call.shapes)


def one_request_too_many(**arguments: Any) -> None:
    """Go on to one request past the batch, if it has rows and a state."""
    cpu.op(LEAVES_NAN)(**arguments)
    counts, states, output = (arguments[name] for name in ("cu_num_logits", "idx_mapping", "num_accepted"))
    requests = len(states)
    begin, end = behind(counts, requests), behind(counts, requests + 1)
    if begin < end and 0 <= behind(states, requests) < len(arguments["seed"]):
        output.as_strided((1,), (1,), output.storage_offset() + requests)[0] = end - begin - 1


def behind(tensor: torch.Tensor, at: int) -> int:
    """Return the element at a place that may lie past the tensor's end."""
    return int(tensor.as_strided((1,), (1,), tensor.storage_offset() + at)[0])


@pytest.mark.parametrize("seed", range(4))
def test_a_loop_of_one_round_too_many_is_caught(seed: int) -> None:
    call = make(LEAVES_NAN, seed, BatchShape((2, 0, 1)))
    op = OpUnderTest(contracts.load(LEAVES_NAN), one_request_too_many)
    with pytest.raises(Mismatch, match="outside"):
        op.check_outputs(call.values, shapes=call.shapes, compare=call.compare)


def test_counts_behind_the_batch_are_those_of_further_requests() -> None:
    """Any other numbers there mostly make a request without rows, which every op skips."""
    counts = np.array([0, 2, 5])
    tensor = GuardedTensor((3,), torch.int32, layout="gapped", pattern=1, values=counts, is_cumulative=True)
    begin = tensor.view.storage_offset() + 3 * tensor.view.stride(0)
    following = [5, *tensor.buffer[begin :: tensor.view.stride(0)].tolist()]
    assert set(np.diff(following).tolist()) == {1, 2}
    assert tensor.view.tolist() == [0, 2, 5]


def test_the_memory_of_a_case_does_not_depend_on_the_cases_before(tmp_path: Path) -> None:
    """So that the command which repeats a case repeats what an op reads beside its inputs."""
    shown = []
    for n, only in enumerate(("[12]", "2", "2")):
        out = tmp_path / f"{n}.jsonl"
        verdict_on("broken_engines:ShowsMemory", out, only=(f"sampler/{EXPAND}:EXP-{only}:*int32*",), seed=5 + (n == 2))
        shown.append({r.id: str(r.failure) for r in runfile.read(out).records})
    among, alone, other_seed = shown
    assert alone
    assert len(among) > len(alone)
    for case, failure in alone.items():
        assert "memory " in failure
        assert failure == among[case]
        assert failure != other_seed[case]


def ignores_strides(**arguments: Any) -> None:
    """Read the request offsets as if they were dense, and end where a kernel would write at a negative offset."""
    starts = arguments["query_start_loc_ptr"]
    read = torch.as_strided(starts, starts.shape, [1], starts.storage_offset())
    if int(read.min()) < 0:
        raise SystemError("wrote before the buffer")
    cpu.op("copy_and_expand_eagle_inputs")(**arguments)
    arguments["out_input_ids_ptr"] += int((read != starts).any())


def test_ignored_strides_show_as_a_wrong_output_before_they_damage_memory() -> None:
    op, call = "copy_and_expand_eagle_inputs", make("copy_and_expand_eagle_inputs", 1, BatchShape())
    subject, layouts = OpUnderTest(contracts.load(op), ignores_strides), {"query_start_loc_ptr": "gapped"}
    with pytest.raises(Mismatch) as error:
        subject.check_outputs(call.values, layouts=layouts, shapes=call.shapes, compare=call.compare)
    assert error.value.failure.kind is Kind.VALUE


def test_a_tensor_on_a_device_takes_the_values_of_another() -> None:
    """There the buffer is apart from the copy of it that the harness compares with."""
    tensor, other = (GuardedTensor((3,), torch.int64, values=np.array(values)) for values in ([1, 2, 3], [4, 5, 6]))
    at = tensor.view.storage_offset()
    tensor.buffer = tensor.buffer.clone()
    tensor.view = tensor.buffer[at : at + 3]
    tensor.fill_as(other)
    tensor.seal()
    assert tensor.before().tolist() == tensor.view.tolist() == [4, 5, 6]
