"""A call that breaks its contract says what, where, what was expected and what came; a sound one passes."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from verispec.reference import cpu, oracle
from verispec.reference.contracts import load
from verispec.reference.contracts._check import ContractError, bind, check, signature
from verispec.reference.contracts._compiled import plan_of

REQUESTS, TOKENS, VOCAB, MOST = 3, 5, 7, 4


def arguments(**changes: Any) -> dict[str, Any]:
    """A sound call of rejection_random_sample, with some arguments replaced."""
    return {
        "output_token_ids_ptr": torch.full((REQUESTS, MOST + 1), -1, dtype=torch.int32),
        "cu_num_draft_tokens_ptr": torch.tensor([2, 2, TOKENS], dtype=torch.int32),
        "draft_token_ids_ptr": torch.zeros(TOKENS, dtype=torch.int32),
        "draft_probs_ptr": torch.rand(TOKENS, VOCAB),
        "target_probs_ptr": torch.rand(TOKENS, VOCAB),
        "bonus_token_ids_ptr": torch.zeros(REQUESTS, 1, dtype=torch.int32),
        "recovered_token_ids_ptr": torch.zeros(TOKENS, dtype=torch.int32),
        "uniform_probs_ptr": torch.rand(TOKENS, dtype=torch.float64),
        "is_greedy_ptr": torch.zeros(REQUESTS, dtype=torch.bool),
        "max_spec_len": MOST,
        "vocab_size": VOCAB,
        "synthetic_conditional_rates_ptr": None,
        "NO_DRAFT_PROBS": False,
        "SYNTHETIC_MODE": False,
        **changes,
    }


def checked(op: str = "rejection_random_sample", device: str = "cpu", /, **kwargs: Any) -> dict[str, Any]:
    contract = load(op)
    return check(contract, bind(contract, (), kwargs), device)


def numpy_of(call: dict[str, Any]) -> dict[str, Any]:
    return {name: value.numpy() if isinstance(value, torch.Tensor) else value for name, value in call.items()}


@pytest.mark.parametrize("convert", [dict, numpy_of])
def test_a_sound_call_passes(convert: Any) -> None:
    seen = checked(**convert(arguments()))
    assert seen["vocab_size"] == VOCAB and seen["synthetic_conditional_rates_ptr"] is None
    assert seen["target_probs_ptr"].shape == (TOKENS, VOCAB) and seen["target_probs_ptr"].strides == (VOCAB, 1)


@pytest.mark.parametrize(
    "changes",
    [
        {"bonus_token_ids_ptr": torch.zeros(REQUESTS, dtype=torch.int32)},
        {"NO_DRAFT_PROBS": True, "draft_probs_ptr": None},
        {"SYNTHETIC_MODE": True, "synthetic_conditional_rates_ptr": torch.rand(MOST + 3)},
        {"target_probs_ptr": torch.rand(VOCAB, TOKENS).T},
        {"vocab_size": np.int64(VOCAB), "max_spec_len": np.int32(MOST), "NO_DRAFT_PROBS": np.bool_(False)},
        {"target_probs_ptr": torch.rand(1, VOCAB).expand(TOKENS, VOCAB)},
        {"draft_token_ids_ptr": np.zeros(TOKENS, np.int64)[::-1]},
    ],
)
def test_what_is_allowed_passes(changes: dict[str, Any]) -> None:
    checked(**arguments(**changes))


@pytest.mark.parametrize(
    ("parameter", "value", "expected", "got"),
    [
        ("uniform_probs_ptr", torch.rand(TOKENS).half(), "dtype float32 or float64", "float16"),
        ("is_greedy_ptr", torch.zeros(REQUESTS, dtype=torch.uint8), "dtype bool", "uint8"),
        ("draft_token_ids_ptr", torch.zeros(TOKENS, 1, dtype=torch.int32), "shape [N]", "[5, 1]"),
        ("draft_token_ids_ptr", torch.zeros(TOKENS + 1, dtype=torch.int32), "[N]", "[6]"),
        ("target_probs_ptr", torch.rand(TOKENS, VOCAB + 1), "shape [N, V] = [5, 7] (N is 5", "[5, 8]"),
        ("output_token_ids_ptr", torch.zeros(REQUESTS, MOST, dtype=torch.int32), "[B, K+1] = [3, 5]", "[3, 4]"),
        ("is_greedy_ptr", torch.zeros(REQUESTS - 1, dtype=torch.bool), "[B] = [3]", "[2]"),
        ("bonus_token_ids_ptr", torch.zeros(REQUESTS, 2, dtype=torch.int32), "[B, 1] = [3, 1]", "[3, 2]"),
        ("bonus_token_ids_ptr", torch.zeros(REQUESTS, 1, 1, dtype=torch.int32), "shape [B, 1]", "[3, 1, 1]"),
        ("draft_probs_ptr", None, "a tensor with NO_DRAFT_PROBS=False", "None"),
        ("target_probs_ptr", None, "a tensor", "None"),
        ("target_probs_ptr", [[0.5]], "torch tensor", "list"),
        ("target_probs_ptr", torch.eye(TOKENS, VOCAB).to_sparse(), "torch tensor", "Tensor"),
        ("recovered_token_ids_ptr", np.zeros(TOKENS, ">i4"), "native byte order", "ndarray"),
        ("vocab_size", 0, "at least 1", "0"),
        ("vocab_size", 7.0, "an int", "7.0"),
        ("max_spec_len", True, "an int", "True"),
        ("NO_DRAFT_PROBS", 0, "a bool", "0"),
        ("cu_num_draft_tokens_ptr", torch.tensor([-1, 2, TOKENS]), "counts from 0 up", "-1 at [0]"),
        ("cu_num_draft_tokens_ptr", torch.tensor([2, 1, TOKENS]), "never decrease", "1 after 2 at [1]"),
        ("cu_num_draft_tokens_ptr", torch.tensor([2, 2, TOKENS + 1]), "at most 5, the draft tokens", "6 at [2]"),
        ("cu_num_draft_tokens_ptr", torch.tensor([0, 0, TOKENS]), "steps of at most 4", "one of 5"),
        ("cu_num_draft_tokens_ptr", torch.tensor([TOKENS] * 3), "steps of at most 4", "one of 5"),
        ("target_probs_ptr", torch.rand(TOKENS, VOCAB, device="meta"), "a tensor on cpu", "one on meta"),
    ],
)
def test_a_broken_call_is_explained(parameter: str, value: Any, expected: str, got: str) -> None:
    with pytest.raises(ContractError) as raised:
        checked(**arguments(**{parameter: value}))
    error = raised.value
    assert (error.op, error.parameter) == ("rejection_random_sample", parameter)
    assert expected in error.expected
    assert got in error.got
    assert str(error) == f"{error.op}: {parameter}: expected {error.expected}, got {error.got}"


@pytest.mark.parametrize("shape", [(TOKENS,), (TOKENS, 1)])
@pytest.mark.parametrize("rows", [1, 2])
def test_a_column_is_seen_as_its_one_axis(shape: tuple[int, ...], rows: int) -> None:
    """vLLM's own tests pass draft ids as [N, 1]; `rows` > 1 makes the column a strided one."""
    memory = torch.zeros(shape[0], rows, dtype=torch.int32)[:, :1]
    ids = memory if len(shape) == 2 else memory[:, 0]
    seen = checked(
        "sample_recovered_tokens",
        output_token_ids_ptr=torch.zeros(shape, dtype=torch.int32),
        cu_num_draft_tokens_ptr=torch.tensor([2, 2, TOKENS], dtype=torch.int32),
        draft_token_ids_ptr=ids,
        draft_probs_ptr=torch.rand(TOKENS, VOCAB),
        target_probs_ptr=torch.rand(TOKENS, VOCAB),
        inv_q_ptr=torch.rand(REQUESTS, VOCAB),
        vocab_size=VOCAB,
        NO_DRAFT_PROBS=False,
        USE_FP64_GUMBEL=False,
    )
    for name, stride in (("output_token_ids_ptr", 1), ("draft_token_ids_ptr", rows)):
        assert (tuple(seen[name].shape), tuple(seen[name].strides)) == ((TOKENS,), (stride,))


