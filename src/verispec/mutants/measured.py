"""Cases without a mutant: processor times, outcomes and reach, in a file that grows from campaign to campaign."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, Final

FAILED: Final = ("fail", "crash", "error")


def read(path: Path) -> dict[str, dict[str, Any]]:
    """Return the record of each measured case by its id; a line that a kill cut short is left out."""
    found: dict[str, dict[str, Any]] = {}
    if path.is_file():
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue
            found[record["case"]] = record
    return found


def is_known(record: Mapping[str, Any] | None, slowest: float) -> bool:
    """Return True if a case needs no further measurement.

    One that a limit below `slowest` ended may pass now, and one that failed may have lacked what is installed now.
    """
    if record is None or record["outcome"] in FAILED:
        return False
    return not (record["outcome"] == "timeout" and record["seconds"] < slowest)


def is_usable(record: Mapping[str, Any], slowest: float) -> bool:
    """Return True if a case passes without a mutant in up to `slowest` processor seconds."""
    return bool(record["outcome"] == "pass" and record["seconds"] <= slowest)


def failing(known: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the cases that fail without a mutant. None is used, since it would fail with every mutant."""
    return [name for name, record in known.items() if record["outcome"] in FAILED]


def subject(case: str) -> str:
    """Return the op of a case id ``suite/op:...``."""
    return case.partition(":")[0].rpartition("/")[2]


def clause(case: str) -> str:
    """Return the part of a case id that names op and clause, or a plain test's name without its parameters."""
    return case.partition("[")[0] if "::" in case else ":".join(case.split(":")[:2])


def test_of(case: str) -> str:
    """Return the part of a case id that its test has in all cases: op, clause, check and the names of parameters."""
    if "::" in case:
        return clause(case)
    op, name, *more = case.split(":", 2)
    fields = more[0].split(";") if more else []
    return ":".join([op, name, *(f if f.startswith("check=") else f.partition("=")[0] for f in fields)])


def chosen(cases: Iterable[str], per_clause: int) -> list[str]:
    """Return up to `per_clause` cases of each clause of each op, of as many of its tests as that allows.

    They are drawn by a hash of their ids: steps through a grid of parameters would meet one value of the last alone.
    """
    by_clause: dict[str, list[str]] = {}
    for case in cases:
        by_clause.setdefault(clause(case), []).append(case)
    found = []
    for group in by_clause.values():
        tests: dict[str, list[str]] = {}
        for case in sorted(group, key=_digest):
            tests.setdefault(test_of(case), []).append(case)
        turns = zip_longest(*(tests[test] for test in sorted(tests, key=_digest)))
        drawn = set(islice((case for turn in turns for case in turn if case), per_clause))
        found += [case for case in group if case in drawn]
    return found


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def compares_with_first_calls(case: str) -> bool:
    """Return True if a case excuses what its first calls do wrong already, since another case tests it."""
    return ":ANY-4:" in case and "hundred calls of each" in case


def ranges(numbers: Sequence[int]) -> list[int]:
    """Return sorted numbers as starts and lengths, one after the other."""
    out: list[int] = []
    for n in numbers:
        if out and out[-2] + out[-1] == n:
            out[-1] += 1
        else:
            out += [n, 1]
    return out


def reaching(known: Mapping[str, Mapping[str, Any]]) -> dict[int, list[str]]:
    """Return the cases that reach each number."""
    found: dict[int, list[str]] = {}
    for name, record in known.items():
        pairs = record.get("reached", [])
        for start, length in zip(pairs[::2], pairs[1::2], strict=True):
            for number in range(start, start + length):
                found.setdefault(number, []).append(name)
    return found


def spread_over_tests(cases: Sequence[str], is_own: Callable[[str], bool]) -> list[str]:
    """Order cases: the quickest of each test first, then others of each; own cases before others."""
    rank: dict[str, int] = {}
    ranked = []
    for i, case in enumerate(cases):
        test = test_of(case)
        rank[test] = rank.get(test, 0) + 1
        ranked.append((not is_own(case), rank[test] // 4, i, case))
    return [case for *_, case in sorted(ranked)]


def left_after(cases: Sequence[str], done: Collection[str], crashed: Iterable[str]) -> list[str]:
    """Return the cases that are not done, those of clauses with fewer crashes first."""
    crashes = Counter(map(clause, crashed))
    return sorted((case for case in cases if case not in done), key=lambda case: crashes[clause(case)])
