"""A folder as a tree. Links are not followed, so neither a loop nor a link out of the tree is ever walked."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verispec.cache_folder import cache_dir, read_json, write_json
from verispec.errors import Diagnostic, VerispecError
from verispec.static.sources._files import (
    MAX_FILE,
    MAX_FILES,
    blob_id,
    is_elsewhere,
    is_shown_whole,
    may_hold_source,
    shown,
    skipped,
)
from verispec.static.tree import SourceFile

RACY = 2_000_000_000
"""Nanoseconds. A file that changed this shortly before it was hashed may change again without a new time stamp."""


@dataclass(frozen=True, slots=True)
class FolderTree:
    """The source files of `root` as they lay there when it was opened."""

    root: Path
    listed: tuple[SourceFile, ...]
    diagnostics: tuple[Diagnostic, ...]

    def describe(self) -> str:
        """Return the path of the folder."""
        return str(self.root)

    def files(self) -> tuple[SourceFile, ...]:
        """Return the source files, sorted."""
        return self.listed


@dataclass(frozen=True, slots=True)
class ReadFile:
    """Reads one regular file; raises OSError when it has become anything else."""

    path: str

    def __call__(self) -> bytes:
        # A link or a pipe may have taken the file's place since it was listed: follow none, wait for none.
        """Return the bytes."""
        handle = os.open(self.path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OSError(f"{shown(self.path)} is no longer a regular file")
            data = file.read(MAX_FILE + 1)
        if len(data) > MAX_FILE:
            raise OSError(f"{shown(self.path)} has grown beyond {MAX_FILE} bytes")
        return data


class _Walk:
    """Collects the source files below a folder, and the reasons for omitted files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.found: list[tuple[str, str, os.stat_result]] = []
        self.links: list[str] = []
        self.nested: list[str] = []
        self.too_large: list[str] = []
        self.unreadable: list[str] = []
        self.odd_names: list[str] = []
        self.too_many = False

    def run(self) -> None:
        folders = [(str(self.root), "")]
        while folders and not self.too_many:
            folder, prefix = folders.pop()
            try:
                with os.scandir(folder) as entries:
                    listing = sorted(entries, key=lambda entry: entry.name)
            except OSError:
                self.unreadable.append(shown(prefix or "."))
                continue
            names = {entry.name for entry in listing}
            if prefix and ".git" in names:
                self.nested.append(shown(prefix.rstrip("/")))
            elif not prefix or not names & {"pyvenv.cfg", "CMakeCache.txt"}:
                folders += [
                    (entry.path, f"{prefix}{entry.name}/")
                    for entry in listing
                    if self._take(entry, prefix + entry.name)
                ]

    def _take(self, entry: os.DirEntry[str], path: str) -> bool:
        """Record `entry` if it is a source file; say whether it is a folder to walk."""
        try:
            if entry.is_symlink():
                if may_hold_source(path) or not entry.is_file():
                    self.links.append(shown(path))
            elif entry.is_dir(follow_symlinks=False):
                return not is_elsewhere(entry.name) and not path.startswith("build/lib")
            elif may_hold_source(path) and entry.is_file(follow_symlinks=False):
                self._file(entry, path)
        except OSError:  # a loop of links, or gone since the folder was listed
            (self.links if entry.is_symlink() else self.unreadable).append(shown(path))
        return False

    def _file(self, entry: os.DirEntry[str], path: str) -> None:
        state = entry.stat(follow_symlinks=False)
        if state.st_size > MAX_FILE:
            self.too_large.append(shown(path))
            return
        if not is_shown_whole(path):
            self.odd_names.append(shown(path))
        self.found.append((shown(path), entry.path, state))
        self.too_many = len(self.found) >= MAX_FILES

    def diagnostics(self) -> list[Diagnostic]:
        result = skipped(
            links=self.links,
            nested=self.nested,
            too_large=self.too_large,
            unreadable=self.unreadable,
            odd_names=self.odd_names,
        )
        if self.too_many:
            result.append(too_many(str(self.root)))
        return result


def too_many(where: str) -> Diagnostic:
    """Return the diagnostic of a tree with too many files, at the place `where`."""
    return Diagnostic(
        "V-SRC-TOO-MANY",
        f"the tree has more than {MAX_FILES} source files; the rest is not read",
        where,
        hint="name the folder of the package itself",
    )


def open_folder(root: Path) -> FolderTree:
    """Return the source files of the folder `root`.

    Raises:
        VerispecError: V-SRC-UNREADABLE, the folder itself cannot be listed.
    """
    root = root.resolve()
    if not os.access(root, os.R_OK | os.X_OK):
        raise VerispecError(
            "V-SRC-UNREADABLE",
            "the folder cannot be listed",
            where=str(root),
            hint="allow this user to read and enter the folder",
        )
    walk = _Walk(root)
    walk.run()
    blobs = _Blobs(root)
    files = []
    for path, real, state in walk.found:
        read = ReadFile(real)
        try:
            files.append(SourceFile(path, blobs.name(path, state, read), read, state.st_size))
        except OSError:
            walk.unreadable.append(path)
    blobs.save()
    diagnostics = walk.diagnostics()
    if not files and _is_bare_repository(root):
        diagnostics.append(
            Diagnostic(
                "V-SRC-BARE",
                "a bare repository has no files of its own",
                str(root),
                hint=f"name a revision: {root}#HEAD",
            )
        )
    return FolderTree(root, tuple(files), tuple(diagnostics))


def _is_bare_repository(root: Path) -> bool:
    return (root / "HEAD").is_file() and (root / "objects").is_dir() and (root / "refs").is_dir()


class _Blobs:
    """Content names by time stamp, kept between calls, so that an unchanged file is not even opened."""

    def __init__(self, root: Path) -> None:
        key = hashlib.blake2b(os.fsencode(root), digest_size=16).hexdigest()
        self.path = cache_dir() / "folders-1" / f"{key}.json"
        known = read_json(self.path)
        self.known: dict[str, Any] = known if isinstance(known, dict) else {}
        self.current: dict[str, Any] = {}
        self.changed = False

    def name(self, path: str, state: os.stat_result, read: ReadFile) -> str:
        # ctime moves with every write, even when someone puts the old mtime back.
        stamp = [state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino]
        entry = self.known.get(path)
        if isinstance(entry, list) and len(entry) == 5 and entry[:4] == stamp:
            self.current[path] = entry
            return str(entry[4])
        self.changed = True
        blob = blob_id(read())
        if time.time_ns() - state.st_ctime_ns > RACY:
            self.current[path] = [*stamp, blob]
        return blob

    def save(self) -> None:
        if self.changed or self.current.keys() != self.known.keys():
            write_json(self.path, self.current)
