"""Header of a results file, for tests that render reports of made-up runs."""

from __future__ import annotations

from typing import Any


def header(*, engine: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """Return a header of a run of all suites on a CPU.

    Args:
        engine: changed fields of the engine's description.
        changes: other changed fields.
    """
    about = {"asked": "e", "name": "e", "version": "1", "platform": "cpu", "device": "cpu", "details": {}}
    return {
        "type": "header",
        "format": 1,
        "engine": about | (engine or {}),
        "platform": {"python": "3.11", "system": "Linux", "machine": "x86_64", "cpus": 2, "packages": {}},
        "verispec": "0.1.0",
        "seed": 7,
        "command": ["verispec", "run"],
        "started": "2026-01-02T03:04:05+00:00",
        "selection": {"only": [], "suites": [], "smoke": False},
        "cases": 3,
        **changes,
    }
