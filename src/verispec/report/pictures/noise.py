"""The noise of an engine: its smallest value, its grid, and the rare tokens that it loses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from verispec.report.pictures._canvas import GREY, RED, Canvas

COLUMNS = (("source", 8), ("values", 200), ("smallest", 300), ("grid", 400), ("rare tokens", 480))


def noise_table(rows: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """Draw a table with one row per source of noise.

    Args:
        rows: name of the source, and the record's evidence with `noise` or `needles`.
    """
    canvas = Canvas("Random numbers", (0, 1), (0, 1), 640, 60 + 18 * len(rows))
    for name, left in COLUMNS:
        canvas.label(left, 38, name)
    for n, (name, evidence) in enumerate(rows):
        noise, needles = evidence.get("noise"), evidence.get("needles")
        bits = noise["grid_bits"] if noise else 0
        cells = [
            name,
            f"{noise['values']:,}" if noise else "-",
            f"{noise['smallest']:.2g}" if noise else "-",
            (f"2^-{bits}" if bits else "none seen") if noise else "-",
            f"{needles['seen']} of {needles['expected']:.0f} at {needles['probability']:g}" if needles else "-",
        ]
        for (_, left), cell in zip(COLUMNS, cells, strict=True):
            canvas.label(left, 56 + 18 * n, cell, RED if bits else GREY)
    return canvas.render()
