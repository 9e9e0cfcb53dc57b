"""The packages that running cases needs beside the base installation."""

from __future__ import annotations

from importlib.util import find_spec

from verispec import exits
from verispec.errors import VerispecError

NEEDED = ("torch", "pytest", "hypothesis", "scipy")
"""Packages of the extra ``judge``."""


def require_packages() -> None:
    """Raise VerispecError V-RUN-EXTRA if a package is missing, with the extra that installs it."""
    missing = [package for package in NEEDED if find_spec(package) is None]
    if missing:
        raise VerispecError(
            "V-RUN-EXTRA",
            f"running cases needs {', '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed",
            where="verispec[judge]",
            hint="pip install 'verispec[judge]', or from a checkout: pip install '.[judge]'; "
            "verispec signatures and verispec explain work without it",
            exit_code=exits.CANNOT_TELL,
        )
