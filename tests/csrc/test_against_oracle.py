"""Every C++ kernel equals its oracle, bit for bit, whatever the values, dtypes and layouts of its tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from adversarial_calls import DISTURBANCES, adversarial_call
from hypothesis import given, settings
from hypothesis import strategies as st

from verispec.reference import contracts, cpu, oracle
from verispec.reference.contracts import Tensor

LAYOUTS = ("dense", "gapped", "transposed", "reversed")
"""Contiguous; every third element; column major; from the last element to the first (NumPy only)."""


def laid_out(values: np.ndarray[Any, Any], dtype: str, layout: str) -> Any:
    """`values` in `dtype`, as a view with the strides of `layout`; torch has no negative strides, NumPy no bfloat16."""
    if layout == "reversed" and dtype != "bfloat16":
        return np.ascontiguousarray(values.astype(dtype)[tuple([slice(None, None, -1)] * values.ndim)])[
            tuple([slice(None, None, -1)] * values.ndim)
        ]
    dense = torch.from_numpy(np.ascontiguousarray(values)).to(getattr(torch, dtype))
    if layout == "transposed":
        return dense.mT.contiguous().mT if values.ndim == 2 else dense
    if layout == "gapped":
        wide = torch.full((*values.shape[:-1], values.shape[-1] * 3), 99).to(dense.dtype)
        wide[..., ::3] = dense
        return wide[..., ::3]
    return dense


def plain(tensor: Any) -> np.ndarray[Any, Any]:
    """A copy for the oracle; bfloat16 becomes float32, which holds it exactly."""
    if isinstance(tensor, torch.Tensor):
        tensor = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return np.array(tensor)


@pytest.mark.parametrize("op", sorted(DISTURBANCES))
@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_equals_the_oracle(op: str, data: st.DataObject) -> None:
    contract = contracts.load(op)
    values = adversarial_call(op, data.draw(st.integers(0, 2**32 - 1), label="seed"))
    call: dict[str, Any] = {}
    for param in contract.params:
        if isinstance(param, Tensor) and values[param.name] is not None:
            dtype = call[param.like].dtype if param.like else data.draw(st.sampled_from(param.dtypes), label=param.name)
            layout = data.draw(st.sampled_from(LAYOUTS), label=f"layout of {param.name}")
            call[param.name] = laid_out(values[param.name], str(dtype).removeprefix("torch."), layout)
        elif param.name in values:
            call[param.name] = values[param.name]
        else:
            call[param.name] = first_stride(call[param.stride_of])  # type: ignore[union-attr]
    expected = oracle.load(contract.name)(**{n: plain(v) if hasattr(v, "shape") else v for n, v in call.items()})
    inputs = {t.name: plain(call[t.name]) for t in contract.tensors if not t.written and call[t.name] is not None}
    cpu.op(contract.name)(**call)
    for name, want in expected.items():
        np.testing.assert_array_equal(plain(call[name]), want, err_msg=name)
    for name, before in inputs.items():
        np.testing.assert_array_equal(plain(call[name]), before, err_msg=f"the input {name} was changed")


def first_stride(tensor: Any) -> int:
    return int(tensor.stride(0) if isinstance(tensor, torch.Tensor) else tensor.strides[0] // tensor.itemsize)
