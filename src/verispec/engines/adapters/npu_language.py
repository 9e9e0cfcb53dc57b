"""Functions that Triton's language has on an NPU alone, in plain Triton for vllm-ascend's kernels in the interpreter.

Import it after the interpreter was chosen.
"""

from __future__ import annotations

import triton
import triton.language as tl

from verispec.engines.accelerator_stubs import Absent


@triton.jit  # type: ignore[untyped-decorator]
def get_element(values: tl.tensor, place: tuple[tl.tensor]) -> tl.tensor:
    """Return the element of a vector at the place `place[0]`."""
    is_here = tl.arange(0, values.shape[0]) == place[0]
    return tl.sum(tl.where(is_here, values, 0), axis=0)


def extend() -> None:
    """Put the NPU's functions into `triton.language`; those that no kernel of speculative decoding uses are stubs."""
    tl.get_element = get_element
    for name in ("insert_slice", "extract_slice"):
        setattr(tl, name, Absent(f"triton.language.{name}"))
