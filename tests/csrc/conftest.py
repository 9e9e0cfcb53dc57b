"""Make the modules of this folder importable by name, and the cases of every op; select instruction sets."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from verispec.reference import cpu

sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1] / "triton"))


@pytest.fixture
def instruction_sets() -> Iterator[list[str]]:
    """Names of the instruction sets; after the test the one before it is selected again."""
    names: list[str] = cpu._kernels.instruction_sets()
    before = cpu._kernels.use_instruction_set(names[0])
    cpu._kernels.use_instruction_set(before)
    yield names
    cpu._kernels.use_instruction_set(before)
