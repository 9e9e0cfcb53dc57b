"""Revisions of a git repository as trees, read from its object store.

The repository is not trusted. Only plumbing runs (rev-parse, rev-list, merge-base, ls-tree, cat-file), which asks
neither hooks, filters, pagers nor signature programs. Fetching a missing object is forbidden, and replaced objects are
not honoured. Each object that is read is compared with its name before anything is remembered of it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from verispec import exits
from verispec.errors import VerispecError
from verispec.static.sources._files import MAX_FILES, is_shown_whole, may_hold_source, shown, skipped
from verispec.static.sources._objects import COMMAND, ReadObject, environment, read_object
from verispec.static.sources.folder import too_many
from verispec.static.tree import ListedTree, SourceFile

MAX_ENTRIES = 1_000_000
"""Entries of a listing. A few nested tree objects can stand for more files than any disk holds."""


@dataclass(frozen=True, slots=True)
class Commit:
    """Description of a commit for people. `author` is name, address and date."""

    name: str
    parents: tuple[str, ...]
    author: str
    subject: str


class Repository:
    """The git repository that `folder` lies in; a folder below its root stands for that part of every revision."""

    def __init__(self, folder: Path) -> None:
        """Raise VerispecError if git is not installed, `folder` is in no repository, or git does not trust it."""
        self.folder = folder.resolve()
        self.run("rev-parse", "--git-dir")

    def run(self, *arguments: str) -> str:
        """Return git's output as text; bytes that are no UTF-8 are replaced.

        Args:
            arguments: subcommand and its arguments.

        Raises:
            VerispecError: V-GIT-MISSING without git, V-GIT-OWNER or V-GIT-NO-REPOSITORY for a folder that git does not
                read, V-GIT-FAILED otherwise.
        """
        return b"".join(self._stream(*arguments)).decode("utf-8", "replace")

    def _stream(self, *arguments: str) -> Iterator[bytes]:
        try:
            process = subprocess.Popen(
                [*COMMAND, "-C", str(self.folder), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment(),
            )
        except FileNotFoundError as error:
            raise VerispecError(
                "V-GIT-MISSING",
                "git is needed to read a revision and is not installed",
                where="git",
                hint="install git 2.31 or newer, or check the folder itself (without #REV)",
                exit_code=exits.CANNOT_TELL,
            ) from error
        assert process.stdout is not None
        assert process.stderr is not None
        with process:
            try:
                while chunk := process.stdout.read(1 << 16):
                    yield chunk
            except GeneratorExit:  # the reader has had enough
                process.kill()
                return
            complaint = process.stderr.read().decode("utf-8", "replace")
        if process.returncode != 0:
            raise self._failure(arguments[0], complaint.strip())

    def _failure(self, command: str, complaint: str) -> VerispecError:
        where = str(self.folder)
        if "dubious ownership" in complaint:
            return VerispecError(
                "V-GIT-OWNER",
                "git refuses to read this repository because it belongs to somebody else",
                where=where,
                cause=complaint.splitlines()[0],
                hint=f"if you trust it: git config --global --add safe.directory {where}",
            )
        if "not a git repository" in complaint:
            return VerispecError(
                "V-GIT-NO-REPOSITORY",
                "no git repository here",
                where=where,
                hint="clone the repository, or check the folder itself (without #REV)",
            )
        return VerispecError(
            "V-GIT-FAILED",
            f"git {command} failed",
            where=where,
            cause=complaint,
            hint="git fsck says whether the repository is damaged",
            exit_code=exits.CANNOT_TELL,
        )

    @property
    def is_shallow(self) -> bool:
        """True if the clone lacks older commits."""
        return self.run("rev-parse", "--is-shallow-repository").strip() == "true"

    def resolve(self, revision: str, kind: str = "commit") -> str:
        """Return the full name of `revision` as a `kind` ("commit" or "tree").

        Raises:
            VerispecError: V-GIT-REVISION, there is no such revision; and those of `run`.
        """
        if revision and "\0" not in revision:
            try:
                return self.run("rev-parse", "--verify", "--end-of-options", f"{revision}^{{{kind}}}").strip()
            except VerispecError as error:
                if error.diagnostic.code != "V-GIT-FAILED":
                    raise
                cause = error.diagnostic.cause.partition("\n")[0]
        else:
            cause = "it is empty" if not revision else "it holds a zero byte"
        if self.is_shallow:
            hint = "this clone is shallow: git fetch --unshallow --tags"
        else:
            hint = "git fetch --tags, then git log --oneline shows what there is"
        raise VerispecError(
            "V-GIT-REVISION", "no such revision", where=f"{self.folder}#{revision}", cause=cause, hint=hint
        )

    def commit(self, name: str) -> Commit:
        """Return the commit with the full name `name`.

        Raises:
            VerispecError: V-GIT-FAILED, its object cannot be read.
        """
        try:
            text = read_object(str(self.folder), name, "commit").decode("utf-8", "replace")
        except OSError as error:
            raise self._failure("cat-file", str(error)) from error
        head, _, message = text.partition("\n\n")
        lines = [line.partition(" ") for line in head.splitlines()]
        return Commit(
            name=name,
            parents=tuple(value for key, _, value in lines if key == "parent"),
            author=next((value for key, _, value in lines if key == "author"), ""),
            subject=message.strip().partition("\n")[0],
        )

    def tree(self, revision: str) -> ListedTree:
        """Return the source tree of `revision`.

        Raises:
            VerispecError: V-GIT-REVISION, there is no such revision; and those of `run`.
        """
        name = self.resolve(revision, "tree")
        files: list[SourceFile] = []
        links: list[str] = []
        submodules: list[str] = []
        odd_names: list[str] = []
        folder = str(self.folder)
        stopped = False
        for number, (mode, blob, raw) in enumerate(self._entries(name)):
            path = shown(raw)
            if mode == b"160000":
                submodules.append(path)
            elif may_hold_source(path):
                if mode == b"120000":
                    links.append(path)
                else:
                    files.append(SourceFile(path, blob, ReadObject(folder, blob)))
                    if not is_shown_whole(raw):
                        odd_names.append(path)
            if number >= MAX_ENTRIES or len(files) >= MAX_FILES:
                stopped = True
                break
        shown_name = f"{self.folder.name} at {revision}" if revision != name else f"{self.folder.name} at {name[:12]}"
        diagnostics = skipped(links=links, nested=submodules, odd_names=odd_names)
        if stopped:
            diagnostics.append(too_many(shown_name))
        return ListedTree(shown_name, tuple(files), tuple(diagnostics))

    def _entries(self, name: str) -> Iterator[tuple[bytes, str, bytes]]:
        """Yield mode, object name and path of every file in a tree."""
        rest = b""
        for chunk in self._stream("ls-tree", "-r", "-z", name):
            *entries, rest = (rest + chunk).split(b"\0")
            for entry in entries:
                attributes, _, path = entry.partition(b"\t")
                mode, _, blob = attributes.split(b" ")
                yield mode, blob.decode(), path
