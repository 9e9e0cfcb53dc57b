"""Uses of plain Python that rely on the form of a definition before a change: two trees, no type checker.

Everything here is relative: a definition of the older tree and the one of the same place and name in the newer tree.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import chain

from packaging.version import Version

from verispec.static.cache import uncollected
from verispec.static.finding import Finding
from verispec.static.ignores import is_silenced, read_ignores
from verispec.static.linking.versions import holds, host_version, is_guarded
from verispec.static.readers.guards import read_guards
from verispec.static.since import calls, classes, names
from verispec.static.since.versions import Versions
from verispec.static.tree import Tree, beside

CHECKS: dict[str, Callable[[Versions], Iterator[Finding]]] = {
    "SIG701": lambda versions: chain(calls.lengths(versions), names.tuples(versions)),
    "SIG702": classes.kinds,
    "SIG703": calls.asynchronous,
    "SIG704": classes.overrides,
    "SIG705": calls.keywords,
    "SIG706": classes.order,
    "SIG707": names.removed,
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
        hosts = (beside(part, tree) if part is not None else None for part in (host, host_before))
        versions = Versions(tree, before, *hosts)
        version = host_version(host) if host is not None else None
        # Several definitions of one name may have changed in the same way.
        found = {(f.fingerprint, f.location): f for check in checks for f in check(versions)}
        return tuple(f for f in found.values() if _is_live(f, versions, version))


def _is_live(finding: Finding, versions: Versions, version: Version | None) -> bool:
    """Return True if no comment silences `finding`, and it stands in no branch for another version of the host."""
    here = finding.location
    if is_silenced(finding, read_ignores(versions.read(here.path))):
        return False
    file = versions.file(here.path)
    guards = read_guards(file.tree) if file is not None else ()
    around = [guard for guard in guards if guard.kind == "version" and guard.first <= here.line <= guard.last]
    dead = version is not None and any(holds(guard.test, version) is False for guard in around)
    return not dead and not is_guarded(guards, here.line, version)
