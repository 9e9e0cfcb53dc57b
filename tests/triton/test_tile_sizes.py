"""Tile sizes that the Triton kernels report."""

import pytest

from verispec.reference import triton


@pytest.mark.parametrize(
    ("op", "size"),
    [("sample_recovered_tokens", 2048), ("apply_top_k_top_p", 4096), ("verify_greedy", 256), ("gumbel_sample", 1024)],
)
def test_own_and_shared_tiles_are_reported(op: str, size: int) -> None:
    """A module reports its own constants and those of the helpers that it imports."""
    pytest.importorskip("triton")
    assert size in triton.tile_sizes(op)


def test_unknown_op_has_none() -> None:
    with pytest.raises(KeyError):
        triton.tile_sizes("no_such_op")