@pytest.mark.parametrize("shape", [(TOKENS, 2), (TOKENS, 1, 1), (1, TOKENS), (TOKENS + 1, 1)])
def test_a_column_has_one_column_and_as_many_rows(shape: tuple[int, ...]) -> None:
    with pytest.raises(ContractError, match=r"draft_token_ids_ptr: expected shape \[N\]"):
        checked(
            "sample_recovered_tokens",
            output_token_ids_ptr=torch.zeros(TOKENS, dtype=torch.int32),
            cu_num_draft_tokens_ptr=torch.tensor([2, 2, TOKENS], dtype=torch.int32),
            draft_token_ids_ptr=torch.zeros(shape, dtype=torch.int32),
            draft_probs_ptr=torch.rand(TOKENS, VOCAB),
            target_probs_ptr=torch.rand(TOKENS, VOCAB),
            inv_q_ptr=torch.rand(REQUESTS, VOCAB),
            vocab_size=VOCAB,
            NO_DRAFT_PROBS=False,
            USE_FP64_GUMBEL=False,
        )


def test_synthetic_mode_needs_its_rates() -> None:
    with pytest.raises(ContractError, match=r"rates_ptr: expected a tensor with SYNTHETIC_MODE=True, got None"):
        checked(**arguments(SYNTHETIC_MODE=True))


