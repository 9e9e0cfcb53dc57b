"""An sdist, a wheel or any other tar or zip archive as a tree.

An archive is read once, front to back, and never unpacked: its source files go one behind the other into a
single pack in the cache, named by the hash of the archive. So no name in it ever becomes a path on this machine.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any

from verispec.cache_folder import cache_dir, read_json, write_json, writing
from verispec.errors import Diagnostic, VerispecError
from verispec.static.pipeline import Progress
from verispec.static.sources._files import (
    MAX_FILE,
    MAX_FILES,
    blob_id,
    is_shown_whole,
    may_hold_source,
    shown,
    skipped,
)
from verispec.static.sources.folder import too_many
from verispec.static.tree import ListedTree, SourceFile

MAX_RATIO = 100
"""Maximum ratio of content to archive. Source shrinks 4 to 10 times; bombs shrink 1000 times and more."""

FREE_BYTES = 64 * 2**20
"""An archive may always hold this much, however small it is: a few long runs of zeros are no bomb."""

PROJECT_FILES = frozenset({"PKG-INFO", "pyproject.toml", "setup.py"})

MAX_ENTRIES = 1_000_000

HEADER_BYTES = 4 * 2**20
"""Maximum bytes of the headers of one tar entry; long names and extended attributes need kilobytes."""

BROKEN = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    OSError,
    ValueError,
    OverflowError,
    IndexError,
    KeyError,
    RuntimeError,
)
"""Exceptions of the standard library's readers for broken, encrypted or forged archives."""


@dataclass(frozen=True, slots=True)
class ReadSlice:
    """Reads one file's bytes from a pack."""

    pack: str
    offset: int
    size: int

    def __call__(self) -> bytes:
        """Return the bytes."""
        with Path(self.pack).open("rb") as file:
            file.seek(self.offset)
            return file.read(self.size)


class _Bomb(Exception):
    """The archive holds far more than its size allows."""


@dataclass
class _Entries:
    """The contents of an archive, and the skipped entries with reasons."""

    files: dict[str, tuple[str, int, int]] = field(default_factory=dict)  # by path: blob, offset, size
    tops: set[str] = field(default_factory=set)
    is_project: bool = False
    links: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)
    too_large: list[str] = field(default_factory=list)
    odd_names: list[str] = field(default_factory=list)
    stopped: Diagnostic | None = None

    def diagnostics(self) -> list[Diagnostic]:
        result = skipped(links=self.links, outside=self.outside, too_large=self.too_large, odd_names=self.odd_names)
        return [*result, self.stopped] if self.stopped else result


def is_archive(path: Path) -> bool:
    """Return True if `path` is a tar (plain or compressed) or zip archive, by its content."""
    try:
        return _compression(path) != "" or zipfile.is_zipfile(path)
    except BROKEN:
        return False


def open_archive(path: Path, *, name: str = "", progress: Progress | None = None) -> ListedTree:
    """Return the source files of an archive.

    A broken or adversarial archive gives the files that can be read, and a diagnostic.

    Args:
        path: path of a zip or tar file.
        name: name of the tree, for reports; the file's name if empty.
        progress: function that receives the bytes of a download.

    Raises:
        VerispecError: V-SRC-UNREADABLE, the file itself cannot be read.
    """
    name = name or path.name
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise VerispecError(
            "V-SRC-UNREADABLE",
            "the archive cannot be read",
            where=str(path),
            cause=str(error),
            hint="name a zip or tar file that this user may read",
        ) from error
    pack = cache_dir() / "archives-1" / f"{digest}.pack"
    listing = pack.with_suffix(".json")
    known = read_json(listing)
    if not (isinstance(known, dict) and pack.is_file() and pack.stat().st_size == known.get("bytes")):
        with writing(pack) as out:
            entries = _read(path, out, progress)
            known = {
                "bytes": out.tell(),
                "files": [[path, *rest] for path, rest in entries.files.items()],
                "diagnostics": [diagnostic.to_json() for diagnostic in entries.diagnostics()],
            }
        write_json(listing, known)
    files = tuple(
        SourceFile(file, blob, ReadSlice(str(pack), offset, size), size) for file, blob, offset, size in known["files"]
    )
    return ListedTree(name, files, tuple(Diagnostic(**diagnostic) for diagnostic in known["diagnostics"]))


