"""What a change alters in plain Python while something still relies on the old form: two trees, no type checker.

Everything here is relative: a definition of the older tree and the one of the same place and name in the newer tree.
"""

from __future__ import annotations

from collections.abc import Collection

from packaging.version import Version

from verispec.static.cache import uncollected
from verispec.static.finding import Finding
from verispec.static.ignores import is_silenced, read_ignores
from verispec.static.linking.versions import holds, host_version, is_guarded
from verispec.static.readers.guards import read_guards
from verispec.static.since import calls, classes
from verispec.static.since.sources import Sources
from verispec.static.tree import Tree

CHECKS = {
    "SIG701": calls.results,
    "SIG702": classes.kinds,
    "SIG703": calls.asynchronous,
    "SIG704": classes.overrides,
    "SIG705": calls.keywords,
    "SIG706": classes.order,
}
"""The check of each rule."""


def outdated_uses(
    tree: Tree, before: Tree, host: Tree | None, host_before: Tree | None, rules: Collection[str] = ()
) -> tuple[Finding, ...]:
    """Return the uses in `tree` that rely on what the change from `before` altered.

    Args:
        tree: the tree under test.
        before: an older version of it.
        host: tree that it extends; None for none.
        host_before: host of the older version.
        rules: ids of the rules to apply; empty for all.
    """
    checks = [check for name, check in CHECKS.items() if not rules or name in rules]
    if not checks:
        return ()
    with uncollected():
        sources = Sources(tree, before, host, host_before)
        version = host_version(host) if host is not None else None
        # Several definitions of one name may have changed in the same way.
        found = {(f.fingerprint, f.location): f for check in checks for f in check(sources)}
        return tuple(f for f in found.values() if _is_live(f, sources, version))


def _is_live(finding: Finding, sources: Sources, version: Version | None) -> bool:
    """Return True if no comment silences `finding`, and it stands in no branch for another version of the host."""
    here = finding.location
    if is_silenced(finding, read_ignores(sources.read(here.path))):
        return False
    file = sources.file(here.path)
    guards = read_guards(file.tree) if file is not None else ()
    around = [guard for guard in guards if guard.kind == "version" and guard.first <= here.line <= guard.last]
    dead = version is not None and any(holds(guard.test, version) is False for guard in around)
    return not dead and not is_guarded(guards, here.line, version)