def test_the_error_is_what_a_caller_may_expect_and_crosses_processes() -> None:
    error = ContractError("op", "x", "this", "that")
    assert isinstance(error, TypeError) and isinstance(error, ValueError)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


# Binding


def test_positions_and_keywords_mix() -> None:
    contract, call = load("rejection_random_sample"), arguments()
    values = list(call.values())
    assert bind(contract, values[:4], dict(list(call.items())[4:])) == call
    assert bind(contract, values, {}) == call


@pytest.mark.parametrize(
    ("args", "kwargs", "parameter"),
    [
        ((), {"output_ptr": 1}, "input_ptr"),
        ((1,), {"output_ptr": 1}, "output_ptr"),
        ((), {"outputs": 1}, "outputs"),
        (range(7), {}, "arguments"),
    ],
)
def test_arguments_that_do_not_bind(args: Any, kwargs: dict[str, Any], parameter: str) -> None:
    with pytest.raises(ContractError) as raised:
        bind(load("expand_batch_to_tokens"), args, kwargs)
    assert raised.value.parameter == parameter


def test_what_only_tunes_may_be_left_out() -> None:
    contract = load("sample_recovered_tokens")
    names = [p.name for p in contract.params if p.name != "BLOCK_SIZE"]
    assert set(bind(contract, (), dict.fromkeys(names))) == set(names)
    assert list(signature(contract).parameters) == [p.name for p in contract.params]


# Overlap


def expand(output: Any, values: Any, counts: Any = None, **changes: Any) -> dict[str, Any]:
    counts = torch.tensor([1, 3], dtype=torch.int32) if counts is None else counts
    scalars = {"replace_from": 0, "replace_to": 1, "MAX_NUM_TOKENS": 128, **changes}
    return {"output_ptr": output, "input_ptr": values, "cu_num_tokens_ptr": counts, **scalars}


def test_an_output_may_share_no_memory() -> None:
    buffer = torch.zeros(8)
    with pytest.raises(ContractError, match=r"output_ptr: expected separate memory from input_ptr"):
        checked("expand_batch_to_tokens", **expand(buffer[:3], buffer[2:4]))
    with pytest.raises(ContractError, match=r"separate memory from input_ptr"):
        checked("expand_batch_to_tokens", **expand(buffer.numpy()[4:1:-1], buffer.numpy()[1:3]))
    with pytest.raises(ContractError, match=r"separate memory from input_ptr, got the same memory"):
        checked("expand_batch_to_tokens", **expand(buffer[:2], buffer[:2], torch.tensor([1, 2])))


