"""Unpack a revision, archive or release so that an engine can be imported from it; the work tree is not touched."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.machinery
import os
import shutil
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from verispec import exits
from verispec.cache_folder import cache_dir
from verispec.errors import VerispecError


def unpack(source: str) -> Path:
    """Return a folder with all files of `source`: a folder, folder#REV, an archive or ``name==version``.

    A folder is used as it is; anything else is unpacked into the cache once, under a name of its content.

    Raises:
        VerispecError: V-SRC-NOT-FOUND, V-SRC-UNREADABLE, V-GIT-*, V-IDX-*, V-CACHE-WRITE.
    """
    require_source(source)
    path = Path(source).expanduser()
    if path.is_dir():
        return path.resolve()
    folder, hash_sign, revision = source.rpartition("#")
    if hash_sign and Path(folder or ".").expanduser().is_dir():
        return _revision(Path(folder or ".").expanduser(), revision)
    if not path.is_file():
        from verispec.static.sources.releases import fetch, parse_release

        release = parse_release(source)
        assert release is not None
        path = fetch(release)
    return _archive(path)


def require_source(source: str) -> None:
    """Raise VerispecError V-SRC-NOT-FOUND if `source` names nothing that is here or that an index could have."""
    from verispec.static.sources.releases import parse_release

    folder, hash_sign, _ = source.rpartition("#")
    is_revision = hash_sign and Path(folder or ".").expanduser().is_dir()
    if not is_revision and not Path(source).expanduser().exists() and parse_release(source) is None:
        raise VerispecError(
            "V-SRC-NOT-FOUND",
            "no such folder, revision, archive or release",
            where=source,
            hint="after the @ give a folder, folder#REV, an sdist or wheel, or name==version",
        )


# Python before 3.11.4 has no filters. The files are imported next, so that their author is trusted in any case.
_FILTER: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


def _revision(folder: Path, revision: str) -> Path:
    from verispec.static.sources.git import Repository

    repository = Repository(folder)
    commit = repository.resolve(revision)
    part = hashlib.sha256(repository.run("rev-parse", "--show-prefix").encode()).hexdigest()[:8]

    def fill(target: Path) -> None:
        packed = target.with_suffix(".tar")
        try:
            repository.run("archive", "--format=tar", "-o", str(packed), commit)
            with tarfile.open(packed) as archive:
                archive.extractall(target, **_FILTER)
        finally:
            packed.unlink(missing_ok=True)

    return filled_folder("checkouts", f"{commit}-{part}", fill)


def _archive(path: Path) -> Path:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()

    def fill(target: Path) -> None:
        try:
            if zipfile.is_zipfile(path):
                with zipfile.ZipFile(path) as archive:
                    archive.extractall(target)
            else:
                with tarfile.open(path) as tar:
                    tar.extractall(target, **_FILTER)
        except (OSError, tarfile.TarError, zipfile.BadZipFile, EOFError) as error:
            raise VerispecError(
                "V-SRC-UNREADABLE",
                "the archive cannot be unpacked",
                where=str(path),
                cause=str(error),
                hint="download the archive again, or unpack it and name the folder",
            ) from error

    return _project_folder(filled_folder("checkouts", digest, fill))


def filled_folder(kind: str, name: str, fill: Callable[[Path], None]) -> Path:
    """Return a folder of the cache, filled at the first call; several processes may ask at once.

    Args:
        kind: name of the cache's part.
        name: name of the folder in it, which stands for its content.
        fill: function that writes into the folder that it gets.

    Raises:
        VerispecError: V-CACHE-WRITE, the cache cannot be written.
    """
    parent = cache_dir() / kind
    target = parent / name
    if target.is_dir():
        return target
    try:
        parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=parent, prefix=f".{name[:12]}-"))
    except OSError as error:
        raise VerispecError(
            "V-CACHE-WRITE",
            "the cache cannot be written",
            where=str(parent),
            cause=str(error),
            hint="make that folder writable, or name another one in VERISPEC_CACHE_DIR",
            exit_code=exits.CANNOT_TELL,
        ) from error
    try:
        fill(temporary)
        with contextlib.suppress(OSError):  # another process was faster
            temporary.rename(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target


def _project_folder(folder: Path) -> Path:
    """Return the one folder that an sdist holds, or `folder` itself for a wheel."""
    inside = list(folder.iterdir())
    return inside[0] if len(inside) == 1 and inside[0].is_dir() and not (inside[0] / "__init__.py").exists() else folder


@contextlib.contextmanager
def imported_from(root: Path, engine: str) -> Iterator[None]:
    """Import from `root` (and ``root/src``) first, ahead of installed packages, editable ones included.

    The search path stays: engines import as they run. On leaving, a module of `root` must have been imported.

    Args:
        root: folder of the source.
        engine: ``module:attr``, for messages.

    Raises:
        VerispecError: V-ENG-ELSEWHERE, if everything came from other places.
    """
    roots = [str(path) for path in (root / "src", root) if path.is_dir()]
    sys.path[:0] = roots
    os.environ["PYTHONPATH"] = os.pathsep.join([*roots, *filter(None, [os.environ.get("PYTHONPATH", "")])])
    first = next((i for i, finder in enumerate(sys.meta_path) if not getattr(finder, "stays_first", False)), 0)
    sys.meta_path.insert(first, _RootFinder(roots))
    yield
    if not any(_lies_in(module, root) for module in list(sys.modules.values())):
        module_name = engine.partition(":")[0]
        found = getattr(sys.modules.get(module_name), "__file__", None)
        raise VerispecError(
            "V-ENG-ELSEWHERE",
            "no module of the engine was imported from this source",
            where=f"--engine {engine}",
            cause=f"{module_name} is {found}, and nothing below {root} was imported",
            hint="the source must hold the engine's package at its top or below src; "
            "an adapter outside of it must import that package at its top",
            exit_code=exits.CANNOT_TELL,
        )


class _RootFinder(importlib.machinery.PathFinder):
    """Finds top-level modules below some folders only; it stands ahead of the hooks of editable installs."""

    def __init__(self, roots: Sequence[str]) -> None:
        self._roots = list(roots)

    def find_spec(  # type: ignore[override]
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of a top-level module or package with an ``__init__``; None for anything else."""
        spec = None if path is not None else importlib.machinery.PathFinder.find_spec(fullname, self._roots)
        return spec if spec is not None and spec.origin is not None else None


def _lies_in(module: object, root: Path) -> bool:
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and Path(file).resolve().is_relative_to(root.resolve())
