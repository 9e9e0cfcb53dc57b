"""Findings of the static checker: a `Finding` names a rule, a place, and both sides of a disagreement."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Level(StrEnum):
    """Severity of a finding: an `ERROR` will fail or corrupt, a `WARNING` probably will, a `NOTE` asks for a look."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True, order=True)
class Location:
    """A place in a tree. Lines and columns count from 1; `path` is relative to the tree, with forward slashes.

    Places are equal if they begin at the same one: not every reader knows the end.
    """

    path: str
    line: int
    column: int = 1
    end_line: int | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"

    def to_json(self) -> dict[str, Any]:
        """Return the place as a JSON object."""
        return {"path": self.path, "line": self.line, "column": self.column, "end_line": self.end_line}


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a disagreement: `label` says whose ("call", "kernel", "CPU fallback"), `text` is it, rendered."""

    label: str
    location: Location
    text: str

    def to_json(self) -> dict[str, Any]:
        """Return the side as a JSON object."""
        return {"label": self.label, "location": self.location.to_json(), "text": self.text}


@dataclass(frozen=True, slots=True)
class Finding:
    """One disagreement between two places of a tree.

    Attributes:
        symbol: The dotted name that it is about, a kernel for example.
        fix: One sentence that says what to change.
        fingerprint: A name that stays the same when lines move.
        scope: The dotted name of the code that is at fault, the caller for example.
        cause: Findings with the same cause are shown as one; empty for a cause of its own.
        also: Fingerprints of the findings that are shown with this one.
        level_if_new: The level of a finding that a change brings. A fault that was shipped and works may lie on a path
            that no caller takes. A new one has no such excuse.
    """

    rule: str
    level: Level
    message: str
    location: Location
    symbol: str
    sides: tuple[Side, ...] = ()
    fix: str = ""
    fingerprint: str = ""
    scope: str = ""
    cause: str = field(default="", compare=False)
    also: tuple[str, ...] = ()
    level_if_new: Level | None = field(default=None, compare=False)

    def to_json(self) -> dict[str, Any]:
        """Return the finding as a JSON object, with its fingerprint."""
        return {
            "rule": self.rule,
            "level": self.level.value,
            "message": self.message,
            "location": self.location.to_json(),
            "symbol": self.symbol,
            "sides": [side.to_json() for side in self.sides],
            "fix": self.fix,
            "fingerprint": self.fingerprint,
            "scope": self.scope,
            "also": list(self.also),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Finding:
        """Return the finding that `to_json` turned into `data`."""
        sides = tuple(Side(s["label"], Location(**s["location"]), s["text"]) for s in data["sides"])
        return cls(
            data["rule"],
            Level(data["level"]),
            data["message"],
            Location(**data["location"]),
            data["symbol"],
            sides,
            data["fix"],
            data["fingerprint"],
            data.get("scope", ""),
            also=tuple(data.get("also", ())),
        )


def fingerprint(rule: str, symbol: str, *disagreement: str) -> str:
    """Return a name for a disagreement that contains neither lines nor files: 16 hexadecimal digits.

    Args:
        rule: id of the rule.
        symbol: dotted name of the faulty code.
        *disagreement: texts of both sides.
    """
    text = "\0".join((rule, symbol, *disagreement))
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
