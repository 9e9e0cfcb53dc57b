"""The package index that pip is configured for, read from the files and ``PIP_`` variables that pip reads."""

from __future__ import annotations

import configparser
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from verispec.errors import VerispecError

SECTIONS = ("global", "download")


@dataclass(frozen=True, slots=True)
class IndexConfig:
    """The package indexes, in order; `timeout` in seconds, `certificates` a bundle or ""."""

    indexes: tuple[str, ...]
    find_links: tuple[str, ...]
    timeout: float
    certificates: str


def index_config(environment: Mapping[str, str] = os.environ) -> IndexConfig:
    """Return the indexes that pip would use in `environment`.

    Raises:
        VerispecError: V-IDX-CONFIG, pip could not read a file either.
    """
    options: dict[str, str] = {}
    for path in _files(environment):
        options |= _read(path)
    prefix = "PIP_"
    options |= {
        name[len(prefix) :].lower().replace("_", "-"): value
        for name, value in environment.items()
        if name.startswith(prefix) and value
    }
    first = options.get("index-url") or default_index()
    indexes = [*filter(None, [first]), *options.get("extra-index-url", "").split()]
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


@cache
def default_index() -> str:
    """Return the index that pip uses without configuration; empty if no pip is installed.

    Another process asks pip: importing it takes setuptools' distutils away from the process, whose engine may need it.
    """
    program = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
    asked = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=False)
    return asked.stdout.strip() if asked.returncode == 0 else ""


def _files(environment: Mapping[str, str]) -> Iterator[Path]:
    """Yield pip's configuration files, the least important first.

    The file PIP_CONFIG_FILE replaces the user's own.
    """
    own = environment.get("PIP_CONFIG_FILE", "")
    if own == os.devnull:
        return
    home = Path(environment.get("HOME") or Path.home())
    users: list[Path]
    if sys.platform == "win32":
        name = "pip.ini"
        shared = [Path(environment.get("PROGRAMDATA", "C:\\ProgramData")) / "pip" / name]
        users = [home / "pip" / name, Path(environment.get("APPDATA", home)) / "pip" / name]
    elif sys.platform == "darwin":
        name = "pip.conf"
        shared = [Path("/Library/Application Support/pip") / name, Path("/etc") / name]
        library = home / "Library" / "Application Support" / "pip"
        users = [home / ".pip" / name, (library if library.is_dir() else home / ".config" / "pip") / name]
    else:
        name = "pip.conf"
        folders = (environment.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":")
        shared = [*(Path(folder) / "pip" / name for folder in folders if folder), Path("/etc") / name]
        config = environment.get("XDG_CONFIG_HOME") or home / ".config"
        users = [home / ".pip" / name, Path(config) / "pip" / name]
    yield from shared
    if not (own and Path(own).exists()):
        yield from users
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
