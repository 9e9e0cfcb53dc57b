"""Top-k and top-p filtering of logits, one function for every platform.

The op is apply_top_k_top_p: a Triton kernel for CUDA tensors, C++ for CPU tensors. Its clauses say what
ties, masked rows and rows without a limit mean, the same on both.
"""

from __future__ import annotations

import torch

from verispec.reference.sampler import ops


def apply_top_k_top_p(
    logits: torch.Tensor, k: torch.Tensor | None, p: torch.Tensor | None, *, inplace: bool = False
) -> torch.Tensor:
    """The logits with minus infinity for every token that is not kept.

    `logits` is [B, V] in float32, bfloat16 or float16, with any strides. `k` is [B] integers, `p` [B] float32;
    None, a k below 1 or of at least V, and a p of 1 or above keep every token. Top-p is over what top-k
    leaves. With `inplace` the logits are overwritten and returned, else they stay as they are.

    Raises ContractError for another dtype, shape or device.
    """
    output = logits if inplace else torch.empty_like(logits)
    ops.run("apply_top_k_top_p", logits.device, output=output, logits=logits, k=k, p=p)
    return output
