"""Evidence over tokens: log10 E of a test, its best bets, and the limit at which it fails."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verispec.report.pictures._canvas import COLOURS, RED, Canvas
from verispec.report.powers import power

BELOW_LIMIT = 44
"""Pixels from the top to the first name, which leaves room for the limit."""


def evidence_over_tokens(evidence: Mapping[str, Any], title: str = "Evidence against losslessness") -> str:
    """Draw the trail of a test: one line per bet, E itself in black, and the limit."""
    trail = evidence["trail"]
    counts = trail["count"] or [0]
    lines = {"E": trail["log10_e"], **trail["bets"]}
    values = [v for line in lines.values() for v in line if v is not None]
    limit = evidence["log10_limit"]
    low, high = min([-2.0, *values]), max([limit + 1, *values])
    low = max(low, -limit)
    if None in trail["log10_e"]:  # JSON has no infinity: an output that a correct engine never gives
        lines = {"E, infinite": [high if v is None else v for v in trail["log10_e"]], **trail["bets"]}
    canvas = Canvas(title, (0, counts[-1]), (low, high))
    marks = {round(low): f"1e{round(low)}", 0: "1", limit: power(limit)}
    canvas.axes(evidence["unit"], "evidence E", [0, counts[-1] // 2, counts[-1]], marks)
    canvas.line([(0, limit), (counts[-1], limit)], RED, 1, "4 3")
    for n, (name, line) in enumerate(lines.items()):
        colour = "#24292f" if n == 0 else COLOURS[(n - 1) % len(COLOURS)]
        points = [(count, max(v, low)) for count, v in zip(counts, line, strict=False) if v is not None]
        canvas.line([(0, 0), *points], colour, 2 if n == 0 else 1.2)
        canvas.label(canvas.LEFT + 8, canvas.TOP + BELOW_LIMIT + 13 * n, name, colour)
    return canvas.render()
