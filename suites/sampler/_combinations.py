"""Combinations of dtypes, layouts, batches and modes: the axes of an op, and the words for one combination."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from verispec.judge import LAYOUTS
from verispec.reference.contracts import Contract
from verispec.suites.sampler._calls import BatchShape, MadeCall

COUNTS = [(3, 1, 5, 3), (0, 3, 0, 0, 4, 1, 0), (1,), (2,) * 66]


def axes_of(contract: Contract, call: MadeCall) -> dict[str, list[Any]]:
    followers = {name for group in call.same for name in group[1:]}
    axes: dict[str, list[Any]] = {
        "counts": COUNTS,
        "vocab": [2, 33, 130],
        "draft": [True, False],
        "synthetic": [False, True],
    }
    for tensor in contract.tensors:
        if tensor.name not in followers and len(tensor.dtypes) > 1:
            axes[f"dtype {tensor.name}"] = list(tensor.dtypes)
        axes[f"layout {tensor.name}"] = list(LAYOUTS)
    return axes


def held(call: MadeCall, dtypes: dict[str, str]) -> MadeCall:
    """Return the call with reals rounded to their dtypes, so that the oracle sees what the engine sees."""
    values = dict(call.values)
    for name, dtype in dtypes.items():
        value = values.get(name)
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            values[name] = torch.from_numpy(value).to(getattr(torch, dtype)).double().numpy()
    return MadeCall(values, call.shapes, call.compare, call.same)


def combination(contract: Contract, shape: BatchShape, dtypes: dict[str, str], layouts: dict[str, str]) -> str:
    """Return the unusual parts of a call: sizes, modes, dtypes beside production's, layouts beside dense."""
    parts = [f"{len(shape.counts)} request{'s' * (len(shape.counts) > 1)}", f"vocabulary {shape.vocab}"]
    parts += [
        name for name, used in (("no draft probabilities", not shape.draft), ("synthetic", shape.synthetic)) if used
    ]
    for tensor in contract.tensors:
        dtype, layout = dtypes.get(tensor.name, ""), layouts.get(tensor.name, LAYOUTS[0])
        usual = ("", tensor.production or tensor.dtypes[0], LAYOUTS[0])
        unusual = [part for part in (dtype, layout) if part not in usual]
        if unusual:
            parts.append(f"{tensor.name} {' '.join(unusual)}")
    return ", ".join(parts)
