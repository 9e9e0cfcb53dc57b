"""Suggestions for a pattern that matches no case."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection

from verispec.cases._id import CaseId, selects

MOST = 3
"""Suggestions at most."""

_CLAUSE = re.compile(r"[A-Za-z]{2,5}-\d+")


def nearby(pattern: str, cases: Collection[str], *, exact: bool = False) -> list[str]:
    """Return up to `MOST` patterns (or ids, if `exact`) that match a case and are like `pattern`, the best first.

    A clause alone (``RRS-7``) becomes ``*:RRS-7:*``, an op alone (``expand_batch``) ``sampler/expand_batch_to_tokens``.

    Args:
        pattern: a pattern of --only that matches none of `cases`, or an id.
        cases: ids.
        exact: True suggests whole ids only.
    """
    parsed = [CaseId.parse(case) for case in cases]
    found = [case for case in cases if case.startswith((f"{pattern}:", f"{pattern};"))] if exact else []
    if not exact:
        clauses = {case.clause: f"*:{case.clause}*" for case in parsed}
        subjects = {case.subject: f"{case.suite}/{case.subject}" for case in parsed}
        if _CLAUSE.fullmatch(pattern):
            found += [clauses[name] for name in difflib.get_close_matches(pattern.upper(), clauses, n=MOST, cutoff=0.7)]
        elif ":" not in pattern:
            op = pattern.rpartition("/")[2]
            starts = [name for name in subjects if name.startswith(op)] if op else []
            found += [
                subjects[name] for name in [*starts, *difflib.get_close_matches(op, subjects, n=MOST, cutoff=0.6)]
            ]
    if len(found) < MOST:
        # Compared with as much of each id as the pattern has: up to the clause, or so many parameters.
        mark = ":" if pattern.count(":") < 2 else ";"
        depth = 1 + pattern.count(mark)
        ids = dict.fromkeys(case if exact else mark.join(case.split(mark)[:depth]) for case in cases)
        found += difflib.get_close_matches(pattern, ids, n=MOST, cutoff=0.6)
    kept = [each for each in dict.fromkeys(found) if exact or any(selects(each, case) for case in cases)]
    return kept[:MOST]
