"""Parts that no source tree can provide, whatever its kernels run on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from verispec.engines import Unsupported


class KernelsOnly:
    """An engine that is kernels without the engine around them."""

    def sampler(self, family: str = "flat") -> Unsupported:
        """Return `Unsupported` for every `family`."""
        return Unsupported("a source tree gives kernels, not a whole sampler: install vLLM for that")

    def load(self, target: Path, **options: Any) -> Unsupported:
        """Return `Unsupported` for every `target`."""
        return Unsupported("a source tree gives kernels, it cannot generate: install vLLM for that")
