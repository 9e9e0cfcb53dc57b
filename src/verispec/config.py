"""Options from a file, so that command lines stay short: ``verispec.toml``, or ``[tool.verispec]`` in pyproject.toml.

    [run]
    engine = "vllm"
    expect = "known_failures.toml"
    n = 2

One table per command; keys are the names of its options without dashes. A path is relative to the file. What the
command line says wins. The nearest file counts, from the working folder upwards to the root of the git repository.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verispec.errors import VerispecError

FILE, PROJECT = "verispec.toml", "pyproject.toml"


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a command: name of its parameter, spellings, and flags for paths and lists."""

    name: str
    spellings: tuple[str, ...]
    is_path: bool = False
    many: bool = False


def find(start: Path) -> tuple[Path, Mapping[str, Any]] | None:
    """Return the nearest configuration file at or above `start` and its tables, or None.

    Raises:
        VerispecError: V-CONFIG, the file cannot be read or is not TOML.
    """
    for folder in (start, *start.parents):
        for name in (FILE, PROJECT):
            path = folder / name
            if path.is_file():
                loaded = _parsed(path)
                tables = loaded if name == FILE else loaded.get("tool", {}).get("verispec")
                if tables is not None:
                    return path, tables
        if (folder / ".git").exists():
            return None
    return None


def defaults(
    found: tuple[Path, Mapping[str, Any]], command: str, commands: Sequence[str], options: Sequence[Option]
) -> dict[str, Any]:
    """Return the values for `command` by parameter name.

    Args:
        found: the file and its tables, from `find`.
        command: the command that is called.
        commands: the names of all commands.
        options: the options of `command`.

    Raises:
        VerispecError: V-CONFIG, a table or a key that does not exist, or a value where a table is expected.
    """
    path, tables = found
    for name, table in tables.items():
        if name not in commands:
            raise _unknown(path, f"[{name}]", "command", name, commands)
        if not isinstance(table, Mapping):
            raise VerispecError(
                "V-CONFIG", f"{name} is not a table", where=str(path), hint=f"write [{name}] and the options below it"
            )
    return dict(_values(path, command, tables.get(command, {}), options))


def _values(path: Path, command: str, table: Mapping[str, Any], options: Sequence[Option]) -> Iterator[tuple[str, Any]]:
    by_spelling = {spelling: option for option in options for spelling in option.spellings}
    for key, value in table.items():
        option = by_spelling.get(key) or by_spelling.get(key.replace("_", "-"))
        if option is None:
            raise _unknown(path, f"[{command}] {key}", "option", key, list(by_spelling))
        values = value if isinstance(value, list) else [value]
        if option.is_path:
            values = [str(path.parent / str(each)) for each in values]
        yield option.name, values if option.many else values[0]


def _parsed(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise VerispecError(
            "V-CONFIG",
            "the configuration cannot be read",
            where=str(path),
            cause=str(error),
            hint="make it a readable TOML file in UTF-8: docs/reference/configuration.md",
        ) from error


def wrong_value(path: Path, where: str, reason: str) -> VerispecError:
    """Return the error V-CONFIG for a value at the place `where` that its option does not take."""
    return VerispecError(
        "V-CONFIG", f"{where}: {reason}", where=str(path), hint="write a value as the command line takes it"
    )


def _unknown(path: Path, where: str, kind: str, name: str, known: Sequence[str]) -> VerispecError:
    near = difflib.get_close_matches(name, known, n=3)
    return VerispecError(
        "V-CONFIG",
        f"{where}: there is no {kind} {name!r}",
        where=str(path),
        hint=f"did you mean {', '.join(near)}?" if near else f"known: {', '.join(sorted(known))}",
    )