def _read(path: Path, out: IO[bytes], progress: Progress | None) -> _Entries:
    """Append every source file of the archive to `out`."""
    entries = _Entries()
    limit = max(MAX_RATIO * path.stat().st_size, FREE_BYTES)
    where = path.name
    try:
        members = _zip_members(path, limit) if zipfile.is_zipfile(path) else _tar_members(path, limit)
        for number, (member, kind, data) in enumerate(members):
            if progress is not None and number % 200 == 0:
                progress(f"reading {where}", number, 0)
            if number >= MAX_ENTRIES or len(entries.files) >= MAX_FILES:
                entries.stopped = too_many(where)
                break
            _take(member, kind, data, entries, out)
    except _Bomb:
        entries.stopped = Diagnostic(
            "V-SRC-BOMB",
            "the archive unpacks to far more than its size allows; the rest of it is not read",
            where,
            cause=f"more than {MAX_RATIO} times its size, or entry headers of more than {HEADER_BYTES // 2**20} MiB",
            hint="treat it as an attack",
        )
    except BROKEN as error:
        entries.stopped = Diagnostic(
            "V-SRC-BROKEN-ARCHIVE",
            "the archive is broken or encrypted; files after the break are not read",
            where,
            cause=f"{type(error).__name__}: {error}"[:200],
            hint="fetch it again and compare its hash with the publisher's",
        )
    _strip_project_folder(entries)
    return entries


def _take(member: str, kind: str, data: bytes | None, entries: _Entries, out: IO[bytes]) -> None:
    path = shown(member.replace("\\", "/") if kind == "zip" else member)
    parts = PurePosixPath(path).parts
    if path.startswith("/") or ".." in parts or (parts and parts[0].endswith(":")):
        entries.outside.append(path)
        return
    entries.tops.update(parts[:1])
    entries.is_project |= len(parts) == 2 and parts[1] in PROJECT_FILES
    if kind == "link":
        entries.links.append(path)
    elif may_hold_source(path):
        if data is None:
            entries.too_large.append(path)
            return
        if not is_shown_whole(member):
            entries.odd_names.append(path)
        entries.files["/".join(parts)] = (blob_id(data), out.tell(), len(data))
        out.write(data)


def _strip_project_folder(entries: _Entries) -> None:
    """Drop the ``name-version/`` that an sdist puts before everything, so that paths equal those of a checkout."""
    if len(entries.tops) == 1 and entries.is_project:
        entries.files = {path.partition("/")[2] or path: rest for path, rest in entries.files.items()}


def _zip_members(path: Path, limit: int) -> Iterator[tuple[str, str, bytes | None]]:
    """Name, kind and content (None when too large) of every entry; sizes that the archive claims are not believed."""
    total = 0
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if info.is_dir():
                continue
            if (info.external_attr >> 16) & 0o170000 == 0o120000:
                yield info.filename, "link", None
            elif not may_hold_source(info.filename):
                yield info.filename, "zip", None
            else:
                with archive.open(info) as file:
                    data = file.read(MAX_FILE + 1)
                total += len(data)
                if total > limit:
                    raise _Bomb
                yield info.filename, "zip", data if len(data) <= MAX_FILE else None


def _tar_members(path: Path, limit: int) -> Iterator[tuple[str, str, bytes | None]]:
    """Name, kind and content (None when too large, or not source) of every entry that is a file or a link."""
    with path.open("rb") as raw:
        stream = _Metered(_decompressed(raw, _compression(path)), limit)
        stream.allow(HEADER_BYTES)
        with tarfile.open(fileobj=stream, mode="r|", errorlevel=0) as archive:  # type: ignore[call-overload]
            while True:
                member = archive.next()
                if member is None:
                    return
                archive.members = []  # kept for ever otherwise
                if member.issym() or member.islnk():
                    yield member.name, "link", None
                elif member.isreg():
                    data = None
                    wanted = may_hold_source(member.name) and 0 <= member.size <= MAX_FILE and not member.issparse()
                    stream.allow(max(member.size, 0) + HEADER_BYTES)
                    if wanted and (file := archive.extractfile(member)) is not None:
                        data = file.read()
                    yield member.name, "tar", data
                stream.allow(max(member.size, 0) + HEADER_BYTES)


def _compression(path: Path) -> str:
    """Return the compression of a tar archive, "tar" if it has none, and "" for anything else."""
    with path.open("rb") as file:
        head = file.read(512)
    for magic, kind in ((b"\x1f\x8b", "gz"), (b"BZh", "bz2"), (b"\xfd7zXZ\0", "xz")):
        if head.startswith(magic):
            return kind
    return "tar" if head[257:262] == b"ustar" else ""


def _decompressed(raw: IO[bytes], kind: str) -> Any:
    if kind == "gz":
        return gzip.GzipFile(fileobj=raw)
    openers: dict[str, Any] = {"bz2": bz2.BZ2File, "xz": lzma.LZMAFile}
    return openers[kind](raw) if kind in openers else raw


class _Metered:
    """A stream that gives no more than `limit` bytes in all, and no more than was allowed since the last entry."""

    def __init__(self, stream: Any, limit: int) -> None:
        self.stream = stream
        self.left = limit
        self.allowed = 0

    def allow(self, size: int) -> None:
        self.allowed = size

    def read(self, size: int) -> bytes:
        data: bytes = self.stream.read(size)
        self.left -= len(data)
        self.allowed -= len(data)
        if self.left < 0 or self.allowed < 0:
            raise _Bomb
        return data