def test_interleaved_and_adjacent_views_are_apart() -> None:
    buffer = np.zeros(8, np.float32)
    checked("expand_batch_to_tokens", **expand(buffer[::2][:3], buffer[1::2][:2]))
    checked("expand_batch_to_tokens", **expand(torch.zeros(8)[:3], torch.zeros(8)[3:5]))
    checked("expand_batch_to_tokens", **expand(buffer[:3], buffer[3:5]))


def test_inputs_may_share_memory() -> None:
    probs = torch.rand(TOKENS, VOCAB)
    checked(**arguments(draft_probs_ptr=probs, target_probs_ptr=probs))


def test_an_output_with_two_names_for_one_element_is_refused() -> None:
    one = torch.zeros(1, dtype=torch.int32).expand(REQUESTS, MOST + 1)
    with pytest.raises(ContractError, match="separate memory for every element"):
        checked(**arguments(output_token_ids_ptr=one))
    windows = torch.zeros(64, dtype=torch.int32).as_strided((REQUESTS, MOST + 1), (2, 1))
    with pytest.raises(ContractError, match="separate memory for every element"):
        checked(**arguments(output_token_ids_ptr=windows))
    crossed = torch.zeros(64, dtype=torch.int32).as_strided((REQUESTS, MOST + 1), (5, 3))
    checked(**arguments(output_token_ids_ptr=crossed))


def test_a_read_only_output_is_refused() -> None:
    output = np.zeros(3, np.float32)
    output.flags.writeable = False
    with pytest.raises(ContractError, match=r"output_ptr: expected memory that may be written"):
        checked("expand_batch_to_tokens", **expand(output, np.zeros(2, np.float32)))
    values = np.zeros(2, np.float32)
    values.flags.writeable = False
    checked("expand_batch_to_tokens", **expand(np.zeros(3, np.float32), values))


# Relations that single ops have


def test_dtypes_that_must_agree() -> None:
    with pytest.raises(ContractError, match=r"input_ptr: expected the dtype of output_ptr, float32, got int32"):
        checked("expand_batch_to_tokens", **expand(torch.zeros(3), torch.zeros(2, dtype=torch.int32)))


@pytest.mark.parametrize(("dtype", "value"), [(torch.int32, 0.5), (torch.int32, 2**31), (torch.bool, 2)])
def test_a_value_must_fit_the_integers_it_becomes(dtype: torch.dtype, value: float) -> None:
    call = expand(torch.zeros(3, dtype=dtype), torch.zeros(2, dtype=dtype), replace_to=value)
    with pytest.raises(ContractError, match="replace_to: expected a value that"):
        checked("expand_batch_to_tokens", **call)
    checked("expand_batch_to_tokens", **{**call, "replace_to": 1})


def step(**changes: Any) -> dict[str, Any]:
    positions = torch.arange(3)
    return {
        "positions_ptr": positions,
        "block_table_ptr": torch.zeros(3, 4, dtype=torch.int32),
        "block_table_stride": 4,
        "seq_lens_ptr": torch.ones(3, dtype=torch.int32),
        "out_clamped_positions_ptr": positions,
        "out_slot_mapping_ptr": torch.zeros(5, dtype=torch.int64),
        "block_size": 16,
        "max_model_len": 64,
        "n_blocks_per_req": 4,
        "PAD_ID": -1,
        "batch_size": 3,
        **changes,
    }


