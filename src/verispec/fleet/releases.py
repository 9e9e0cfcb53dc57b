"""Releases of FLEET.toml: one version, or a range of those that the package index has."""

from __future__ import annotations

from packaging.version import InvalidVersion, Version

from verispec import exits
from verispec.errors import VerispecError
from verispec.fleet.fields import Table
from verispec.static.sources.releases import Release, parse_release, versions


def expanded(text: str, table: Table) -> list[Release]:
    """Return the releases that `text` names, oldest first.

    A range ``project==FIRST..LAST`` holds both ends, and every release of a version that begins with LAST: 0.30..0.33
    ends with the newest 0.33.x. Pre-releases count only where an end is one.

    Args:
        text: ``project==VERSION`` or ``project==FIRST..LAST``.
        table: place in the file, for errors.

    Raises:
        VerispecError: V-FLEET-FILE, `text` has another form; V-FLEET-RELEASES, the index has none of the range.
    """
    project, _, range_ = text.partition("==")
    first, dots, last = range_.partition("..")
    if not dots:
        release = parse_release(text)
        if release is None:
            raise table.wrong("releases", "project==VERSION or project==FIRST..LAST", got=text)
        return [release]
    try:
        low, high = Version(first), Version(last)
    except InvalidVersion as error:
        raise table.wrong("releases", "project==FIRST..LAST with two versions", got=text) from error
    if low > high:
        raise table.wrong("releases", "a range from the older to the newer version", got=text)
    previews = low.is_prerelease or high.is_prerelease
    found = [
        version
        for version in versions(project.strip())
        if low <= version
        and (version <= high or _begins_with(version, high))
        and (previews or not version.is_prerelease)
    ]
    if not found:
        raise VerispecError(
            "V-FLEET-RELEASES",
            f"the index has no release in {text!r}",
            where=str(table.path),
            hint="see the versions with: pip index versions PROJECT",
            exit_code=exits.CANNOT_TELL,
        )
    return [Release(project.strip(), version) for version in found]


def _begins_with(version: Version, beginning: Version) -> bool:
    return version.release[: len(beginning.release)] == beginning.release
