"""Values of parameters that separate failing cases from passing ones, in words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations

SHOWN = 8
"""Maximum number of parameter values to list."""

Params = Mapping[str, str]


def separation(failing: Sequence[Params], passing: Sequence[Params]) -> str:
    """Return the parameters whose values separate failing from passing cases, as text; empty if none do.

    A single failing case needs no separation. Prefer one parameter to a pair. If no value always fails, report those
    that sometimes fail while others never do.
    """
    names = common(failing) if len(failing) > 1 else []
    for size in (1, 2):
        for chosen in combinations(names, size):
            bad = _rows(chosen, failing)
            good = _rows(chosen, passing)
            if good and not set(bad) & set(good):
                also = _shared(failing, passing) if all(_is_number(row[0]) for row in bad) else ""
                return f"fails for {also}{_values(chosen, bad)}; passes for {_values(chosen, good)}"
    partial = []
    for name in names:
        wrong, right = _rows((name,), failing), _rows((name,), passing)
        if never := [row for row in right if row not in wrong]:
            partial.append((len(wrong) / (len(wrong) + len(never)), name, wrong))
    if partial:
        _, name, wrong = min(partial)
        return f"fails only for {_values((name,), wrong)}"
    return next(filter(None, (_mostly(name, failing, passing) for name in names)), "")


def _mostly(name: str, failing: Sequence[Params], passing: Sequence[Params]) -> str:
    """Return the values of a parameter that cover nine in ten failing cases, if the other values rarely fail."""
    bad = Counter(p[name] for p in failing)
    good = Counter(p[name] for p in passing if name in p)
    seldom = {value for value in {**bad, **good} if 10 * bad[value] <= bad[value] + good[value]}
    main = [value for value in bad if value not in seldom]
    held = sum(bad[value] for value in main)
    if not seldom or 10 * held < 9 * len(failing):
        return ""
    return f"{held:,} of them for {_values((name,), [(value,) for value in main])}"


def _shared(failing: Sequence[Params], passing: Sequence[Params]) -> str:
    """Return the values that all failing cases share and some passing ones do not: they decide more than a size."""
    first, *others = failing
    shared = [
        (name, value)
        for name, value in first.items()
        if all(p.get(name) == value for p in others)
        and any(p.get(name) != value for p in passing)
        and not _is_number(value)
    ]
    return "".join(f"{name}={_quoted(value)} and " for name, value in shared)


def common(params: Sequence[Params]) -> list[str]:
    """Return the names that all of `params` have."""
    return [name for name in (params[0] if params else {}) if all(name in p for p in params)]


def _rows(names: Sequence[str], params: Sequence[Params]) -> list[tuple[str, ...]]:
    """Return the distinct combinations of the values of `names`: numbers sorted, words in the order of the cases."""
    rows = list(dict.fromkeys(tuple(p[n] for n in names) for p in params if all(n in p for n in names)))
    return sorted(rows, key=lambda row: float(row[0])) if all(_is_number(row[0]) for row in rows) else rows


def _is_number(value: str) -> bool:
    return re.fullmatch(r"[-+]?\d+(\.\d+)?([eE][-+]?\d+)?", value) is not None


def _quoted(value: str) -> str:
    """Return a value in quotes if it has spaces, so that it reads as one."""
    return f"'{value}'" if " " in value else value


def _values(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if len(rows) > SHOWN:
        return f"{len(rows)} other values of {' and '.join(names)}"
    if len(names) == 1:
        *others, last = (_quoted(row[0]) for row in rows)
        either = f"{', '.join(others)} or {last}" if others else last
        return f"{names[0]}={either}"
    return ", ".join(" ".join(f"{n}={v}" for n, v in zip(names, row, strict=True)) for row in rows)