def test_positions_may_be_advanced_in_place_but_not_beside() -> None:
    checked("eagle_step_slot_mapping_metadata", **step())
    buffer = torch.arange(4)
    beside = step(positions_ptr=buffer[:3], out_clamped_positions_ptr=buffer[1:])
    with pytest.raises(ContractError, match=r"separate memory from positions_ptr, got memory that both share"):
        checked("eagle_step_slot_mapping_metadata", **beside)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"block_table_stride": 3}, "expected 4, the first stride of block_table_ptr in elements, got 3"),
        ({"n_blocks_per_req": 5}, r"block_table_ptr: expected shape \[>=B, >=n_blocks_per_req\] = \[>=3, >=5\]"),
        ({"out_slot_mapping_ptr": torch.zeros(2, dtype=torch.int64)}, r"\[>=B\] = \[>=3\] \(B is 3 from batch_size\)"),
    ],
)
def test_buffers_strides_and_sizes(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ContractError, match=says):
        checked("eagle_step_slot_mapping_metadata", **step(**changes))


def test_values_between_row_starts() -> None:
    n, b, p = 6, 2, 1
    slots = {f"out_{s}_ptr": torch.zeros(n, dtype=torch.int32) for s in ("input_ids", "positions")}
    masks = {f"out_is_{s}_token_mask_ptr": torch.zeros(n, dtype=torch.bool) for s in ("rejected", "masked")}
    call = {
        "target_token_ids_ptr": torch.zeros(n, dtype=torch.int32),
        "target_positions_ptr": torch.zeros(n, dtype=torch.int64),
        "next_token_ids_ptr": torch.zeros(b, dtype=torch.int32),
        **slots,
        **masks,
        "out_new_token_indices_ptr": torch.zeros(b * p, dtype=torch.int32),
        "out_hidden_state_mapping_ptr": torch.zeros(n, dtype=torch.int32),
        "query_start_loc_ptr": torch.tensor([0, 2, 6]),
        "query_end_loc_ptr": torch.tensor([1, 5]),
        "padding_token_id": 0,
        "parallel_drafting_token_id": 0,
        "total_input_tokens": n,
        "num_padding_slots_per_request": p,
        "shift_input_ids": True,
        "BLOCK_SIZE_TOKENS": 16,
    }
    checked("copy_and_expand_eagle_inputs", **call)
    with pytest.raises(ContractError, match=r"query_end_loc_ptr: expected a value from 2 to 5 at \[1\].*, got 1"):
        checked("copy_and_expand_eagle_inputs", **{**call, "query_end_loc_ptr": torch.tensor([1, 1])})
    with pytest.raises(ContractError, match=r"expected a value from 0 to 1 at \[0\].*, got 2"):
        checked("copy_and_expand_eagle_inputs", **{**call, "query_end_loc_ptr": torch.tensor([2, 5])})
    with pytest.raises(ContractError, match=r"out_input_ids_ptr: expected shape .* = \[>=8\]"):
        checked("copy_and_expand_eagle_inputs", **{**call, "shift_input_ids": False})


def test_a_size_that_equals_another() -> None:
    b, drafts, n = 2, 3, 5
    queries = {f"out_{s}_ptr": torch.zeros(8, dtype=torch.int32) for s in ("input_ids", "query_positions")}
    contexts = {f"out_context_{s}_ptr": torch.zeros(n, dtype=torch.int64) for s in ("positions", "slot_mapping")}
    call = {
        "next_token_ids_ptr": torch.zeros(b, dtype=torch.int32),
        "target_positions_ptr": torch.arange(n),
        **queries,
        **contexts,
        "out_query_slot_mapping_ptr": torch.zeros(8, dtype=torch.int64),
        "out_token_indices_ptr": torch.zeros(b * drafts, dtype=torch.int32),
        "block_table_ptr": torch.zeros(b, 4, dtype=torch.int32),
        "block_table_stride": 4,
        "query_start_loc_ptr": torch.tensor([0, 2, 5]),
        "num_rejected_tokens_ptr": None,
        "parallel_drafting_token_id": 0,
        "block_size": 16,
        "num_query_per_req": 4,
        "num_speculative_tokens": drafts,
        "total_input_tokens": n,
    }
    checked("copy_and_expand_dflash_inputs", **call)
    with pytest.raises(ContractError, match=r"num_query_per_req: expected 4, num_speculative_tokens\+1, got 3"):
        checked("copy_and_expand_dflash_inputs", **{**call, "num_query_per_req": 3})
    with pytest.raises(ContractError, match=r"num_rejected_tokens_ptr: expected a tensor with HAS_NUM_REJECTED=True"):
        checked("copy_and_expand_dflash_inputs", **call, HAS_NUM_REJECTED=True)


