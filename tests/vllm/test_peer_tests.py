"""vLLM's own rejection sampler tests pass with the reference's kernels instead of vLLM's."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.vllm

TOOLS = Path(__file__).parents[2] / "tools"


def outcome(kernels: str) -> dict[str, int]:
    """Return how many tests ended how, by pytest's last line."""
    command = [sys.executable, "-m", "peer_tests", "--kernels", kernels, "-q", "--tb=no"]
    done = subprocess.run(command, cwd=TOOLS, capture_output=True, text=True, check=False)
    last = done.stdout.strip().rpartition("\n")[2]
    return {word: int(count) for count, word in re.findall(r"(\d+) (passed|failed|errors?|skipped)", last)}


def test_all_pass_with_the_references_kernels() -> None:
    assert outcome("reference") == {"passed": 75}


def test_vllms_own_kernels_fail_some() -> None:
    """The baseline: without the substitution vLLM's kernels run, which have no synthetic mode on the CPU."""
    own = outcome("vllm")
    assert own["passed"] + own["failed"] == 75
    assert own["failed"] >= 4
