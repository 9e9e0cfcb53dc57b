"""Histories to search: the commits of a git repository, or the releases of a project. Both are only ever read."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Protocol

from packaging.version import InvalidVersion, Version

from verispec import exits
from verispec.errors import VerispecError
from verispec.static.sources import open_release
from verispec.static.sources.git import Repository
from verispec.static.sources.releases import Release, versions
from verispec.static.tree import Tree


@dataclass(frozen=True, slots=True)
class Revision:
    """Description of a revision for people.

    Attributes:
        name: full hash or version.
        short: abbreviated name.
        author: name and address; empty for a release.
        date: ISO 8601, to the minute.
        subject: first line of the commit message.
        parents: names of the revisions that it was made from; two make it a merge.
    """

    name: str
    short: str
    author: str = ""
    date: str = ""
    subject: str = ""
    parents: tuple[str, ...] = ()


class History(Protocol):
    """Revisions with an order between them, each named by a string that `resolve` gave."""

    def resolve(self, text: str) -> str:
        """Return the full name of the revision that a person calls `text`.

        Raises:
            VerispecError: there is no such revision.
        """
        ...

    def candidates(self, good: Collection[str], bad: str) -> Sequence[str]:
        """Return `bad` and its ancestors, without those in `good` and their ancestors.

        Returns:
            Full names: the best revision to test first, `bad` last.
        """
        ...

    def forks(self, good: str, bad: str) -> Sequence[str]:
        """Return the merge bases of `good` and `bad` if `good` did not come before `bad`; else nothing.

        Raises:
            VerispecError: V-BIS-SWAPPED if `bad` came before `good`, V-BIS-SAME if they are one, V-BIS-UNRELATED if the
                two have nothing in common.
        """
        ...

    def describe(self, name: str) -> Revision:
        """Return the description of the revision with the full name `name`."""
        ...

    def tree(self, name: str) -> Tree:
        """Return the sources of the revision `name`."""
        ...

    def source(self, name: str) -> str:
        """Return the revision as the command line of any verispec command takes it."""
        ...

    def packed(self, name: str) -> bytes:
        """Return the revision's files as an archive for another machine; nothing if any machine can fetch them."""
        ...


class GitHistory:
    """The commits of the repository that `folder` lies in."""

    def __init__(self, folder: Path) -> None:
        self.repository = Repository(folder)

    def resolve(self, text: str) -> str:
        """Return the full hash of a commit."""
        return self.repository.resolve(text)

    def candidates(self, good: Collection[str], bad: str) -> Sequence[str]:
        # Git sorts by how evenly a commit halves what is left, on the graph, merges included.
        """Return the commits as ``git rev-list --bisect-all`` orders them."""
        listed = self.repository.run("rev-list", "--bisect-all", bad, *(f"^{name}" for name in good))
        names = [line.partition(" ")[0] for line in listed.splitlines()]
        return [*(name for name in names if name != bad), bad]

    def forks(self, good: str, bad: str) -> Sequence[str]:
        """Return the merge bases if `good` is not an ancestor of `bad`."""
        try:
            bases = self.repository.run("merge-base", "--all", good, bad).split()
        except VerispecError as error:
            if error.diagnostic.code != "V-GIT-FAILED" or error.diagnostic.cause:
                raise
            bases = []
        if not bases:
            shallow = self.repository.is_shallow
            raise VerispecError(
                "V-BIS-UNRELATED",
                "good and bad have no commit in common",
                where=f"{good[:12]}, {bad[:12]}",
                cause="this clone is shallow" if shallow else "they lie on unrelated histories",
                hint="git fetch --unshallow" if shallow else "name a good commit that came before bad",
            )
        if bad in bases:
            raise swapped(good[:12], bad[:12])
        return [base for base in bases if base != good]

    def describe(self, name: str) -> Revision:
        """Return author, date, subject and parents of a commit."""
        commit = self.repository.commit(name)
        author, date = _author_and_date(commit.author)
        return Revision(name, name[:12], author, date, commit.subject, commit.parents)

    def tree(self, name: str) -> Tree:
        """Return the sources of a commit."""
        return self.repository.tree(name)

    def source(self, name: str) -> str:
        """Return ``folder#commit``."""
        return f"{self.repository.folder}#{name}"

    def packed(self, name: str) -> bytes:
        """Return the files of a commit as a compressed tar archive."""
        with tempfile.TemporaryDirectory(prefix="verispec-") as folder:
            file = Path(folder) / "revision.tar.gz"
            self.repository.run("archive", "--format=tar.gz", "--prefix=revision/", "-o", str(file), name)
            return file.read_bytes()


