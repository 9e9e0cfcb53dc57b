"""Acceptance reliability: share of accepted draft tokens, by the probability that their p/q states."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from verispec.report.pictures._canvas import COLOURS, GREY, Canvas

NORMAL = 4.9
"""Half-width of the bars in standard deviations: one in a million lies outside."""


def reliability(evidence: Mapping[str, Any]) -> str:
    """Draw observed acceptance by stated acceptance, one dot and bar per tenth; empty without acceptance counts."""
    counts, accepted, stated = evidence.get("reliability") or ([], [], [])
    canvas = Canvas("Acceptance: stated and observed", (0, 1), (0, 1), 320, 300)
    canvas.axes("stated min(1, p/q)", "observed", [0, 0.5, 1], {0: "0", 0.5: "0.5", 1: "1"})
    canvas.line([(0, 0), (1, 1)], GREY, 1, "4 3")
    for n, yes, total in zip(counts, accepted, stated, strict=True):
        if n:
            rate, expected = yes / n, total / n
            width = NORMAL * math.sqrt(max(expected * (1 - expected), 1 / n) / n)
            canvas.line([(expected, max(rate - width, 0)), (expected, min(rate + width, 1))], COLOURS[0])
            canvas.dot(expected, rate, COLOURS[0])
    return canvas.render()
