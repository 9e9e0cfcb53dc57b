"""Contracts name callers that the installed vLLM has, and the adapter knows the places of kernels and callers."""

from __future__ import annotations

from pathlib import Path

import pytest

from verispec.engines.adapters.vllm.installed.engine import Vllm
from verispec.engines.protocol.source_places import CALLER, CODE, KERNEL, SHARED, place_of_line
from verispec.reference import contracts

pytestmark = pytest.mark.vllm
OPS = [name for name in contracts.names() if contracts.load(name).caller]


@pytest.fixture(scope="module")
def vllm() -> Vllm:
    return Vllm()


@pytest.mark.parametrize("op", OPS)
def test_kernel_and_caller_are_lines_of_vllm(vllm: Vllm, op: str) -> None:
    """The caller's line defines the function that the contract names."""
    import vllm as package

    root = Path(str(package.__file__)).parents[1]
    places = vllm.places(op)
    for place in (places[KERNEL], places[CALLER]):
        file, _, line = place.rpartition(":")
        assert file.startswith("vllm/")
        assert int(line) <= len((root / file).read_text().splitlines())
    file, _, line = places[CALLER].rpartition(":")
    name = contracts.load(op).caller.rpartition(".")[2]
    assert (root / file).read_text().splitlines()[int(line) - 1].strip().startswith(f"def {name}(")


ORIGINS = [clause for name in contracts.names() for clause in contracts.load(name).clauses if clause.origin]


@pytest.mark.parametrize("clause", ORIGINS, ids=lambda clause: clause.id)
def test_the_line_of_a_trigger_is_one_of_vllm(vllm: Vllm, clause: contracts.Clause) -> None:
    import vllm as package

    assert clause.origin
    file, _, line = place_of_line(clause.origin).rpartition(":")
    source = (Path(str(package.__file__)).parents[1] / file).read_text().splitlines()
    assert clause.origin.line in source[int(line) - 1]


def test_a_kernel_of_a_platform_is_told_from_shared_code(vllm: Vllm) -> None:
    assert vllm.places("expand_batch_to_tokens")[CODE] == "CPU code"
    assert vllm.places("apply_top_k_top_p")[CODE] == SHARED
