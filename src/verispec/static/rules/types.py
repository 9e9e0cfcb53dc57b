"""Rules of the type checker: their findings come from `verispec.static.typecheck`, not from the linked index."""

from __future__ import annotations

from collections.abc import Iterator

from verispec.static.finding import Finding, Level
from verispec.static.linking.launches import Links
from verispec.static.rules._model import Rule


def _from_type_checker(links: Links) -> Iterator[Finding]:
    """Return nothing: two trees are needed."""
    yield from ()


TYPE_RULES = frozenset({"SIG601", "SIG602", "SIG603"})

RULES = (
    Rule(
        "SIG601",
        "plain call no longer binds",
        Level.ERROR,
        "With --types, Pyrefly reads the tree before and after a change, and a call of a plain function, method, "
        "dataclass or NamedTuple that no longer binds is reported. Configuration classes and metadata builders change "
        "in one file while a platform's runner in another keeps the old fields.",
        _from_type_checker,
    ),
    Rule(
        "SIG602",
        "override no longer fits its base",
        Level.ERROR,
        "With --types, a method that a change makes inconsistent with the method that it overrides is reported: the "
        "base gained a parameter and an override did not, or the other way round. Callers know only the base. It is a "
        "warning if the class is new, or if the base gained a parameter that nobody must pass.",
        _from_type_checker,
    ),
    Rule(
        "SIG603",
        "name that a change removed",
        Level.ERROR,
        "With --types, a use of an attribute, module member or module that a change removed or renamed is reported. "
        "Back ends that no test of the change imports keep the old name until somebody runs them.",
        _from_type_checker,
    ),
)
