"""The answers of an engine to the parts that its adapter lacks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from verispec.engines import OpFunction, SamplerBatch, Unsupported, UnsupportedCall
from verispec.errors import VerispecError


class PartialEngine:
    """Base of adapters that offer a few parts; `lacks` gives the reason for each of the others."""

    lacks: ClassVar[Mapping[str, str]] = {}

    def op(self, name: str) -> OpFunction | Unsupported:
        """Return why no op can be called."""
        return Unsupported(self.lacks["op"])

    def sampler(self, family: str = "flat") -> Any | Unsupported:
        """Return why no sampler can be called."""
        return Unsupported(self.lacks["sampler"])

    def load(self, target: Path, **options: Any) -> Any | Unsupported:
        """Return why nothing is generated."""
        return Unsupported(self.lacks["load"])

    def definitions(self) -> Mapping[str, Any] | Unsupported:
        """Return why no signatures are read."""
        return Unsupported(self.lacks["definitions"])

    def close(self) -> None:
        """Nothing is held."""


def refuse(batch: SamplerBatch, **reasons: str) -> None:
    """Raise UnsupportedCall if `batch` has a field that the engine lacks.

    Args:
        batch: one step.
        reasons: reasons by field name.

    Raises:
        UnsupportedCall: one of the fields is set; seeds count as set if one of them is not None.
    """
    for name, reason in reasons.items():
        value = getattr(batch, name)
        if value is not None and not (name == "seeds" and all(seed is None for seed in value)):
            raise UnsupportedCall(reason)


def require_cpu(device: str | None, engine: str) -> None:
    """Raise an error unless `device` is "cpu" or None.

    Args:
        device: requested device, None for the engine's choice.
        engine: its name, for the message.

    Raises:
        VerispecError: V-ENG-DEVICE, for any other device.
    """
    if device not in (None, "cpu"):
        raise VerispecError(
            "V-ENG-DEVICE",
            f"{engine} is tested on the CPU only",
            where=f"--device {device}",
            hint="omit --device, or give --device cpu",
        )
