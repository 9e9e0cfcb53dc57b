"""The smallest size of each fault that a run excludes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from verispec.report.pictures._canvas import COLOURS, GREY, Canvas

ROW = 18


def excluded_sizes(rows: Sequence[tuple[str, str, float]]) -> str:
    """Draw one bar per fault: its name, the size as text, and the size as a share from 0.001 to 1 (longer is worse).

    Args:
        rows: name, size as text, and how large the effect is, from 0 to 1; 1 where no size is excluded.
    """
    height = ROW * len(rows) + 60
    canvas = Canvas("Smallest size excluded at 1e-6", (0, 1), (0, max(len(rows), 1)), 760, height)
    for n, (name, size, effect) in enumerate(rows):
        top = canvas.TOP + ROW * n + 14
        canvas.label(8, top, name, "#24292f")
        length = max(_length(effect), 2.0)
        colour = COLOURS[0] if effect < 1 else GREY
        canvas.rect_pixels(480, top - 10, length, 11, colour)
        canvas.label(486 + length, top, size)
    return canvas.render()


def _length(effect: float) -> float:
    """Return a bar's length in pixels, on a logarithmic scale from 0.001 to 1."""
    return 180 * (math.log10(min(max(effect, 1e-3), 1.0)) + 3) / 3
