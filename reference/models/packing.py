"""A loaded model in fewer and faster calls on the CPU; small models spend their time on calls.

Weights of linear layers are laid out once as oneDNN wants them, projections that read one input (queries, keys and
values; gate and up) become one matrix product, and RMS norms become torch's own. The classes of transformers stay in
charge: their forward methods find the same attributes as before.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

_GROUPS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
_ROWS_HINT = 16
"""Rows for which oneDNN chooses its layout: a batch of decoding requests. Any number of rows is right."""


class _Product:
    """One matrix product for several projections of one input, kept until the last of them was asked for."""

    def __init__(self, projections: list[nn.Linear]) -> None:
        weight = torch.cat([projection.weight for projection in projections])
        biases = [projection.bias for projection in projections]
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, _ROWS_HINT)
        self._bias = None if biases[0] is None else torch.cat(biases)
        self._sizes = [projection.out_features for projection in projections]
        self._input: torch.Tensor | None = None
        self._parts: tuple[torch.Tensor, ...] = ()

    def part(self, x: torch.Tensor, index: int) -> torch.Tensor:
        if x is not self._input:
            product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, "none", [], "")
            if len(self._sizes) == 1:
                return product
            self._input, self._parts = x, product.split(self._sizes, dim=-1)
        part = self._parts[index]
        if index == len(self._sizes) - 1:
            self._input, self._parts = None, ()
        return part


class _Projection(nn.Module):
    """Stands where a linear layer was."""

    def __init__(self, product: _Product, index: int) -> None:
        super().__init__()
        self._product = product
        self._index = index

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._product.part(x, self._index)


def pack(model: nn.Module) -> None:
    """Pack a float32 model on the CPU in place; what does not look like the layers above stays as it is.

    Afterwards the model can only be run: it cannot be saved, trained or moved. Without oneDNN nothing changes.
    """
    if not torch.backends.mkldnn.is_available():
        return
    for module in list(model.modules()):
        for names in _GROUPS:
            projections: list[Any] = [getattr(module, name, None) for name in names]
            if all(map(_is_packable, projections)) and len({p.bias is None for p in projections}) == 1:
                _replace(module, names, projections)
        for name, child in list(module.named_children()):
            if _is_packable(child):
                _replace(module, (name,), [child])
            elif type(child).__name__.endswith("RMSNorm"):
                setattr(module, name, _torch_norm(child))


def _is_packable(module: Any) -> bool:
    return type(module) is nn.Linear and module.weight.dtype == torch.float32


def _replace(module: nn.Module, names: tuple[str, ...], projections: list[Any]) -> None:
    product = _Product(projections)
    for index, name in enumerate(names):
        setattr(module, name, _Projection(product, index))


def _torch_norm(norm: Any) -> Any:
    """Return torch's RMS norm in place of `norm` if they compute the same (Gemma's adds 1 to its weight, for one)."""
    weight, epsilon = getattr(norm, "weight", None), getattr(norm, "variance_epsilon", None)
    if weight is None or epsilon is None or weight.dtype != torch.float32:
        return norm
    packed = nn.RMSNorm(weight.shape[0], eps=epsilon).requires_grad_(False)
    packed.weight.copy_(weight)
    probe = torch.linspace(-3, 5, 4 * weight.shape[0]).view(4, -1)
    # Both scale by the same factor in another order: a few roundings of float32 apart.
    same = torch.allclose(packed(probe), norm(probe), rtol=4 * torch.finfo(torch.float32).eps, atol=0)
    return packed if same else norm
