"""Places of tokens in their distributions, in every order, beside the uniform band."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from verispec.report.pictures._canvas import COLOURS, GREY, RED, Canvas

BAND = 4.0
"""Half-width of the band in standard deviations of one cell."""


def places(evidence: Mapping[str, Any]) -> str:
    """Draw one histogram per order; a paired order shows four, one per earlier cell."""
    return "".join(_histogram(name, rows) for name, rows in evidence.get("places", {}).items())


def _histogram(name: str, rows: list[list[int]]) -> str:
    flat = [count for row in rows for count in row]
    expected = [sum(row) / len(row) for row in rows for _ in row]
    ratios = [count / mean if mean else 1.0 for count, mean in zip(flat, expected, strict=True)]
    width = BAND / math.sqrt(max(min(expected, default=1.0), 1.0))
    high = max([1 + 1.5 * width, *ratios])
    canvas = Canvas(name, (0, len(flat)), (0, high), 310, 150)
    for cell, ratio in enumerate(ratios):
        colour = RED if abs(ratio - 1) > width else COLOURS[0]
        canvas.bar(cell + 0.1, cell + 0.9, 0, ratio, colour)
    for edge in (1 - width, 1 + width):
        canvas.line([(0, max(edge, 0)), (len(flat), max(edge, 0))], GREY, 1, "4 3")
    canvas.axes("cell", "observed / expected", [], {0: "0", 1: "1"})
    return canvas.render()
