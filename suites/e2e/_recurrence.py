"""Recurrent layers in float64, one token after another as the papers define them.

transformers' own layers compute parts in float32 and work through chunks of tokens; these are the plain definitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional


def is_mamba2(module: Any) -> bool:
    """Return True for a Mamba-2 layer as transformers has it in Granite, Bamba and others."""
    return all(hasattr(module, name) for name in ("A_log", "dt_bias", "D", "conv1d", "in_proj", "out_proj", "n_groups"))


def mamba2(
    module: Any,
    hidden_states: torch.Tensor,
    empty_windows: Sequence[int] = (),
    empty_states: Sequence[int] = (),
    **ignored: Any,
) -> torch.Tensor:
    """Map whole texts [B, T, H] to the same shape in the dtype of the weights, from an empty state.

    The state decays by exp(dt A) and gains dt x B, and is read through C (Dao and Gu 2024, arXiv 2405.21060,
    equation 16). x, B and C have passed a short causal convolution; the output is gated and normalised.

    Args:
        module: layer of transformers.
        hidden_states: texts.
        empty_windows: places where the convolution begins anew, which is a mistake.
        empty_states: places where the state is empty again, likewise.
        **ignored: arguments of transformers' own layers.
    """
    batch, length, _ = hidden_states.shape
    heads, size, groups, width = module.num_heads, module.head_dim, module.n_groups, module.ssm_state_size
    inner = heads * size
    gate, mixed, dt = module.in_proj(hidden_states).split([inner, inner + 2 * groups * width, heads], dim=-1)
    parts = mixed.transpose(1, 2).tensor_split(list(empty_windows), dim=-1)
    mixed = torch.cat([module.conv1d(part)[..., : part.shape[-1]] for part in parts], dim=-1)
    mixed = functional.silu(mixed.transpose(1, 2))
    x, b, c = mixed.split([inner, groups * width, groups * width], dim=-1)
    x = x.view(batch, length, heads, size)
    b, c = (part.view(batch, length, groups, width).repeat_interleave(heads // groups, dim=2) for part in (b, c))
    dt = functional.softplus(dt + module.dt_bias).clamp(*module.time_step_limit)
    decay = (dt * -module.A_log.exp()).exp()
    state = x.new_zeros(batch, heads, size, width)
    outputs = []
    for t in range(length):
        if t in empty_states:
            state = torch.zeros_like(state)
        state = state * decay[:, t, :, None, None] + (dt[:, t, :, None] * x[:, t])[..., None] * b[:, t, :, None]
        outputs.append((state @ c[:, t, :, :, None])[..., 0] + module.D[:, None] * x[:, t])
    gated = torch.stack(outputs, dim=1).view(batch, length, inner) * functional.silu(gate)
    grouped = gated.unflatten(-1, (groups, -1))
    normed = grouped * torch.rsqrt(grouped.square().mean(-1, keepdim=True) + module.norm.variance_epsilon)
    output: torch.Tensor = module.out_proj(module.norm.weight * normed.flatten(-2))
    return output
