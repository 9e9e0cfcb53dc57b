"""A small SVG canvas with axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

COLOURS = ("#1f6feb", "#bf3989", "#9a6700", "#1a7f37", "#8250df")
GREY = "#57606a"
RED = "#cf222e"


class Canvas:
    """Collects shapes; coordinates are data coordinates within `x` and `y` ranges.

    Args:
        title: accessible name, shown above.
        x: smallest and largest value on the horizontal axis.
        y: the same of the vertical axis.
        width: width of the picture in pixels.
        height: height of the picture in pixels.
    """

    LEFT, RIGHT, TOP, BOTTOM = 56, 16, 28, 36
    LETTER = 11

    def __init__(
        self, title: str, x: tuple[float, float], y: tuple[float, float], width: int = 640, height: int = 280
    ) -> None:
        self.title, self.width, self.height = title, width, height
        self._x, self._y = x, y
        self._shapes: list[str] = []

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Return pixel coordinates of a point."""
        across = (x - self._x[0]) / ((self._x[1] - self._x[0]) or 1)
        up = (y - self._y[0]) / ((self._y[1] - self._y[0]) or 1)
        left = self.LEFT + across * (self.width - self.LEFT - self.RIGHT)
        return left, self.height - self.BOTTOM - up * (self.height - self.TOP - self.BOTTOM)

    def line(self, points: Sequence[tuple[float, float]], colour: str, width: float = 1.5, dash: str = "") -> None:
        """Draw a polyline through data points."""
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in (self.at(*point) for point in points))
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self._shapes.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"{dashed}/>')

    def bar(self, left: float, right: float, low: float, high: float, colour: str) -> None:
        """Draw a filled rectangle in data coordinates."""
        (x0, y1), (x1, y0) = self.at(left, low), self.at(right, high)
        size = f'width="{max(x1 - x0, 0.5):.1f}" height="{max(y1 - y0, 0.5):.1f}"'
        self._shapes.append(f'<rect x="{x0:.1f}" y="{y0:.1f}" {size} fill="{colour}"/>')

    def rect_pixels(self, left: float, top: float, width: float, height: float, colour: str) -> None:
        """Draw a filled rectangle in pixels."""
        self._shapes.append(f'<rect x="{left}" y="{top}" width="{width:.1f}" height="{height}" fill="{colour}"/>')

    def dot(self, x: float, y: float, colour: str) -> None:
        """Draw a dot at a data point."""
        left, top = self.at(x, y)
        self._shapes.append(f'<circle cx="{left:.1f}" cy="{top:.1f}" r="3" fill="{colour}"/>')

    def label(self, left: float, top: float, text: str, colour: str = GREY, anchor: str = "start") -> None:
        """Write at a pixel."""
        self._shapes.append(
            f'<text x="{left:.1f}" y="{top:.1f}" fill="{colour}" text-anchor="{anchor}">{escape(text)}</text>'
        )

    def axes(self, x_name: str, y_name: str, x_marks: Sequence[float], y_marks: Mapping[float, str]) -> None:
        """Draw both axes with their marks; of marks too close to each other the last is named.

        Args:
            x_name: name of the horizontal axis.
            y_name: name of the vertical axis.
            x_marks: values to mark.
            y_marks: values to mark, in increasing order, with their texts.
        """
        (x0, x1), (y0, y1) = self._x, self._y
        self.line([(x0, y1), (x0, y0), (x1, y0)], GREY, 1)
        for mark in x_marks:
            left, top = self.at(mark, y0)
            self.label(left, top + 14, f"{mark:g}", anchor="middle")
        free = float("inf")
        for mark, text in reversed(list(y_marks.items())):
            left, top = self.at(x0, mark)
            if abs(top - free) >= self.LETTER:  # else two numbers lie on each other
                self.label(left - 6, top + 4, text, anchor="end")
                free = top
        self.label(self.width - self.RIGHT, self.height - 4, x_name, anchor="end")
        self.label(4, self.TOP - 12, y_name)

    def render(self) -> str:
        """Return the `<svg>` element."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'width="{self.width}" height="{self.height}" role="img" font-family="sans-serif" font-size="11">'
        )
        title = f"<title>{escape(self.title)}</title>"
        end = self.width - self.RIGHT
        name = f'<text x="{end}" y="14" text-anchor="end" fill="#24292f">{escape(self.title)}</text>'
        return head + title + name + "".join(self._shapes) + "</svg>"
