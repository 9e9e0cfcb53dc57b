"""Promises of the CPU kernels beyond their clauses: 64-bit offsets, no GIL, no torch, calls as engines make them."""

from __future__ import annotations

import mmap
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest
import torch

from verispec.reference import contracts, cpu

FAR = 2**30 + 64
"""A row stride with which the third row begins past 2^31 elements."""


def far_rows(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Three rows that far apart, in memory that is never touched in between."""
    size = (2 * FAR + rows.shape[1]) * rows.itemsize
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0))
    base = np.frombuffer(memory, rows.dtype)
    view = np.lib.stride_tricks.as_strided(base, rows.shape, (FAR * rows.itemsize, rows.itemsize), writeable=True)
    view[:] = rows
    return view


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(11)


def test_recovered_tokens_past_2_to_the_31(rng: np.random.Generator) -> None:
    p, q = rng.random((2, 3, 9), np.float32)
    noise = rng.exponential(size=(3, 9))
    near, far = np.full((2, 3), -1, np.int32)
    counts, drafts = np.array([1, 2, 3]), np.zeros(3, np.int32)
    op = cpu.op("sample_recovered_tokens")
    op(near, counts, drafts, q, p, noise, 9, 64, False, True)
    op(far, counts, drafts, far_rows(q), far_rows(p), far_rows(noise), 9, 64, False, True)
    np.testing.assert_array_equal(far, near)


@pytest.mark.parametrize("one_hot", [False, True])
def test_recovered_tokens_of_columns(rng: np.random.Generator, one_hot: bool) -> None:
    """vLLM's own tests pass draft ids, and so the output, as [N, 1]."""
    p, q = rng.random((2, 3, 9), np.float32)
    noise, counts, drafts = rng.exponential(size=(2, 9)), np.array([1, 3]), np.array([4, 0, 8], np.int32)
    flat, column = np.full(3, -1, np.int32), np.full((3, 1), -1, np.int32)
    op = cpu.op("sample_recovered_tokens")
    q = None if one_hot else q
    op(flat, counts, drafts, q, p, noise, 9, 64, one_hot, True)
    op(column, counts, drafts[:, None], q, p, noise, 9, 64, one_hot, True)
    np.testing.assert_array_equal(column[:, 0], flat)
    assert (flat >= 0).all()


def test_acceptance_past_2_to_the_31(rng: np.random.Generator) -> None:
    """Each row accepts a token that the rows before it would reject."""
    p = np.eye(3, 9, dtype=np.float32)
    output = far_rows(np.full((3, 2), -1, np.int32))
    ids = np.array([0, 1, 2])
    cpu.op("rejection_random_sample")(
        output, np.array([1, 2, 3]), ids, far_rows(p), far_rows(p), np.array([[5], [6], [7]]), np.full(3, 8),
        np.full(3, 0.5), np.zeros(3, bool), 1, 9, None, False, False,
    )  # fmt: skip
    np.testing.assert_array_equal(output, [[0, 5], [1, 6], [2, 7]])


def test_a_block_table_past_2_to_the_31() -> None:
    table = far_rows(np.array([[1, 2], [3, 4], [5, 6]], np.int32))
    slots = np.zeros(3, np.int64)
    positions = np.array([3, 5, 6])
    counts = np.array([0, 1, 2, 3])
    cpu.op("compute_slot_mapping")(3, 3, counts, positions, table, FAR, slots, 4, 1, 0, 1, -1, 64)
    np.testing.assert_array_equal(slots, [1 * 4 + 3, 4 * 4 + 1, 6 * 4 + 2])


@pytest.mark.parametrize("vocab", [1, 15, 16, 17, 1023, 1024, 1025, 8193])
@pytest.mark.parametrize("noise", [np.float32, np.float64])
def test_a_winner_at_every_place_of_a_tile(vocab: int, noise: type) -> None:
    """Tiles and vector widths have edges: one token with mass wins wherever it stands, first or last."""
    places = np.unique([0, vocab // 2, vocab - 2, vocab - 1])
    places = places[places >= 0]
    p = np.zeros((len(places), vocab), np.float32)
    p[np.arange(len(places)), places] = 0.5
    output = np.full(len(places), -1)
    counts, drafts = np.array([len(places)]), np.full(len(places), -1)
    ones = np.ones((1, vocab), noise)
    cpu.op("sample_recovered_tokens")(output, counts, drafts, None, p, ones, vocab, 64, True, noise == np.float64)
    np.testing.assert_array_equal(output, places)


def test_threads_agree(rng: np.random.Generator) -> None:
    """Enough work for several threads gives what each request gives alone."""
    requests, vocab = 16, 30_001
    p, q = rng.random((2, requests, vocab), np.float32)
    noise = rng.exponential(size=(requests, vocab)).astype(np.float32)
    drafts = np.zeros(requests, np.int32)
    together, alone = np.full((2, requests), -1, np.int32)
    op = cpu.op("sample_recovered_tokens")
    op(together, np.arange(1, requests + 1), drafts, q, p, noise, vocab, 64, False, False)
    for b in range(requests):
        row = slice(b, b + 1)
        op(alone[row], np.array([1]), drafts[row], q[row], p[row], noise[row], vocab, 64, False, False)
    np.testing.assert_array_equal(together, alone)


def test_the_gil_is_released() -> None:
    """Another thread runs in the middle of a long kernel, away from the moments of its start and its end."""
    rows, vocab = 512, 100_003
    p = np.broadcast_to(np.full(vocab, 0.5, np.float32), (rows, vocab))
    output, times = np.zeros(rows, np.int64), []
    started = threading.Event()

    def work() -> None:
        started.set()
        times.append(time.monotonic())
        cpu.op("sample_recovered_tokens")(
            output, np.array([rows]), np.full(rows, -1), None, p, p[:1], vocab, 64, True, False
        )
        times.append(time.monotonic())

    thread = threading.Thread(target=work)
    thread.start()
    started.wait()
    ticks = []
    while thread.is_alive():
        ticks.append(time.monotonic())
        time.sleep(0)
    begin, end = times
    assert any(begin + 0.2 * (end - begin) < tick < begin + 0.8 * (end - begin) for tick in ticks)


def test_outputs_are_written_in_place_for_every_dtype() -> None:
    for dtype in contracts.load("expand_batch_to_tokens").param("output_ptr").dtypes:  # type: ignore[union-attr]
        output = torch.zeros(5, dtype=getattr(torch, dtype))
        values = torch.tensor([1, 0, 1]).to(output.dtype)
        cpu.op("expand_batch_to_tokens")(output, values, torch.tensor([2, 3, 5], dtype=torch.int32), 7, 1, 128)
        assert output.tolist() == torch.tensor([1, 1, 0, 1, 1]).to(output.dtype).tolist(), dtype


def test_a_refused_call_writes_nothing() -> None:
    output = torch.full((5,), -7.0)
    with pytest.raises(cpu.ContractError):
        cpu.op("expand_batch_to_tokens")(output, torch.ones(2), torch.tensor([3, 2]), 0, 1, 128)
    assert output.tolist() == [-7.0] * 5


def test_an_op_without_a_kernel_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="no op 'nothing'"):
        cpu.op("nothing")
    with pytest.raises(KeyError, match="no CPU kernel for 'acceptance_length_to_rates'"):
        cpu.op("acceptance_length_to_rates")


def test_kernels_need_no_torch_and_leave_the_environment_alone() -> None:
    script = (
        "import os, sys\n"
        "before = dict(os.environ)\n"
        "import numpy as np\n"
        "from verispec.reference import cpu\n"
        "out = np.zeros(3, np.float32)\n"
        "cpu.op('expand_batch_to_tokens')(out, np.array([.7, 2], np.float32), np.array([1, 3]), 2, 1, 128)\n"
        "print(out.tolist(), 'torch' in sys.modules, before == dict(os.environ))"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout == "[0.699999988079071, 1.0, 1.0] False True\n"