def test_a_size_bounded_by_another() -> None:
    call = {
        "num_tokens": 4,
        "max_num_tokens": 3,
        "query_start_loc_ptr": torch.tensor([0, 4]),
        "positions_ptr": torch.arange(4),
        "block_table_ptr": torch.zeros(1, 2, dtype=torch.int32),
        "block_table_stride": 2,
        "slot_mapping_ptr": torch.zeros(9, dtype=torch.int64),
        "KV_CACHE_BLOCK_SIZE": 4,
        "TOTAL_CP_WORLD_SIZE": 1,
        "TOTAL_CP_RANK": 0,
        "CP_KV_CACHE_INTERLEAVE_SIZE": 1,
        "PAD_ID": -1,
    }
    with pytest.raises(ContractError, match=r"max_num_tokens: expected at least 4, the scheduled tokens, got 3"):
        checked("compute_slot_mapping", **call)
    checked("compute_slot_mapping", **{**call, "max_num_tokens": 9})


def test_devices_agree_where_none_is_asked_for() -> None:
    with pytest.raises(ContractError, match="expected a tensor on cpu, got one on meta"):
        checked("rejection_random_sample", "", **arguments(target_probs_ptr=torch.rand(TOKENS, VOCAB, device="meta")))


def test_neither_torch_nor_numpy_is_imported_to_check() -> None:
    script = (
        "import sys, verispec.reference.contracts._check as c, verispec.reference.contracts as k\n"
        "try: c.check(k.load('expand_batch_to_tokens'), dict.fromkeys(['replace_from', 'replace_to'], 0.0)"
        " | {'MAX_NUM_TOKENS': 1, 'output_ptr': 1})\n"
        "except c.ContractError as e: print(e)\n"
        "print({'torch', 'numpy'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "output_ptr: expected a strided torch tensor" in result.stdout
    assert result.stdout.endswith("set()\n")


EXPAND = load("expand_batch_to_tokens")


class TestLayoutsThatAreKnown:
    """A layout that passed is not checked again; values and addresses always are."""

    ARGUMENTS: ClassVar = {"replace_from": 0, "replace_to": 1, "MAX_NUM_TOKENS": 4}

    def call(self, **changes: Any) -> None:
        counts = np.array([2, 5], dtype=np.int32)
        tensors = {"output_ptr": np.zeros(5, np.int32), "input_ptr": np.arange(2, dtype=np.int32)}
        check(EXPAND, bind(EXPAND, (), tensors | {"cu_num_tokens_ptr": counts} | self.ARGUMENTS | changes), "cpu")

    def test_values_are_looked_at_each_time(self) -> None:
        self.call()
        with pytest.raises(ContractError, match="cu_num_tokens_ptr: expected sums that never decrease"):
            self.call(cu_num_tokens_ptr=np.array([2, 1], dtype=np.int32))

    def test_addresses_are_looked_at_each_time(self) -> None:
        self.call()
        buffer = np.zeros(6, np.int32)
        with pytest.raises(ContractError, match="output_ptr: expected separate memory"):
            self.call(output_ptr=buffer[:5], input_ptr=buffer[4:])

    def test_a_read_only_array_is_not_one_that_may_be_written(self) -> None:
        self.call()
        output = np.zeros(5, np.int32)
        output.setflags(write=False)
        with pytest.raises(ContractError, match="output_ptr: expected memory that may be written"):
            self.call(output_ptr=output)

    @pytest.mark.parametrize(("number", "equal"), [(3, 3.0), (1, True), (3, np.float64(3))])
    def test_what_equals_a_number_is_none(self, number: int, equal: object) -> None:
        counts, output = np.array([1, 2], dtype=np.int32), np.zeros(2, np.int32)
        self.call(cu_num_tokens_ptr=counts, output_ptr=output, MAX_NUM_TOKENS=number)
        with pytest.raises(ContractError, match="MAX_NUM_TOKENS: expected an int"):
            self.call(cu_num_tokens_ptr=counts, output_ptr=output, MAX_NUM_TOKENS=equal)

    def test_a_number_in_a_tensor_is_read_each_time(self) -> None:
        most = torch.tensor(4)
        self.call(MAX_NUM_TOKENS=most)
        most.fill_(2)
        with pytest.raises(ContractError, match="cu_num_tokens_ptr: expected steps of at most 2"):
            self.call(MAX_NUM_TOKENS=most)

    @pytest.mark.parametrize("value", [[0, 1], "ab", 0])
    def test_what_is_no_tensor_is_not_an_absent_one(self, value: object) -> None:
        absent = arguments(draft_probs_ptr=None, NO_DRAFT_PROBS=True)
        checked(**absent)
        with pytest.raises(ContractError, match="draft_probs_ptr: expected a strided torch tensor"):
            checked(**absent | {"draft_probs_ptr": value})

    def test_another_device_is_looked_at(self) -> None:
        checked(**arguments())
        with pytest.raises(ContractError, match="a tensor on cuda"):
            checked("rejection_random_sample", "cuda", **arguments())

    @pytest.mark.parametrize(
        "change",
        [
            {"output_ptr": np.zeros(4, np.int32)},
            {"output_ptr": np.zeros(5, np.int64)},
            {"output_ptr": np.zeros((5, 2), np.int32)},
            {"output_ptr": np.lib.stride_tricks.as_strided(np.zeros(5, np.int32), (5,), (0,))},
            {"MAX_NUM_TOKENS": 2},
        ],
        ids=["shape", "dtype", "rank", "strides", "scalar"],
    )
    def test_another_layout_is_looked_at(self, change: dict[str, Any]) -> None:
        self.call()
        with pytest.raises(ContractError):
            self.call(**change)

    def test_there_is_an_end_to_what_is_known(self) -> None:
        for most in range(1, 400):
            self.call(MAX_NUM_TOKENS=3 + most)
        assert len(plan_of(EXPAND).known) <= 256


def a_cache_without_its_steps() -> dict[str, Any]:
    """Arguments of gumbel_sample for one row, with a cache of two steps and none of the row's."""
    return {
        "sampled": torch.zeros(1, dtype=torch.int64),
        "logits": torch.zeros(1, VOCAB),
        "expanded_idx_mapping": torch.zeros(1, dtype=torch.int32),
        "temperature": torch.ones(1),
        "seed": torch.zeros(1, dtype=torch.int64),
        "pos": torch.zeros(1, dtype=torch.int64),
        "apply_temperature": True,
        "is_drafting": True,
        "logits_cache": torch.zeros(1, 2, VOCAB),
        "logits_cache_col": None,
    }


def test_a_cache_of_logits_without_the_steps_of_its_rows_is_refused() -> None:
    """The logits have no place in the cache: vLLM's kernel cannot be compiled for such a call."""
    call = a_cache_without_its_steps()
    with pytest.raises(ContractError, match=r"logits_cache_col: expected a tensor with logits_cache, got None$"):
        checked("gumbel_sample", **call)
    with pytest.raises(ContractError, match="logits_cache_col"):
        cpu.op("gumbel_sample")(**call)
    with pytest.raises(ValueError, match="logits_cache_col"):
        oracle.load("gumbel_sample")(**numpy_of(call))
    for step in (None, torch.ones(1, dtype=torch.int32)):
        checked("gumbel_sample", **call | {"logits_cache": None, "logits_cache_col": step})
    cpu.op("gumbel_sample")(**call | {"logits_cache_col": torch.ones(1, dtype=torch.int32)})
    with pytest.raises(ContractError, match="logits_cache_col"):
        cpu.op("gumbel_sample")(**call)