class ReleaseHistory:
    """The releases of one project in the order of their versions; pre-releases only where an end is one."""

    def __init__(self, project: str, good: str, bad: str) -> None:
        self.project = project
        self.uploaded = versions(project)
        ends = [_version(good), _version(bad)]
        with_previews = any(end.is_prerelease for end in ends)
        self.order = [
            version for version in self.uploaded if with_previews or not version.is_prerelease or version in ends
        ]

    def resolve(self, text: str) -> str:
        """Return the normalised version; V-IDX-NO-RELEASE for a version that the index does not have."""
        version = _version(text)
        if version not in self.order:
            near = sorted(self.order, key=lambda other: other < version)[:3]
            raise VerispecError(
                "V-IDX-NO-RELEASE",
                f"the index has no source of {self.project}=={version}",
                where=text,
                hint=f"the newest releases are {', '.join(map(str, self.order[-5:]))}"
                + (f"; the next after it is {near[0]}" if near and near[0] > version else ""),
            )
        return str(version)

    def candidates(self, good: Collection[str], bad: str) -> Sequence[str]:
        """Return the versions between the newest good one and `bad`, from the middle outwards, then `bad`."""
        last_good = max(map(Version, good))
        between = [version for version in self.order if last_good < version < Version(bad)]
        middle = (len(between) - 1) / 2
        nearest = sorted(range(len(between)), key=lambda index: abs(index - middle))
        return [*(str(between[index]) for index in nearest), bad]

    def forks(self, good: str, bad: str) -> Sequence[str]:
        """Return nothing: versions have one order. Raise V-BIS-SWAPPED unless `bad` is newer."""
        if Version(bad) <= Version(good):
            raise swapped(good, bad)
        return ()

    def describe(self, name: str) -> Revision:
        """Return the version with its upload date."""
        uploaded = self.uploaded[Version(name)]
        return Revision(name, name, date=uploaded, subject=f"{self.project} {name}")

    def tree(self, name: str) -> Tree:
        """Return the sources of a release, from the cache or the package index."""
        return open_release(Release(self.project, Version(name)))

    def source(self, name: str) -> str:
        """Return ``project==version``."""
        return f"{self.project}=={name}"

    def packed(self, name: str) -> bytes:
        """Return nothing: each machine fetches a release from its package index."""
        return b""


def swapped(good: str, bad: str) -> VerispecError:
    """Return the error for a `bad` that is not newer than `good`: V-BIS-SAME for the same one, else V-BIS-SWAPPED."""
    if good == bad:
        return VerispecError(
            "V-BIS-SAME",
            f"good and bad are the same revision or release, {good}",
            where="--good, --bad",
            hint="--good names an older one without the fault, --bad a newer one that has it",
        )
    return VerispecError(
        "V-BIS-SWAPPED",
        f"bad ({bad}) is not newer than good ({good})",
        where="--good, --bad",
        cause="the search goes from good to bad; a fault that went away is a fix, and the first fixed one is sought",
        hint="swap them only if the newer one is really the bad one",
    )


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion as error:
        raise VerispecError(
            "V-IDX-VERSION", "this is not a version", where=text, hint="write it like 0.20.2", exit_code=exits.USAGE
        ) from error


def _author_and_date(line: str) -> tuple[str, str]:
    """Return name with address, and the date, of a commit's author line ``name <address> seconds zone``."""
    who, _, rest = line.rpartition(">")
    seconds, _, zone = rest.strip().partition(" ")
    try:
        sign = -1 if zone.startswith("-") else 1
        offset = sign * timedelta(hours=int(zone[1:3] or 0), minutes=int(zone[3:5] or 0))
        date = datetime.fromtimestamp(int(seconds), UTC).astimezone(timezone(offset))
        return f"{who}>", date.isoformat(sep=" ", timespec="minutes")
    except (ValueError, OverflowError, OSError):  # forged dates are no reason to stop
        return f"{who}>" if who else line, ""
