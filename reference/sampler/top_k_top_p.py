"""Top-k and top-p filtering of logits, one function for every platform.

The op is apply_top_k_top_p: a Triton kernel for CUDA tensors, C++ for CPU tensors. Its clauses define ties, masked rows
and rows without a limit alike for both.
"""

from __future__ import annotations

import torch

from verispec.reference.sampler import ops


def apply_top_k_top_p(
    logits: torch.Tensor, k: torch.Tensor | None, p: torch.Tensor | None, *, inplace: bool = False
) -> torch.Tensor:
    """Return the logits with minus infinity for every token that is not kept.

    Args:
        logits: [B, V] float32, bfloat16 or float16, with any strides.
        k: [B] integers; None, values below 1 and values of at least V keep every token.
        p: [B] float32, applied to the tokens that top-k keeps; None and values of at least 1 keep every token.
        inplace: True overwrites and returns `logits`.

    Raises:
        ContractError: unsupported dtype, shape or device.
    """
    output = logits if inplace else torch.empty_like(logits)
    ops.run("apply_top_k_top_p", logits.device, output=output, logits=logits, k=k, p=p)
    return output
