"""A probe that runs the static checker on a revision, in this process.

Summaries are cached by content, so that each revision
costs what changed in it and nothing more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from pathlib import Path, PurePosixPath

from verispec import exits
from verispec.bisect.search import RevisionResult
from verispec.errors import VerispecError
from verispec.static import Finding, Level, Location, Report, Tree, check_tree
from verispec.static.cache import FactCache
from verispec.static.changes import likeness, new_since
from verispec.static.since import outdated_uses
from verispec.static.sources import INCOMPLETE
from verispec.static.typecheck import new_faults

CUT_SHORT = INCOMPLETE - {"V-SRC-UNREADABLE"}
"""Diagnostics of a whole tree; those of single files matter only when the findings are about the file."""


class StaticProbe:
    """A test of revisions: BAD for one that has a finding that `bad` has and `good` has not.

    Args:
        tree: opens the sources of a revision.
        rules: ids of the rules whose findings count.
        finding: first characters of the fingerprint of the only finding that counts. With neither, all errors count.
        core: host tree of a plugin.
        facts: cache of file summaries.
        types: cache of Pyrefly's errors, by which plain Python counts too; None without Pyrefly.
    """

    def __init__(
        self,
        tree: Callable[[str], Tree],
        *,
        rules: Collection[str] = (),
        finding: str = "",
        core: Tree | None = None,
        facts: FactCache | None = None,
        types: Path | None = None,
    ) -> None:
        self.tree = tree
        self.facts = facts or FactCache()
        self.rules = rules
        self.finding = finding
        self.core = core
        self.types = types
        self.oldest: Tree | None = None
        self.targets: tuple[Finding, ...] = ()
        self.before = Report((), (), {})
        self.reports: dict[str, Report] = {}
        self.by_content: dict[str, Report] = {}

    def aim(self, good: str, bad: str) -> None:
        """Choose the findings to look for: those that `bad` has and `good` has not.

        Raises:
            VerispecError: V-BIS-GOOD-IS-BAD or V-BIS-BAD-IS-GOOD, there is no such finding.
        """
        self.before = self.report(good)
        self.oldest = self.tree(good)
        in_bad = self._wanted(self.report(bad).findings)
        self.targets = self._wanted(new_since(self.report(bad), self.before))
        if self.targets:
            return
        what = f"finding {self.finding}" if self.finding else f"rule {', '.join(self.rules)}" if self.rules else "error"
        if in_bad:
            raise VerispecError(
                "V-BIS-GOOD-IS-BAD",
                f"good has every {what} that bad has: the fault is already there",
                where=good,
                cause="; ".join(f"{found.rule} {found.symbol}" for found in in_bad[:3]),
                hint="name an older revision as good",
            )
        raise VerispecError(
            "V-BIS-BAD-IS-GOOD",
            f"bad has no {what}: the fault is not there",
            where=bad,
            hint=f"verispec signatures shows what {bad} has, with fingerprints",
        )

    def __call__(self, name: str) -> RevisionResult:
        """Return the result of the revision `name`; CANNOT_TELL if its tree cannot be read whole."""
        try:
            report = self.report(name)
        except VerispecError as error:
            if error.exit_code != exits.CANNOT_TELL:
                raise
            return RevisionResult.CANNOT_TELL
        if self._sought(report):
            return RevisionResult.BAD
        return RevisionResult.CANNOT_TELL if self._is_hidden(report) else RevisionResult.GOOD

    def appeared(self, name: str) -> tuple[Finding, ...]:
        """Return the requested findings of the revision `name`, with their places there."""
        return self._sought(self.report(name))

    def _sought(self, report: Report) -> tuple[Finding, ...]:
        """Return the report's findings that are targets, or were before their package moved."""
        names = {target.fingerprint for target in self.targets}
        likes = set(map(likeness, self.targets))
        new = new_since(report, self.before)
        return tuple(found for found in new if found.fingerprint in names or likeness(found) in likes)

    def report(self, name: str) -> Report:
        """Return the report of a revision; revisions with the same sources share one."""
        if name not in self.reports:
            tree = self.tree(name)
            content = hashlib.blake2b()
            for file in sorted(tree.files(), key=lambda file: file.path):
                content.update(f"{file.path}\0{file.blob}\0".encode())
            key = content.hexdigest()
            if key not in self.by_content:
                report = check_tree(tree, core=self.core, rules=self.rules or None, cache=self.facts)
                found = self._outdated(tree) + self._type_faults(tree)
                self.by_content[key] = replace(report, findings=report.findings + found)
            self.reports[name] = self.by_content[key]
        return self.reports[name]

    def _outdated(self, tree: Tree) -> tuple[Finding, ...]:
        """Return the uses in `tree` that rely on the good end: its neighbours would forget them a commit later."""
        if self.oldest is None:
            return ()
        return outdated_uses(tree, self.oldest, self.core, self.core, self.rules)

    def _type_faults(self, tree: Tree) -> tuple[Finding, ...]:
        """Return the findings of the type checker in `tree` and not in the good end."""
        if self.types is None or self.oldest is None:
            return ()
        found = new_faults(tree, self.oldest, self.core, self.core, self.types)
        return tuple(finding for finding in found if not self.rules or finding.rule in self.rules)

    def _wanted(self, findings: Iterable[Finding]) -> tuple[Finding, ...]:
        if self.finding:
            return tuple(found for found in findings if found.fingerprint.startswith(self.finding))
        return tuple(found for found in findings if self.rules or found.level is Level.ERROR)

    def _is_hidden(self, report: Report) -> bool:
        """Return True if the tree, or a file of the findings, could not be read; moved files keep their name."""
        names = {PurePosixPath(place.path).name for found in self.targets for place in _places(found)}
        return any(
            diagnostic.code in CUT_SHORT
            or (diagnostic.code.startswith("V-SRC-") and not names.isdisjoint(_names(diagnostic.where)))
            for diagnostic in report.diagnostics
        )


def _places(found: Finding) -> list[Location]:
    return [found.location, *(side.location for side in found.sides)]


def _names(where: str) -> set[str]:
    """Return the names of the files that a diagnostic lists."""
    return {PurePosixPath(path).name for path in where.replace(" and ", ", ").split(", ")}
