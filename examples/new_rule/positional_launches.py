"""A rule of one's own: launches that pass many arguments by position, where an exchange goes unnoticed."""

from __future__ import annotations

from collections.abc import Iterator

from verispec.static.finding import Finding, Level, Side, fingerprint
from verispec.static.linking.launches import Links
from verispec.static.rules import Rule

MOST = 8
"""Positional arguments that a reader can still match with parameters."""


def check(links: Links) -> Iterator[Finding]:
    """Yield a warning for each launch with more than `MOST` positional arguments; say nothing about ``*args``."""
    for launch in links.launches:
        count = len(launch.call.positional)
        if count <= MOST or launch.call.open_positional:
            continue
        yield Finding(
            rule="SIG901",
            level=Level.WARNING,
            message=f"the launch passes {count} arguments by position; an exchange of two goes unnoticed",
            location=launch.location,
            symbol=launch.slot,
            sides=(Side("launch", launch.location, f"{launch.slot}[grid](... {count} positional arguments ...)"),),
            fix="pass the arguments by keyword",
            fingerprint=fingerprint("SIG901", launch.slot, launch.scope),
        )


RULES = (
    Rule(
        "SIG901",
        "many positional arguments",
        Level.WARNING,
        "vLLM 0.32.0 moved a parameter of a slot-mapping fallback, and callers that passed everything by position "
        "bound block_size to another parameter without an error.",
        check,
        own_example="kernel[grid](a, b, c, d, e, f, g, h, i)",
        own_fix="Pass the arguments by keyword.",
    ),
)
