"""`check_tree`: facts of every file, linked into an index, read by every rule."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from verispec.errors import Diagnostic, VerispecError
from verispec.static import rules as all_rules
from verispec.static import tables
from verispec.static.cache import FactCache, ReportCache, report_key
from verispec.static.facts import CPP, CRASHED, UNREADABLE, FileFacts
from verispec.static.finding import Finding, Level, Location, fingerprint
from verispec.static.ignores import apply_ignores
from verispec.static.linking.index import Index, build
from verispec.static.linking.launches import Links, link
from verispec.static.linking.mentions import Mentions, holders
from verispec.static.linking.ops import collect
from verispec.static.linking.substitutions import called_names, plugin_class_paths
from verispec.static.linking.versions import host_version
from verispec.static.patches import PatchPoint, patch_points
from verispec.static.readers.pool import read_all, relevant
from verispec.static.rules.since import SINCE_RULES
from verispec.static.rules.types import TYPE_RULES
from verispec.static.tables import Entry, entries, launched
from verispec.static.tree import SourceFile, Tree, beside, is_test

Progress = Callable[[str, int, int], None]
"""Called with the current stage, the amount of work done and the whole amount (0 when unknown)."""

_ROUNDS: Final = 4
"""Files that turn out to matter are read and everything is linked again, at most so often."""


@dataclass(frozen=True, slots=True)
class Report:
    """The findings in a tree.

    Attributes:
        stats: Counts of files, kernels, launches, ... and the seconds of each stage.
        places: Dotted names of the modules, functions and classes that were seen.
        participants: Paths of the files that define, launch or replace a kernel or an op.
        patches: patch points of a plugin in its host.
        tables: The kernels that platforms replace, if rule SIG208 is applied.
        launched: Dotted names of the kernels that host code launches.
    """

    findings: tuple[Finding, ...]
    diagnostics: tuple[Diagnostic, ...]
    stats: dict[str, float] = field(hash=False)
    places: frozenset[str] = frozenset()
    participants: frozenset[str] = frozenset()
    patches: tuple[PatchPoint, ...] = ()
    tables: tuple[Entry, ...] = ()
    launched: frozenset[str] = frozenset()

    def to_json(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        return {
            "findings": [finding.to_json() for finding in self.findings],
            "diagnostics": [diagnostic.to_json() for diagnostic in self.diagnostics],
            "stats": self.stats,
        }


def check_tree(
    tree: Tree,
    *,
    core: Tree | None = None,
    rules: Collection[str] | None = None,
    cache: Path | FactCache | None = None,
    progress: Progress | None = None,
    parse: Collection[str] = (),
) -> Report:
    """Check `tree` by the rules named in `rules` (all when None).

    Args:
        tree: The tree under test.
        core: The host tree that `tree` plugs into. Findings that concern `core` alone are left out.
        rules: Ids of the rules to apply.
        cache: A file that keeps file summaries by content between calls, or a `FactCache` shared by several calls.
        progress: function called with the current stage.
        parse: Paths to parse even if nothing in them seems to matter, such as participants of an older revision.

    Returns:
        The findings; files that cannot be read are diagnostics, and the others are checked.

    Raises:
        VerispecError: V-RULE-UNKNOWN for a rule that does not exist.
    """
    chosen = (
        [_rule(name) for name in sorted(rules)] if rules is not None else list(map(all_rules.load, all_rules.names()))
    )
    store = cache if isinstance(cache, FactCache) else FactCache(cache)
    tell = progress or (lambda what, done, total: None)
    started = perf_counter()
    # Calls of plain functions matter only where some are replaced, as plugins do.
    both = () if core is None else (_Source(beside(core, tree), True, True),)
    sources = [_Source(tree, False, core is not None), *both]
    reports = ReportCache(store.path)
    contents = (source.files.values() for source in sources)
    key = report_key(contents, [r.id for r in chosen], sorted(parse)) if all_rules.are_own(chosen) else ""
    report: Report | None = reports.get(key)
    if report is not None:
        spent = {"seconds_reading": round(perf_counter() - started, 3), "seconds_linking": 0.0, "seconds_rules": 0.0}
        report = replace(report, stats={**report.stats, **spent})
    else:
        report = _check(sources, chosen, store, tell, parse)
        # What may be read the next time is not remembered as unreadable.
        if not any(diagnostic.code in {UNREADABLE, CRASHED} for diagnostic in report.diagnostics):
            reports.put(key, report)
    diagnostics = (*tree.diagnostics, *(core.diagnostics if core else ()), *report.diagnostics)
    return replace(report, diagnostics=tuple(dict.fromkeys(diagnostics)))


def _check(
    sources: Sequence[_Source],
    chosen: Sequence[all_rules.Rule],
    store: FactCache,
    tell: Progress,
    parse: Collection[str],
) -> Report:
    started = perf_counter()
    for source in sources:
        tell(f"reading {source.tree.describe()}", 0, len(source.files))
        source.read(source.files.values(), store)
        tell(f"reading {source.tree.describe()}", len(source.files), len(source.files))
    sources[0].deepen(parse, store)
    read = perf_counter()
    tell("linking", 0, 0)
    links = _link(sources, store)
    linked = perf_counter()
    own = sources[0].facts
    with store.saved_meanwhile():
        reported = _apply(chosen, links, own, tell)
    # Rules that see two trees are applied elsewhere.
    applied = {rule.id for rule in chosen if rule.id not in TYPE_RULES | SINCE_RULES}
    summaries = {path: facts for source in reversed(sources) for path, facts in source.facts.items()}
    # A file that was not parsed may hold the other side of what a comment silences.
    known = not any(facts.problem for facts in summaries.values())
    findings, ignored, problems = apply_ignores(_distinct(reported), summaries, own, applied if known else ())
    stats = {
        "files": len(own),
        "modules": len(links.index.modules),
        "trees_parsed": sum(m.exact for m in links.index.modules.values()) + len(links.index.cpp),
        "kernels": len(links.kernels),
        "launches": len(links.launches),
        "dispatchers": len(links.dispatchers),
        "dispatcher_calls": len(links.dispatcher_calls),
        "overrides": len(links.replacements),
        "schemas": sum(len(facts.schemas) for facts in links.index.cpp.values()),
        "ignored": ignored,
        "seconds_reading": round(read - started, 3),
        "seconds_linking": round(linked - read, 3),
        "seconds_rules": round(perf_counter() - linked, 3),
    }
    diagnostics = (*(d for source in sources for d in source.diagnostics), *problems)
    return Report(
        tuple(findings),
        diagnostics,
        stats,
        _places(links.index),
        _participants(links) & own.keys(),
        patch_points(links) if len(sources) > 1 else (),
        entries(links) if tables.RULE in applied else (),
        launched(links),
    )


def _apply(chosen: Sequence[all_rules.Rule], links: Links, own: Collection[str], tell: Progress) -> list[Finding]:
    """Return the findings of the rules that concern a file in `own`."""
    reported: list[Finding] = []
    for number, rule in enumerate(chosen):
        tell("checking", number, len(chosen))
        reported += (
            _settled(finding)
            for finding in rule.check(links)
            if finding.location.path in own or any(side.location.path in own for side in finding.sides)
        )
    tell("checking", len(chosen), len(chosen))
    return reported


def _distinct(reported: Iterable[Finding]) -> list[Finding]:
    """Return one finding for each fingerprint, sorted.

    Several calls in one function may have the same fault; each gets a fingerprint of its own, in order of lines.
    """
    order = {Level.ERROR: 0, Level.WARNING: 1, Level.NOTE: 2}
    found: dict[tuple[str, str], dict[Location, Finding]] = {}
    for finding in sorted(reported, key=lambda finding: (finding.location, order[finding.level])):
        same = found.setdefault((finding.rule, finding.fingerprint), {})
        if not same or finding.scope:
            same.setdefault(finding.location, finding)
    numbered = [
        finding
        if number == 1
        else replace(finding, fingerprint=fingerprint(finding.rule, finding.fingerprint, str(number)))
        for same in found.values()
        for number, finding in enumerate(same.values(), start=1)
    ]
    return sorted(numbered, key=lambda f: (order[f.level], f.rule, f.location, f.fingerprint))


def _places(index: Index) -> frozenset[str]:
    """Return the dotted names of all modules, and of the functions and classes of those that were parsed."""
    places: set[str] = set(index.modules)
    for module in index.modules.values():
        places.update(f"{module.name}.{name}" for name in (*module.functions, *module.classes))
        for outline in module.outline.classes:
            places.add(f"{module.name}.{outline.name}")
            places.update(f"{module.name}.{outline.name}.{method.name}" for method in outline.methods)
    return frozenset(places)


def _participants(links: Links) -> frozenset[str]:
    found = {kernel.module.path for kernel in links.kernels.values()}
    found.update(launch.module.path for launch in links.launches)
    found.update(called.module.path for called in links.dispatcher_calls)
    found.update(replacement.module.path for replacement in links.replacements)
    found.update(path for path, facts in links.index.cpp.items() if facts.schemas or facts.impls)
    return frozenset(found)


def _rule(name: str) -> all_rules.Rule:
    try:
        return all_rules.load(name)
    except KeyError:
        raise VerispecError(
            "V-RULE-UNKNOWN", f"there is no rule {name!r}", cause="a mistyped rule id",
            hint=f"the rules are {', '.join(all_rules.names())}",
        ) from None  # fmt: skip


def _settled(finding: Finding) -> Finding:
    """Return `finding`, at most a warning if it is in a test: a wrong call may be intended there."""
    if finding.level is Level.ERROR and is_test(finding.location.path):
        return replace(finding, level=Level.WARNING)
    return finding


class _Source:
    """One tree, its files, and the file summaries read so far."""

    def __init__(self, tree: Tree, core: bool, calls: bool) -> None:
        self.tree = tree
        self.core = core
        self.calls = calls
        self.files = {file.path: file for file in tree.files() if relevant(file.path)}
        self.facts: dict[str, FileFacts] = {}
        self.diagnostics: list[Diagnostic] = []
        self.deep: set[tuple[str, bool]] = set()

    def read(self, files: Iterable[SourceFile], store: FactCache, *, deep: bool = False) -> None:
        found = read_all(list(files), store, self.diagnostics.append, deep=deep, calls=self.calls, shallow=self.facts)
        self.facts.update(found)

    def deepen(self, paths: Iterable[str], store: FactCache) -> bool:
        """Read the syntax trees of these files; False if there is nothing new to read."""
        known = {path for path, calls in self.deep if calls == self.calls}
        new = sorted({p for p in paths if p in self.facts and p not in known and self._lacks(p)})
        self.deep.update((path, self.calls) for path in new)
        self.read([self.files[path] for path in new], store, deep=True)
        return bool(new)

    def _lacks(self, path: str) -> bool:
        return not self.facts[path].suffices(deep=True, calls=self.calls)


def _link(sources: Sequence[_Source], store: FactCache) -> Links:
    """Link, read the files that turned out to matter, and link again until no new file matters."""
    version = next((host_version(source.tree) for source in sources if source.core), None)

    def linked() -> Links:
        return link(build(((source.facts, source.core) for source in sources), version))

    mentions = Mentions()
    for _ in range(_ROUNDS):
        links = linked()
        wanted = links.index.wanted | _users(links, sources, mentions) | plugin_class_paths(links)
        read = [source.deepen(wanted, store) for source in sources]
        if not any(read):
            break
    names = {name.encode() for name in called_names(links)}
    if names:
        paths = {
            path
            for source in sources
            for path, facts in source.facts.items()
            if facts.outline is not None and not is_test(path) and not names.isdisjoint(facts.outline.words.split())
        }
        for source in sources:
            source.calls = True
        deepened = [source.deepen(paths, store) for source in sources]
        if any(deepened):
            links = linked()
        links.call_paths = paths
    return links


def _users(links: Links, sources: Sequence[_Source], mentions: Mentions) -> set[str]:
    """Return files without a syntax tree yet whose words name a kernel, a dispatcher or an op of the tree."""
    kernels = holders(links)
    callers = mentions.dispatcher_users(links)
    ops = collect(links.index)
    bound = {schema.function.encode() for facts in links.index.cpp.values() for schema in facts.schemas}
    bound.update(impl.function.encode() for facts in links.index.cpp.values() for impl in facts.impls)
    bound.discard(b"")
    paths: set[str] = set()
    for source in sources:
        for path, facts in source.facts.items():
            if (path, source.calls) in source.deep or facts.python is not None or facts.cpp is not None:
                continue
            if facts.outline is None:
                if bound and path.endswith(CPP) and not bound.isdisjoint(facts.words.split()):
                    paths.add(path)
                continue
            outline = facts.outline
            if (
                any(ops.called(f"torch.ops.{namespace}.{name}") for namespace, name in outline.ops)
                or not kernels.isdisjoint(outline.launches.split())
                or not kernels.isdisjoint(facts.patches.split())
                or path in callers
            ):
                paths.add(path)
    return paths
