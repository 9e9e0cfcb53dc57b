"""Releases from the package index: which there are, and the file of one of them, hash checked and cached."""

from __future__ import annotations

import bisect
import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name, canonicalize_version
from packaging.version import InvalidVersion, Version

from verispec import exits
from verispec.cache_folder import cache_dir, read_json, write_json, writing
from verispec.errors import VerispecError
from verispec.static.pipeline import Progress
from verispec.static.sources._index import Link, download, project_links
from verispec.static.sources._pip import index_config

MAX_DOWNLOAD = 2 * 2**30
"""Maximum bytes stored for one release of an index."""


@dataclass(frozen=True, slots=True)
class Release:
    """One version of one project, under the name that the index knows it by."""

    name: str
    version: Version

    def __str__(self) -> str:
        return f"{self.name}=={self.version}"


def parse_release(text: str) -> Release | None:
    """Return the release of ``name==version``; None for a `text` of another form."""
    name, equals, version = text.partition("==")
    try:
        if equals and Requirement(name).name == name.strip():
            return Release(canonicalize_name(name.strip()), Version(version))
    except (InvalidRequirement, InvalidVersion):
        pass
    return None


def versions(name: str, progress: Progress | None = None) -> dict[Version, str]:
    """Return every version of a project that an index has sources of, oldest first.

    Args:
        name: name of the project.
        progress: function that receives the bytes of a download.

    Returns:
        Time of upload by version, "" if unknown.

    Raises:
        VerispecError: those of `project_links`.
    """
    config = index_config()
    found: dict[Version, str] = {}
    for link in project_links(canonicalize_name(name), config, progress):
        found[link.version] = min(filter(None, (found.get(link.version, ""), link.uploaded)), default="")
    return dict(sorted(found.items()))


def fetch(release: Release, *, progress: Progress | None = None) -> Path:
    """Return the file of a release: its sdist, or else a wheel. Use the network only for files that are not cached.

    Args:
        release: project and version.
        progress: function that receives the bytes of a download.

    Raises:
        VerispecError: V-IDX-OFFLINE, V-IDX-NO-PROJECT, V-IDX-NO-RELEASE, V-IDX-HASH, V-IDX-TOO-LARGE.
    """
    folder = cache_dir() / "releases" / release.name / canonicalize_version(release.version)
    known = read_json(folder / "file.json")
    if isinstance(known, dict):
        cached = folder / Path(str(known.get("name"))).name
        if cached.is_file() and _sha256(cached) == known.get("sha256"):
            return cached
    config = index_config()
    links = list(project_links(release.name, config, progress))
    link = _best(release, links)
    path = folder / link.filename
    digests = {name: hashlib.new(name) for name in {"sha256", *link.hashes}}
    size = 0
    with writing(path) as file:
        for chunk, total in download(link.url, config):
            size += len(chunk)
            if size > MAX_DOWNLOAD:
                raise VerispecError(
                    "V-IDX-TOO-LARGE",
                    f"the index sends more than {MAX_DOWNLOAD // 2**30} GiB",
                    where=link.shown_url,
                    hint="download and unpack the release yourself, and name its folder",
                    exit_code=exits.CANNOT_TELL,
                )
            file.write(chunk)
            for digest in digests.values():
                digest.update(chunk)
            if progress is not None:
                progress(f"fetching {link.filename}", size, total)
        for name, expected in link.hashes.items():
            if not hmac.compare_digest(digests[name].hexdigest(), expected.lower()):
                raise VerispecError(
                    "V-IDX-HASH",
                    f"expected {name} {expected}, got {digests[name].hexdigest()}",
                    where=link.shown_url,
                    cause="the file is not the one that the index lists: broken on the way, or replaced",
                    hint="try again; if it stays so, do not trust this index",
                    exit_code=exits.CANNOT_TELL,
                )
    write_json(folder / "file.json", {"name": link.filename, "sha256": digests["sha256"].hexdigest()})
    return path


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _best(release: Release, links: Iterable[Link]) -> Link:
    """Return the sdist, which has the C++ sources too; else the wheel for any platform; else any wheel."""
    links = list(links)
    fitting = [link for link in links if link.version == release.version]
    if fitting:
        return min(fitting, key=lambda link: (link.is_wheel, "-any.whl" not in link.filename, link.filename))
    near = _around(sorted({link.version for link in links}), release.version)
    raise VerispecError(
        "V-IDX-NO-RELEASE",
        f"the index has no source of {release}",
        where=str(release),
        hint=f"known releases are {', '.join(map(str, near))}" if near else "it has no file that can be read at all",
    )


def _around(versions: list[Version], version: Version, number: int = 5) -> list[Version]:
    """Return `number` of the sorted `versions`, as many older as newer than `version` where there are as many."""
    at = bisect.bisect(versions, version)
    start = max(0, min(at - number // 2, len(versions) - number))
    return versions[start : start + number]
