"""The rules of the static checker, one file per rule or small family; adding a file adds its rules."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from verispec.static.rules._model import Rule

__all__ = ["Rule", "load", "names"]


@cache
def _all() -> dict[str, Rule]:
    rules: dict[str, Rule] = {}
    for module in pkgutil.iter_modules(__path__):
        if module.name.startswith("_"):
            continue
        for rule in importlib.import_module(f"{__name__}.{module.name}").RULES:
            if rule.id in rules:
                raise ValueError(f"{rule.id} is defined twice")
            rules[rule.id] = rule
    return dict(sorted(rules.items()))


def names() -> tuple[str, ...]:
    """The ids of all rules, sorted."""
    return tuple(_all())


def load(rule_id: str) -> Rule:
    """The rule `rule_id`; KeyError with the known ids when there is none."""
    if rule_id not in _all():
        raise KeyError(f"no rule {rule_id!r}; the rules are {', '.join(names())}")
    return _all()[rule_id]
