"""The rules of the static checker, one file per rule or small family; adding a file adds its rules.

Another package adds rules through the entry-point group ``verispec.rules``: each entry names a module with ``RULES``.
Its ids are SIG900 to SIG999.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
from functools import cache
from importlib.metadata import entry_points

from verispec.errors import VerispecError
from verispec.static.rules._model import Rule

__all__ = ["Rule", "are_own", "load", "names"]

GROUP = "verispec.rules"
"""Entry-point group of other packages."""


@cache
def _all() -> dict[str, Rule]:
    rules = dict(_own())
    for entry in entry_points(group=GROUP):
        for rule in entry.load().RULES:
            if rule.id in rules or not rule.id.startswith("SIG9"):
                raise VerispecError(
                    "V-RULE-ID",
                    f"the rule id {rule.id} is in use or not between SIG900 and SIG999",
                    where=f"entry point {entry.name} of {GROUP}",
                    hint="ask the maintainers of that package for another id",
                )
            rules[rule.id] = rule
    return dict(sorted(rules.items()))


@cache
def _own() -> dict[str, Rule]:
    rules: dict[str, Rule] = {}
    for module in pkgutil.iter_modules(__path__):
        if module.name.startswith("_"):
            continue
        for rule in importlib.import_module(f"{__name__}.{module.name}").RULES:
            if rule.id in rules:
                raise ValueError(f"{rule.id} is defined twice")
            rules[rule.id] = rule
    return rules


def are_own(rules: Iterable[Rule]) -> bool:
    """Return True if all of `rules` are verispec's own; the cache of reports knows only their code."""
    return all(rule.id in _own() for rule in rules)


def names() -> tuple[str, ...]:
    """Return the ids of all rules, sorted."""
    return tuple(_all())


def load(rule_id: str) -> Rule:
    """Return the rule `rule_id`.

    Raises:
        KeyError: there is no such rule; the message has the known ids.
    """
    if rule_id not in _all():
        raise KeyError(f"no rule {rule_id!r}; the rules are {', '.join(names())}")
    return _all()[rule_id]
