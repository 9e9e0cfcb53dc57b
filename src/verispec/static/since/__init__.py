"""What a change alters in plain Python while something still relies on the old form: two trees, no type checker.

Everything here is relative: a definition of the older tree and the one of the same place and name in the newer tree.
"""

from __future__ import annotations

from collections.abc import Collection

from verispec.static.cache import uncollected
from verispec.static.finding import Finding
from verispec.static.ignores import is_silenced, read_ignores
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
        found = [finding for check in checks for finding in check(sources)]
        return tuple(f for f in found if not is_silenced(f, read_ignores(sources.read(f.location.path))))
