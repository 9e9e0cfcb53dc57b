"""A badge for a README: the result of a run in one line of SVG, which loads nothing."""

from __future__ import annotations

from html import escape

from verispec import exits
from verispec.report.text import plural
from verispec.report.verdict import RunSummary

COLOUR = {exits.GOOD: "#116329", exits.BAD: "#b3141c", exits.CANNOT_TELL: "#57606a"}
HEIGHT, PADDING, PER_CHARACTER = 20, 7, 6.3
"""Pixels; a character of the font at 11 pixels is at most this wide, on average over a text."""


def as_badge(summary: RunSummary) -> str:
    """Return the badge: verispec on the left, the number of passing cases or of causes on the right."""
    engine = summary.run.header["engine"]
    return badge(f"verispec {engine['name']} {engine['version']}", message(summary), COLOUR[summary.exit_code()])


def message(summary: RunSummary) -> str:
    """Return the right half of the badge."""
    code = summary.exit_code()
    if code == exits.CANNOT_TELL:
        return "cannot tell"
    if code == exits.GOOD:
        return f"{summary.counts.get('pass', 0):,} pass"
    errors = sum(cause.level == "error" for cause in summary.causes)
    if errors:
        return plural(errors, "error")
    return plural(len(summary.causes), "note") if summary.causes else "stale list"


def badge(label: str, text: str, colour: str) -> str:
    """Return a badge with `label` on grey and `text` on `colour`, both with white letters."""
    left, right = (round(len(part) * PER_CHARACTER) + 2 * PADDING for part in (label, text))
    name = escape(f"{label}: {text}", quote=True)
    width = left + right
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{HEIGHT}" role="img" aria-label="{name}" '
        f'viewBox="0 0 {width} {HEIGHT}"><title>{name}</title>'
        f'<clipPath id="r"><rect width="{width}" height="{HEIGHT}" rx="3"/></clipPath><g clip-path="url(#r)">'
        f'<rect width="{left}" height="{HEIGHT}" fill="#3d444d"/>'
        f'<rect x="{left}" width="{right}" height="{HEIGHT}" fill="{colour}"/></g>'
        f'<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">'
        f'<text x="{left / 2}" y="14" textLength="{left - 2 * PADDING}">{escape(label)}</text>'
        f'<text x="{left + right / 2}" y="14" textLength="{right - 2 * PADDING}">{escape(text)}</text></g></svg>\n'
    )
