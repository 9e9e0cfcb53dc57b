"""Sources of trees: a folder, a git revision, an archive or a release, never written to.

    path/to/folder            the files as they lie there
    path/to/folder#REV        any git revision, read from the object store; the work tree is not touched
    vllm-0.33.0.tar.gz        an sdist, a wheel, or any other tar or zip archive
    vllm==0.33.0              a release, fetched from the package index that pip is configured for

Nothing of a tree is executed, and nothing is written outside `cache_dir()`.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

from verispec.cache_folder import cache_dir
from verispec.errors import VerispecError
from verispec.static.pipeline import Progress
from verispec.static.sources._files import INCOMPLETE, SUFFIXES, is_incomplete
from verispec.static.tree import Tree

if TYPE_CHECKING:
    from verispec.static.sources.releases import Release

__all__ = [
    "INCOMPLETE", "SUFFIXES", "facts_file", "is_incomplete", "open_release", "open_tree", "types_folder",
]  # fmt: skip

# Each kind of tree imports its reader where it is opened: a folder needs neither HTTP nor archives.


def open_tree(text: str, *, progress: Progress | None = None) -> Tree:
    """Return the source tree that `text` names.

    Args:
        text: folder, ``folder#REV``, archive, or ``name==version``.
        progress: function that receives the bytes of a download.

    Raises:
        VerispecError: V-SRC-NOT-FOUND or V-SRC-NOT-A-TREE, `text` names no tree; and those of the reader of its kind.
    """
    path = Path(text).expanduser()
    if path.is_dir():
        from verispec.static.sources.folder import open_folder

        return open_folder(path)
    if path.is_file():
        from verispec.static.sources.archive import is_archive, open_archive

        if is_archive(path):
            return open_archive(path, progress=progress)
        raise VerispecError(
            "V-SRC-NOT-A-TREE",
            "expected a source tree, got a single file that is not a tar or zip archive",
            where=text,
            hint="name the folder that holds it",
        )
    folder, hash_sign, revision = text.rpartition("#")
    if hash_sign and Path(folder or ".").expanduser().is_dir():
        from verispec.static.sources.git import Repository

        return Repository(Path(folder or ".").expanduser()).tree(revision)
    from verispec.static.sources.releases import parse_release

    release = parse_release(text)
    if release is not None:
        return open_release(release, progress=progress)
    raise VerispecError(
        "V-SRC-NOT-FOUND",
        "no such folder, revision, archive or release",
        where=text,
        cause=f"{folder or text!r} is not a folder here, and the text is not of the form name==version",
        hint="give a folder, folder#REV, an sdist or wheel, or name==version",
    )


def open_release(release: Release, *, progress: Progress | None = None) -> Tree:
    """Return the source tree of a release, from the cache or else from the package index.

    Args:
        release: project and version.
        progress: function that receives the bytes of a download.

    Raises:
        VerispecError: those of `releases.fetch` and `archive.open_archive`.
    """
    from verispec.static.sources.archive import open_archive
    from verispec.static.sources.releases import fetch

    return open_archive(fetch(release, progress=progress), name=str(release), progress=progress)


def types_folder() -> Path:
    """Return the cache folder for the errors of the type checker."""
    return cache_dir() / "types-1"


def facts_file(text: str) -> Path:
    """Return the cache file for trees named like `text`: one file per folder or project.

    All revisions of a folder share one file, and so do all releases of a project, since most of their content is
    the same; unrelated trees do not, so that none of them grows slow through others.
    """
    folder = Path(text if Path(text).is_dir() else text.rpartition("#")[0] or text).expanduser()
    project = re.split(r"[=-]", Path(text).name)[0]
    # Projects are called alike however their name is written, see PEP 503.
    key = str(folder.resolve()) if folder.is_dir() else re.sub(r"[-_.]+", "-", project).lower()
    return cache_dir() / "facts" / hashlib.blake2b(key.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
