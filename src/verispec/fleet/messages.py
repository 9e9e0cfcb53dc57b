"""Messages from a piece to the driver: one JSON value per line on the piece's standard output.

Most are events of `verispec.run.events`, by the names of their classes; the rest is below.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from verispec.errors import VerispecError
from verispec.run.events import CaseEnded, Collected, Waiting, Warned
from verispec.run.json_lines import to_line


@dataclass(frozen=True, slots=True)
class Begun:
    """The engine is ready; `header` is what a run on it would write first."""

    header: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Explained:
    """A failing case passes with the reference's kernels: `record` names them."""

    record: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Refused:
    """The piece cannot be carried out, now or ever; `diagnostic` says why."""

    diagnostic: dict[str, str]
    exit_code: int

    @property
    def error(self) -> VerispecError:
        """The error that the piece met."""
        fields = dict(self.diagnostic)
        return VerispecError(fields.pop("code"), fields.pop("message"), **fields, exit_code=self.exit_code)


@dataclass(frozen=True, slots=True)
class Done:
    """The piece is over, and all of its messages came before."""


Message = Begun | CaseEnded | Collected | Explained | Refused | Waiting | Warned | Done

_TYPES: Mapping[str, type[Any]] = {kind.__name__: kind for kind in Message.__args__}


def written(message: Message) -> bytes:
    """Return the line of a message."""
    return to_line({"message": type(message).__name__, **asdict(message)}).encode()


def parsed(line: bytes) -> Message:
    """Return the message of a line.

    Raises:
        ValueError: the line is cut off, or no message.
    """
    fields = json.loads(line)
    try:
        message: Message = _TYPES[fields.pop("message")](**fields)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no message: {line[:80]!r}") from error
    return message


def refused(error: VerispecError) -> Refused:
    """Return the message about an error."""
    return Refused(error.diagnostic.to_json(), error.exit_code)
