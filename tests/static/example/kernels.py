"""A kernel and its CPU fallback that agree: the smallest tree on which the gate finds nothing."""

import triton
import triton.language as tl


@triton.jit
def scale_kernel(output_ptr, input_ptr, factor, BLOCK_SIZE: tl.constexpr):
    offset = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    tl.store(output_ptr + offset, tl.load(input_ptr + offset) * factor)
