"""Fused models with Triton kernels compute what transformers computes, in the interpreter and on a GPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from fused_gpu_checks import (
    LONG,
    SHORT,
    check_attention,
    check_head,
    check_linear,
    check_model,
    check_outside_of_the_cache,
    eagle3_head,
    mtp_head,
)
from fused_models import BLOCK, KINDS

PROGRAM = Path(__file__).with_name("fused_gpu_checks.py")
MANY = (3, 1100, 21)
"""More rows than small tiles are for."""
PROJECTIONS = [
    *((rows, 512, 256) for rows in (0, 1, 3, 5, 8, 9, 16, 33, 128, 129, 700, 1030)),
    *((rows, 2048, 520) for rows in (1, 4, 6, 30, 64, 200)),
    *((rows, 4100, 2048) for rows in (1, 5, 32, 33, 140)),
]
"""Rows, outputs and width on both sides of each bound between kernels and tiles."""

SEQUENCES = [
    *(((length,), new) for length in (5, 64, 65, 129, 500, 1025, 4000) for new in (1, 5)),
    *(((700, 9, 256, 3, 90) * 3, new) for new in (1, 3, 20)),
    ((300, 40) * 64, 2),
]
"""Lengths and new tokens of sequences on both sides of each number of programs that share their keys."""


def test_in_the_interpreter() -> None:
    """One process runs all checks: Triton asks for its interpreter once."""
    done = subprocess.run([sys.executable, PROGRAM], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.gpu
@pytest.mark.parametrize("lengths", [SHORT, LONG, MANY])
@pytest.mark.parametrize("name", KINDS)
def test_a_model_on_a_gpu(name: str, lengths: tuple[int, ...]) -> None:
    with torch.inference_mode():
        check_model(*KINDS[name], lengths, 2, torch.device("cuda"))


@pytest.mark.gpu
def test_heads_and_the_cache_on_a_gpu() -> None:
    device = torch.device("cuda")
    with torch.inference_mode():
        for head in (eagle3_head(False, device), eagle3_head(True, device), mtp_head(device)):
            check_head(head, device)
        check_outside_of_the_cache(device)


@pytest.mark.gpu
@pytest.mark.parametrize(("rows", "outputs", "width"), PROJECTIONS)
def test_a_projection_on_a_gpu(rows: int, outputs: int, width: int) -> None:
    check_linear(rows, outputs, width, torch.device("cuda"))


@pytest.mark.gpu
@pytest.mark.parametrize("heads", [(4, 2, 64), (32, 8, 64), (16, 4, 128), (6, 3, 20)], ids=str)
@pytest.mark.parametrize(("lengths", "new"), SEQUENCES, ids=lambda value: str(value)[:20])
def test_attention_on_a_gpu(heads: tuple[int, int, int], lengths: tuple[int, ...], new: int) -> None:
    lengths = tuple(max(length, new) for length in lengths)
    columns = -(-max(lengths) // BLOCK)
    check_attention(lengths, new, heads, columns, torch.device("cuda"))
