"""The packages that running cases needs beside the base installation."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from verispec import exits
from verispec.errors import VerispecError

NEEDED = ("torch", "pytest", "hypothesis", "scipy")
"""Packages of the extra ``judge``."""
FOR_GENERATION = ("transformers", "tokenizers", "safetensors")
"""Packages of the extra ``generate``, which the suite e2e needs."""


def require_packages(*, generation: bool) -> None:
    """Raise VerispecError V-RUN-EXTRA if a package is missing, with the extra that installs it.

    Args:
        generation: True if cases of the suite e2e are to run.
    """
    _require(
        "running cases",
        NEEDED,
        "judge",
        "pip install 'verispec[judge]', or from a checkout: pip install '.[judge]'; "
        "verispec signatures and verispec explain work without it",
    )
    if generation:
        _require(
            "the suite e2e",
            FOR_GENERATION,
            "generate",
            "pip install 'verispec[generate]', or from a checkout: pip install '.[generate]'; "
            "--suite sampler, --suite synthetic and --suite signatures work without it",
        )


def _require(what: str, packages: Sequence[str], extra: str, hint: str) -> None:
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        raise VerispecError(
            "V-RUN-EXTRA",
            f"{what} needs {', '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed",
            where=f"verispec[{extra}]",
            hint=hint,
            exit_code=exits.CANNOT_TELL,
        )
