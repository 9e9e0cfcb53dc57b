"""Requirement lines of FLEET.toml, with the files that they name in their place."""

from __future__ import annotations

from pathlib import Path

from verispec.fleet.fields import Table, wrong


def with_files_inlined(table: Table, key: str, lines: tuple[str, ...], base: Path | None = None) -> tuple[str, ...]:
    """Return `lines` with the content of each ``-r FILE`` instead of it, so that other machines need no files.

    Args:
        table: place of the lines in the file.
        key: key of the lines in the table.
        lines: requirement lines.
        base: folder that paths are relative to; None for that of FLEET.toml.

    Raises:
        VerispecError: V-FLEET-FILE, a file cannot be read.
    """
    folder = table.path.parent if base is None else base
    found: list[str] = []
    for line in map(str.strip, lines):
        option, _, name = line.partition(" ")
        if option not in ("-r", "--requirement"):
            found.append(line)
            continue
        path = folder / name.strip()
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise wrong(
                table.path,
                f"{table.where} {key}: {name.strip()!r} cannot be read",
                cause=error.strerror or str(error),
                hint=f"name an existing file; its path is relative to {folder.absolute()}",
            ) from error
        inner = tuple(line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#"))
        found += with_files_inlined(table, key, inner, path.parent)
    return tuple(found)
