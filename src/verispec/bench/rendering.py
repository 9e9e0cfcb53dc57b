"""Results of a benchmark as a table, as JSON and as a roofline picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

from verispec.bench.inputs import BenchShape
from verispec.bench.timing import Time
from verispec.terminal import COLUMNS, wrapped


@dataclass(frozen=True, slots=True)
class BenchResult:
    """One shape: both sides, the time of reading the needed bytes once, and these bytes."""

    shape: BenchShape
    engine: Time
    engine_way: str
    peer: Time | None
    peer_way: str
    read: Time
    bytes: int

    @property
    def ratio(self) -> float | None:
        """Return the peer's time divided by ours."""
        return None if self.peer is None else self.peer.median / self.engine.median

    @property
    def share(self) -> float:
        """Share of the floor: time of the plain read over the engine's."""
        return self.read.median / self.engine.median

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain data; times are in microseconds."""
        return asdict(self) | {"ratio": self.ratio, "share_of_floor": self.share}


def heading(engine: str, peer: str) -> list[str]:
    """Return the lines above the results: the names of both sides and the columns."""
    sides = f"engine {engine}, peer {peer}" if peer else f"engine {engine}, no peer"
    return [*wrapped(sides, COLUMNS), "op, requests x drafts x vocabulary", _row(COLUMN_NAMES)]


def lines(r: BenchResult) -> list[str]:
    """Return the two lines of a result: its shape, and its figures under the columns of `heading`."""
    spread = (r.engine.high - r.engine.low) / r.engine.median
    figures = (
        f"{r.engine.median:.1f} us {r.engine_way}",
        f"{spread:.0%}",
        "-" if r.peer is None else f"{r.peer.median:.1f} us {r.peer_way}",
        "-" if r.ratio is None else f"{r.ratio:.2f}",
        f"{r.read.median:.1f} us",
        f"{r.share:.0%}",
        f"{r.bytes / 1e6:.2f}",
    )
    return [f"{r.shape.op}, {r.shape.name}", _row(figures)]


COLUMN_NAMES = ("engine", "spread", "peer", "ratio", "read", "of floor", "MB")
WIDTHS = (18, 7, 18, 7, 12, 10, 8)


def _row(cells: Sequence[str]) -> str:
    return "".join(cell.rjust(width) for cell, width in zip(cells, WIDTHS, strict=True))


WIDTH, HEIGHT, MARGIN = 760, 460, 60
_COLOURS = ("#1f77b4", "#d62728")


def roofline(results: Sequence[BenchResult], engine: str, peer: str) -> str:
    """Return an SVG: time per call over the bytes that it must read, and the line of the plain read."""
    sides = [(engine, [(r.bytes, r.engine.median) for r in results])]
    if any(r.peer for r in results):
        sides.append((peer, [(r.bytes, r.peer.median) for r in results if r.peer]))
    floor = sorted((r.bytes, r.read.median) for r in results)
    xs = [x for _, points in sides for x, _ in points]
    ys = [y for _, points in sides for _, y in points] + [y for _, y in floor]
    across, up = _scale(xs, MARGIN, WIDTH - 20), _scale(ys, HEIGHT - MARGIN, 30)
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            'font-family="sans-serif" font-size="12">'
        ),
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    parts += [_tick(across(x), HEIGHT - MARGIN, f"{x / 1e6:g} MB", "x") for x in _decades(xs)]
    parts += [_tick(MARGIN, up(y), f"{y:g} us", "y") for y in _decades(ys)]
    path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in floor)
    parts.append(f'<polyline points="{path}" fill="none" stroke="#888" stroke-dasharray="4 3"/>')
    parts.append(f'<text x="{WIDTH - 20}" y="20" text-anchor="end" fill="#888">dashed: reading the bytes once</text>')
    for n, (name, points) in enumerate(sides):
        colour = _COLOURS[n]
        parts += [
            f'<circle cx="{across(x):.1f}" cy="{up(y):.1f}" r="4" fill="{colour}" fill-opacity="0.7"/>'
            for x, y in points
        ]
        parts.append(f'<text x="{MARGIN + 8}" y="{20 + 16 * n}" fill="{colour}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _scale(values: Sequence[float], low: float, high: float) -> Any:
    """Return a map from a logarithmic axis over `values` to pixels."""
    first, last = math.log(min(values)), math.log(max(values))
    width = last - first or 1.0
    return lambda value: low + (math.log(value) - first) / width * (high - low)


def _decades(values: Sequence[float]) -> list[float]:
    low, high = math.log10(min(values)), math.log10(max(values))
    return [10.0**n for n in range(math.ceil(low), math.floor(high) + 1)]


def _tick(x: float, y: float, text: str, axis: str) -> str:
    if axis == "x":
        return f'<text x="{x:.1f}" y="{y + 20:.1f}" text-anchor="middle">{text}</text>'
    return f'<text x="{x - 8:.1f}" y="{y + 4:.1f}" text-anchor="end">{text}</text>'
