"""The baseline of the fault-injected engines: an engine whose ops are the oracle itself, writing in place.

Every fault-injected engine is this one with a single fault, so that its report can be compared with the baseline's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from verispec.engines import Description, OpFunction, Unsupported
from verispec.reference import contracts, oracle


def to_numpy(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    host = value.detach().cpu()
    return (host.float() if host.dtype == torch.bfloat16 else host).numpy().copy()


def from_oracle(name: str) -> OpFunction:
    """The oracle of `name` as an op that writes its outputs in place."""
    specification = oracle.load(name).__wrapped__  # type: ignore[attr-defined]  # calls of the guarded one fail
    if contracts.load(name).returns:
        return lambda **arguments: specification(**arguments)["return"].tolist()

    def op(**arguments: Any) -> None:
        expected = specification(**{k: to_numpy(v) for k, v in arguments.items()})
        for output, values in expected.items():
            if arguments.get(output) is not None:
                arguments[output].copy_(torch.from_numpy(values).to(arguments[output].dtype))

    return op


class OracleEngine:
    """Answers `verispec.engines.Engine` with the oracle; subclasses override `op` to break one thing."""

    def describe(self) -> Description:
        return Description("oracle", "1", "cpu")

    def op(self, name: str) -> OpFunction | Unsupported:
        return from_oracle(name) if name in contracts.names() else Unsupported(f"no op {name}")

    def sampler(self, family: str = "flat") -> Unsupported:
        return Unsupported("the oracle has no whole sampler")

    def load(self, target: Path, **options: Any) -> Unsupported:
        return Unsupported("the oracle does not generate")

    def definitions(self) -> Unsupported:
        return Unsupported("the oracle has no callables of its own")

    def close(self) -> None:
        pass
