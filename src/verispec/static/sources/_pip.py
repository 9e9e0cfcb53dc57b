"""The package index that pip is configured for, read from the files and ``PIP_`` variables that pip reads."""

from __future__ import annotations

import configparser
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from verispec.errors import VerispecError

DEFAULT_INDEX = "https://pypi.org/simple"
SECTIONS = ("global", "download")


@dataclass(frozen=True, slots=True)
class IndexConfig:
    """Where releases are looked for, in order; `timeout` in seconds, `certificates` a bundle or ""."""

    indexes: tuple[str, ...]
    find_links: tuple[str, ...]
    timeout: float
    certificates: str


def index_config(environment: Mapping[str, str] = os.environ) -> IndexConfig:
    """What pip would use in `environment`. Raises VerispecError (V-IDX-CONFIG) for a file that pip could not read."""
    options: dict[str, str] = {}
    for path in _files(environment):
        options |= _read(path)
    prefix = "PIP_"
    options |= {
        name[len(prefix) :].lower().replace("_", "-"): value
        for name, value in environment.items()
        if name.startswith(prefix) and value
    }
    indexes = [options.get("index-url", DEFAULT_INDEX), *options.get("extra-index-url", "").split()]
    try:
        timeout = float(options.get("timeout", options.get("default-timeout", "15")))
    except ValueError:
        timeout = 15.0
    return IndexConfig(
        indexes=() if options.get("no-index", "").lower() in {"1", "true", "yes", "on"} else tuple(indexes),
        find_links=tuple(options.get("find-links", "").split()),
        timeout=timeout,
        certificates=options.get("cert", ""),
    )


def _files(environment: Mapping[str, str]) -> Iterator[Path]:
    """pip's configuration files, the least important first."""
    own = environment.get("PIP_CONFIG_FILE", "")
    if own == os.devnull:
        return
    home = Path(environment.get("HOME") or Path.home())
    name = "pip.ini" if sys.platform == "win32" else "pip.conf"
    if sys.platform == "win32":
        yield Path(environment.get("PROGRAMDATA", "C:\\ProgramData")) / "pip" / name
        yield home / "pip" / name
        yield Path(environment.get("APPDATA", home)) / "pip" / name
    else:
        shared = environment.get("XDG_CONFIG_DIRS") or "/etc/xdg"
        if sys.platform == "darwin":
            shared = "/Library/Application Support"
        yield from (Path(folder) / "pip" / name for folder in shared.split(":") if folder)
        yield Path("/etc") / name
        yield home / ".pip" / name
        library = home / "Library" / "Application Support" / "pip"
        if sys.platform == "darwin" and library.is_dir():
            yield library / name
        else:
            yield Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / "pip" / name
    yield Path(sys.prefix) / name
    if own:
        yield Path(own)


def _read(path: Path) -> dict[str, str]:
    parser = configparser.RawConfigParser()
    try:
        parser.read(path, encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError) as error:
        raise VerispecError(
            "V-IDX-CONFIG",
            "pip's configuration file cannot be read",
            where=str(path),
            cause=str(error).partition("\n")[0],
            hint="pip config debug shows what pip makes of it",
        ) from error
    options: dict[str, str] = {}
    for section in SECTIONS:
        if parser.has_section(section):
            options |= {key.lower().replace("_", "-"): value for key, value in parser.items(section) if value}
    return options
