"""Tables of a platform's kernels, compared between two trees: which kernels does one no longer replace?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from verispec.static.finding import Finding, Level, Location, Side, fingerprint
from verispec.static.linking.launches import Links
from verispec.static.tree import is_test

if TYPE_CHECKING:
    from verispec.static.pipeline import Report

RULE = "SIG208"


class Entry(NamedTuple):
    """A kernel that a function or module replaces, by dotted names."""

    table: str
    kernel: str
    location: Location


def entries(links: Links) -> tuple[Entry, ...]:
    """Return every replaced kernel of `links`, by the function that replaces it; tests are omitted."""
    found = {
        Entry(f"{r.module.name}.{r.override.scope}".rstrip("."), r.kernel.name, r.location)
        for r in links.replacements
        if r.kernel is not None and not is_test(r.module.path)
    }
    return tuple(sorted(found))


def launched(links: Links) -> frozenset[str]:
    """Return the dotted names of the kernels that host code of `links` launches; tests are omitted."""
    launches = (launch.kernel.name for launch in links.launches if not is_test(launch.module.path))
    return frozenset(launches) | {dispatcher.kernel.name for dispatcher in links.dispatchers.values()}


def lost_entries(now: Report, before: Report) -> Iterator[Finding]:
    """Yield the kernels that a table replaced before, that are still launched, and that nothing replaces any more.

    Args:
        now: report of the tree under test.
        before: report of the tree that it is compared with.
    """
    tables: dict[str, Entry] = {}
    for entry in now.tables:
        tables.setdefault(entry.table, entry)
    replaced = {entry.kernel for entry in now.tables}
    for entry in dict.fromkeys(before.tables):
        left = tables.get(entry.table)
        if left is None or entry.kernel in replaced or entry.kernel not in now.launched:
            continue
        replaced.add(entry.kernel)
        name = entry.kernel.rpartition(".")[2]
        yield Finding(
            RULE,
            Level.ERROR,
            f"{entry.table} no longer replaces {name}, which is still launched",
            left.location,
            entry.kernel,
            (Side("table", left.location, entry.table), Side("before", entry.location, f"replaced {entry.kernel}")),
            f"put the entry for {name} back, or refuse the feature on that platform by name",
            fingerprint(RULE, entry.table, entry.kernel),
            entry.table,
        )
