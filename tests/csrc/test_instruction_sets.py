"""The fused kernels give the same tokens on every instruction set and with any number of threads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from verispec.cases.request_state import random_requests
from verispec.reference import contracts, cpu, oracle

CALL = """
import json, sys
import torch
sys.path.insert(0, {folder!r})
from test_instruction_sets import outcome
torch.set_num_threads(int(sys.argv[1]))
print(json.dumps([outcome(op, limited, requests) for op, limited, requests in {cases}]))
"""
OPS = ("verify_greedy", "verify_one_hot", "verify_draft_logits")
CASES = [(op, limited, requests) for op in OPS for limited in (False, True) for requests in (1, 9)]


def outcome(op: str, limited: bool, requests: int) -> Any:
    """The outputs of one call over flat rows, whose boundaries lie close together."""
    rng = np.random.default_rng(requests)
    batch = random_requests(rng, [3] * requests, 70_001, temperature=None)
    batch.target_logits *= 0.3
    contract = contracts.load(op)
    given = batch.arguments(contract)
    if limited and op != "verify_greedy":
        states = len(batch.temperature)
        given |= {"top_k": np.resize([0, 5000], states), "top_p": np.resize([0.9, 1.0, 0.5], states)}
    call = {
        t.name: torch.from_numpy(np.ascontiguousarray(given[t.name])).to(getattr(torch, t.production))
        for t in contract.tensors
        if given.get(t.name) is not None
    }
    shape = (requests, batch.columns)
    outputs = {t.name: torch.zeros(shape[: len(t.shape)], dtype=torch.int64) for t in contract.outputs}
    cpu.op(op)(**call, **outputs)
    return {name: tensor.tolist() for name, tensor in outputs.items()}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_instruction_set_gives_the_same(case: tuple[str, bool, int], instruction_sets: list[str]) -> None:
    assert instruction_sets[-1] == "baseline"
    results = []
    for name in instruction_sets:
        cpu._kernels.use_instruction_set(name)
        results.append(outcome(*case))
    assert all(result == results[0] for result in results)


def test_every_number_of_threads_gives_the_same() -> None:
    code = CALL.format(folder=str(Path(__file__).parent), cases=CASES)
    results = []
    for threads in (1, 2, 3):
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        command = [sys.executable, "-c", code, str(threads)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        results.append(json.loads(done.stdout))
    assert results[0] == results[1] == results[2]


def lowered(rows: np.ndarray[Any, Any]) -> None:
    """Leave no logit in the first sub-blocks, whose maximum a scan takes for its base."""
    rows[..., np.arange(rows.shape[-1]) % 1024 < 200] = -np.inf


def hidden(rows: np.ndarray[Any, Any]) -> None:
    rows[..., np.arange(rows.shape[-1]) % 1024 < 200] = np.nan


def lifted(rows: np.ndarray[Any, Any]) -> None:
    """Raise a few logits so far above the first ones that no float32 holds their weights relative to them."""
    rows[..., 900::1024] += 300


def infinite(rows: np.ndarray[Any, Any]) -> None:
    rows[..., 5000::9000] = np.inf


def deep(rows: np.ndarray[Any, Any]) -> None:
    """Move all logits down to where no float32 is 2^120 times lighter, and mask half of them."""
    rows[:] = -3.4e38 + rows * 2e34
    rows[..., ::2] = -np.inf


@pytest.mark.parametrize("op", ["verify_one_hot", "verify_draft_logits"])
@pytest.mark.parametrize("temperature", [1.0, 1e-6, 1e35])
@pytest.mark.parametrize("change", [lowered, hidden, lifted, infinite, deep])
def test_rows_that_a_scan_reads_again(
    change: Callable[[Any], None], temperature: float, op: str, instruction_sets: list[str]
) -> None:
    """The base of most blocks comes from their first logits, and large products have no integer power of two."""
    batch = random_requests(np.random.default_rng(5), [2] * 8, 32_845, temperature=1.0)
    batch.target_logits *= 0.3
    batch.temperature[:] = temperature
    change(batch.target_logits)
    states = len(batch.temperature)
    limits = {"top_k": np.resize([0, 0, 40, 40], states), "top_p": np.resize([0.9, 1.0, 0.9, 1.0], states)}
    for name in instruction_sets:
        cpu._kernels.use_instruction_set(name)
        assert_as_the_oracle(op, batch, limits)


def test_a_draft_below_the_largest_logits_that_all_lie_apart() -> None:
    """With k maxima in k sub-blocks, as many logits are listed as are kept; all others are dropped all the same."""
    batch = random_requests(np.random.default_rng(6), [1] * 6, 32_845, temperature=1.0)
    places = np.arange(20) * 1024
    batch.target_logits[:] = np.minimum(batch.target_logits, 2)
    batch.target_logits[:, places] = 10
    batch.draft_sampled[:] = 5
    assert batch.draft_logits is not None
    batch.draft_logits[:] = -10
    assert_as_the_oracle("verify_draft_logits", batch, {"top_k": np.full(len(batch.temperature), 20)})


def assert_as_the_oracle(op: str, batch: Any, limits: dict[str, Any]) -> None:
    requests = len(batch.idx_mapping)
    contract = contracts.load(op)
    given = batch.arguments(contract) | limits
    inputs = {
        t.name: np.ascontiguousarray(given[t.name], t.production)
        for t in contract.tensors
        if given.get(t.name) is not None
    }
    outputs = {t.name: np.zeros((requests, batch.columns)[: len(t.shape)], dtype=np.int64) for t in contract.outputs}
    expected = oracle.load(op)(**inputs, **{name: array.copy() for name, array in outputs.items()})
    cpu.op(op)(**inputs, **outputs)
    for name, want in expected.items():
        np.testing.assert_array_equal(outputs[name], want, err_msg=name)
