"""Run the static checker as `verispec signatures` is asked to, and return its report."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from verispec.errors import VerispecError
from verispec.report.signatures import SignatureReport, empty, ordered
from verispec.static import Finding, Level, Progress, Report, Tree, check_tree
from verispec.static.baseline import read_baseline, without_accepted
from verispec.static.cache import FactCache
from verispec.static.changes import new_since
from verispec.static.exclusion import without
from verispec.static.folding import fold
from verispec.static.placement import changed_paths, place
from verispec.static.since import outdated_uses
from verispec.static.sources import SUFFIXES, facts_file, open_tree, types_folder
from verispec.static.typecheck import new_faults


@dataclass(frozen=True, slots=True)
class Request:
    """The options of `verispec signatures`, by name."""

    tree: str = "."
    core: str = ""
    since: str = ""
    core_since: str = ""
    rules: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    baseline: Path | None = None
    types: bool = False
    fail_on: Level = Level.ERROR


@dataclass(frozen=True, slots=True)
class _Opened:
    """The trees of a request. `older` and `older_host` are what the others are compared with, if anything."""

    tree: Tree
    host: Tree | None
    older: Tree | None
    older_host: Tree | None

    @property
    def compared_with(self) -> str:
        """The tree that new findings are relative to."""
        names = [self.older.describe()] if self.older is not None else []
        if self.older_host is not None:
            names.append(self.older_host.describe())
        return " with ".join(names)


def check(request: Request, progress: Progress | None = None) -> tuple[SignatureReport, tuple[Finding, ...]]:
    """Return the report for `request`, and its findings before folding, for a baseline.

    Raises:
        VerispecError: a tree, revision, rule or baseline that does not exist.
    """
    accepted = read_baseline(request.baseline) if request.baseline is not None else None
    opened = _open(request, progress)
    report, before = _reports(request, opened, progress)
    findings = report.findings if before is None else new_since(report, before) + _outdated(request, opened)
    fresh = {finding.fingerprint for finding in findings}
    known = [finding for finding in report.findings if finding.fingerprint not in fresh]
    if request.types:
        findings += _type_faults(request, opened)
    diagnostics = list(report.diagnostics)
    if accepted is not None:
        known += [finding for finding in findings if finding.fingerprint in accepted]
        findings, problems = without_accepted(findings, accepted, str(request.baseline))
        diagnostics += problems if before is None else []
    own = {file.path for file in opened.tree.files()}
    if not any(path.lower().endswith(SUFFIXES) for path in own):
        diagnostics.append(empty(request.tree))
    changed = changed_paths(opened.tree, opened.older) if opened.older is not None else frozenset()
    shown = ordered(fold(place(finding, own, changed) for finding in findings))
    places = {place.path for found in shown for place in (found.location, *(side.location for side in found.sides))}
    return (
        SignatureReport(
            tree=opened.tree.describe(),
            findings=shown,
            diagnostics=tuple(diagnostics),
            stats=report.stats,
            core=opened.host.describe() if opened.host else "",
            since=opened.compared_with,
            known=len(fold(known)),
            core_paths=frozenset(places - own) if opened.host else frozenset(),
            prefix=_prefix(request.tree),
            fail_on=request.fail_on,
            patches=report.patches,
        ),
        findings,
    )


def _open(request: Request, progress: Progress | None) -> _Opened:
    if request.core_since and not request.core:
        raise VerispecError(
            "V-CORE-SINCE",
            "--core-since compares two hosts, and --core is missing",
            hint="name the newer host with --core",
        )

    def own(tree: Tree) -> Tree:
        return without(tree, request.exclude)

    return _Opened(
        own(open_tree(request.tree, progress=progress)),
        open_tree(request.core, progress=progress) if request.core else None,
        own(older_tree(request.tree, request.since)) if request.since else None,
        open_tree(request.core_since, progress=progress) if request.core_since else None,
    )


def _reports(request: Request, opened: _Opened, progress: Progress | None) -> tuple[Report, Report | None]:
    facts = FactCache(facts_file(request.tree))
    rules = request.rules or None
    before = None
    if opened.older is not None or opened.older_host is not None:
        before = check_tree(
            opened.older or opened.tree,
            core=opened.older_host or opened.host,
            rules=rules,
            cache=facts,
            progress=progress,
        )
    parse = before.participants if before is not None else frozenset()
    return check_tree(opened.tree, core=opened.host, rules=rules, cache=facts, progress=progress, parse=parse), before


def _outdated(request: Request, opened: _Opened) -> tuple[Finding, ...]:
    return outdated_uses(
        opened.tree, opened.older or opened.tree, opened.host, opened.older_host or opened.host, request.rules
    )


def _type_faults(request: Request, opened: _Opened) -> tuple[Finding, ...]:
    if opened.older is None and opened.older_host is None:
        raise VerispecError(
            "V-TYPES-SINCE",
            "--types reports what a change brings, and nothing is compared",
            hint="name the older tree with --since, or the older host with --core-since",
        )
    found = new_faults(
        opened.tree,
        opened.older or opened.tree,
        opened.host,
        opened.older_host or opened.host,
        types_folder(),
    )
    return tuple(finding for finding in found if not request.rules or finding.rule in request.rules)


def older_tree(tree: str, since: str) -> Tree:
    """Return the tree that `since` names: a revision of the repository that holds `tree`, else any other tree."""
    folder = tree if Path(tree).is_dir() else tree.rpartition("#")[0]
    if "#" in since:
        return open_tree(since)
    if Path(folder or ".").is_dir() and ("#" in tree or Path(tree).is_dir()):
        try:
            return open_tree(f"{folder or '.'}#{since}")
        except VerispecError as error:
            if error.diagnostic.code not in {"V-GIT-REVISION", "V-GIT-NO-REPOSITORY"}:
                raise
            revision = error
        try:
            return open_tree(since)
        except VerispecError:
            raise revision from None
    return open_tree(since)


def _prefix(tree: str) -> str:
    """Return the path from the working folder to `tree` if `tree` is below it: annotations name files from there."""
    folder = Path(tree if Path(tree).is_dir() else tree.rpartition("#")[0] or ".")
    relative = os.path.relpath(folder.resolve(), Path.cwd()) if folder.is_dir() else "."
    return "" if relative == "." or relative.startswith("..") else f"{Path(relative).as_posix()}/"
