"""Engine ``vllm-ascend:triton@SOURCE``: what its kernels are launched with, and the NPU's language in plain Triton.

The kernels themselves have the tox environment vllm-ascend.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from verispec.engines import UnsupportedCall
from verispec.engines.adapters import vllm_ascend_triton as ascend

pytest.importorskip("triton")


class Kernel:
    """A kernel that keeps the grid and the arguments it is launched with."""

    def __init__(self, fn: Callable[..., None]) -> None:
        self.fn, self.seen = fn, list[tuple[Any, dict[str, Any]]]()

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return lambda **given: self.seen.append((grid, given))


def older(uniform_probs_ptr: Any, vec_len: Any, vocab_size: Any, BLOCK_SIZE: Any) -> None: ...


def newer(uniform_probs_ptr: Any, global_vocab_size: Any, ENTROPY_VERIFY: Any, EPSILON: Any = 1e-10) -> None: ...


def later(uniform_probs_ptr: Any, temperature_ptr: Any) -> None: ...


def recovering(q_ptr: Any, PADDED_VOCAB_SIZE: Any, SUB_BLOCK: Any) -> None: ...


def launched(
    fn: Callable[..., None], op: str = "rejection_random_sample", **changed: Any
) -> tuple[Any, dict[str, Any]]:
    kernel = Kernel(fn)
    module = SimpleNamespace(
        rejection_random_sample_kernel=kernel,
        sample_recovered_tokens_kernel=kernel,
        cal_grid_and_block_size=lambda requests: (requests, 1),
    )
    given = {
        "cu_num_draft_tokens_ptr": torch.tensor([2, 2, 5], dtype=torch.int32),
        "uniform_probs_ptr": torch.rand(5, dtype=torch.float64),
        "inv_q_ptr": torch.tensor([[4.0]]),
        "vocab_size": 100,
    }
    # Without the context of Triton's own failures, whose module patches the interpreter of this process.
    ascend._CALLS[op](module, given)
    ((grid, arguments),) = kernel.seen
    return grid, arguments


def test_a_kernel_gets_what_its_release_takes() -> None:
    grid, given = launched(older)
    assert (grid, given["vec_len"], given["vocab_size"], given["BLOCK_SIZE"]) == ((3,), 3, 100, 1)
    assert given["uniform_probs_ptr"].dtype == torch.float32
    grid, given = launched(newer)
    assert set(given) == {"uniform_probs_ptr", "global_vocab_size", "ENTROPY_VERIFY"}
    assert (given["global_vocab_size"], given["ENTROPY_VERIFY"]) == (100, False)


def test_a_kernel_with_another_parameter_is_refused() -> None:
    with pytest.raises(UnsupportedCall, match="temperature_ptr"):
        launched(later)


def test_recovered_tokens_divide_by_noise_over_all_positions() -> None:
    grid, given = launched(recovering, "sample_recovered_tokens")
    assert grid == (3, 3)
    assert (given["q_ptr"].item(), given["PADDED_VOCAB_SIZE"]) == (0.25, 128)


def test_what_the_interpreter_cannot_do_in_time_is_refused() -> None:
    call = partial(ascend._interpreted, lambda kernels, given: pytest.fail("it ran"), None)
    with pytest.raises(UnsupportedCall, match="minutes"):
        call(cu_num_draft_tokens_ptr=range(10_001))
    with pytest.raises(UnsupportedCall, match="SYNTHETIC_MODE"):
        call(cu_num_draft_tokens_ptr=range(3), SYNTHETIC_MODE=True)


def test_an_element_of_a_vector_is_taken_alone() -> None:
    script = Path(__file__).with_name("npu_elements.py")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[-inf, 0.5, 3.25, inf, 0.0, 0.0, 1.0, 1.0]"
