"""Typed access to the tables of FLEET.toml; each error names the place, the expected and the actual value."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from verispec.errors import VerispecError

_UNITS = {"MB": 10**6, "MiB": 1 << 20, "GB": 10**9, "GiB": 1 << 30}


def wrong(path: Path, message: str, *, cause: str = "", hint: str = "") -> VerispecError:
    """Return the error V-FLEET-FILE about the file `path`."""
    return VerispecError(
        "V-FLEET-FILE",
        message,
        where=str(path),
        cause=cause,
        hint=hint or "docs/reference/fleet-file.md lists the keys",
    )


class Table:
    """One table of the file.

    Args:
        path: path of the file.
        where: the table's place in it, such as ``[[engine]] 2``.
        values: its content.

    Raises:
        VerispecError: V-FLEET-FILE, `values` is no table.
    """

    def __init__(self, path: Path, where: str, values: Any) -> None:
        self.path, self.where = path, where
        if not isinstance(values, Mapping):
            raise wrong(path, f"{where}: expected a table, got {values!r}")
        self.values: Mapping[str, Any] = values

    @property
    def name(self) -> str:
        """The last part of the place."""
        return self.where.strip("[]").rpartition(".")[2]

    def wrong(self, key: str, expected: str, got: Any = None) -> VerispecError:
        """Return the error for a value of `key` that is not `expected`."""
        value = self.values.get(key) if got is None else got
        found = repr(value)[:80] if key in self.values else "nothing"
        return wrong(self.path, f"{self._place(key)}: expected {expected}, got {found}")

    def text(self, key: str, default: str | None = None) -> str:
        """Return a text that is not empty; without a default it must be there."""
        value = self._get(key, default)
        if value == default and default is not None:
            return default
        if not isinstance(value, str) or not value.strip():
            raise self.wrong(key, "a text that is not empty")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts; one text counts as a list."""
        value = self._get(key, ())
        value = [value] if isinstance(value, str) else value
        if not isinstance(value, Sequence) or not all(isinstance(each, str) and each.strip() for each in value):
            raise self.wrong(key, "a list of texts")
        return tuple(value)

    def choice(self, key: str, known: Sequence[str]) -> str | None:
        """Return one of `known`, or None if the key is not there."""
        value = self._get(key, None)
        if value is not None and value not in known:
            raise self.wrong(key, " or ".join(map(repr, known)))
        return None if value is None else str(value)

    def flag(self, key: str) -> bool:
        """Return a truth value, false if it is not there."""
        value = self._get(key, False)
        if not isinstance(value, bool):
            raise self.wrong(key, "true or false")
        return value

    def whole(self, key: str, default: Any, minimum: int = 0) -> Any:
        """Return a whole number from `minimum` on."""
        value = self._get(key, default)
        if value is default and key not in self.values:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
            raise self.wrong(key, f"a whole number from {minimum} on")
        return value

    def number(self, key: str, default: float, minimum: float = 0) -> float:
        """Return a number from `minimum` on."""
        value = self._get(key, default)
        if key not in self.values:
            return default
        if not _is_number(value) or value < minimum:
            raise self.wrong(key, f"a number from {minimum:g} on")
        return float(value)

    def memory(self, key: str, default: int) -> int:
        """Return a size in bytes, written like ``2 GB``."""
        value = self._get(key, default)
        if key not in self.values:
            return default
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([MG]i?B)", value) if isinstance(value, str) else None
        if match is None or not float(match[1]):
            raise self.wrong(key, "a size such as '2 GB' or '512 MB'")
        return int(float(match[1]) * _UNITS[match[2]])

    def strings(self, key: str) -> dict[str, str]:
        """Return a table of texts; numbers become texts."""
        table = self.table(key)
        for name, value in table.values.items():
            if isinstance(value, bool) or not isinstance(value, (str, int, float)):
                raise table.wrong(name, "a text")
        return {name: str(value) for name, value in table.values.items()}

    def numbers(self, key: str) -> Mapping[str, float]:
        """Return a table of positive numbers."""
        table = self.table(key)
        for name, value in table.values.items():
            if not _is_number(value) or value <= 0:
                raise table.wrong(name, "a number above 0")
        return table.values

    def table(self, key: str) -> Table:
        """Return a table, empty if it is not there."""
        return Table(self.path, self._place(key), self._get(key, {}))

    def tables(self, key: str) -> list[Table]:
        """Return the tables that are written ``[[key]]``."""
        value = self._get(key, [])
        if not isinstance(value, list):
            raise wrong(self.path, f"{key}: expected [[{key}]], with two pairs of brackets, got {value!r:.80}")
        return [Table(self.path, f"[[{key}]] {number}", entry) for number, entry in enumerate(value, 1)]

    def read(self, key: str, reader: Callable[[str], Any], text: str) -> Any:
        """Return `reader(text)` for a value of `key`; its error becomes V-FLEET-FILE with the place."""
        try:
            return reader(text)
        except VerispecError as error:
            said = error.diagnostic
            raise wrong(self.path, f"{self._place(key)}: {said.message}", cause=said.cause, hint=said.hint) from error

    def require_only(self, known: Sequence[str]) -> None:
        """Raise VerispecError V-FLEET-FILE if the table has another key than those of `known`."""
        for key in self.values:
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1)
                raise wrong(
                    self.path,
                    f"{self._place(key)}: there is no such key",
                    hint=f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}",
                )

    def _get(self, key: str, default: Any) -> Any:
        return self.values.get(key, default)

    def _place(self, key: str) -> str:
        return f"{self.where} {key}".strip()


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
