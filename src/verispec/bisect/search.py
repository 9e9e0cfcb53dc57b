"""Binary search of a history by git bisect's rules: on the graph, and with revisions that cannot be tested."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from verispec import exits
from verispec.bisect.history import History
from verispec.errors import VerispecError

GOLDEN = 0.6180339887498949


class RevisionResult(StrEnum):
    """Result of a probe of one revision. CANNOT_TELL is git's ``skip``."""

    GOOD = "good"
    BAD = "bad"
    CANNOT_TELL = "cannot tell"


Judge = Callable[[str], RevisionResult]
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The end of a search: one `candidates` is the first bad revision; several could not be separated."""

    candidates: tuple[str, ...]
    verdicts: dict[str, RevisionResult] = field(hash=False)
    total: int

    @property
    def first_bad(self) -> str | None:
        """Name of the first bad revision; None if several candidates remain."""
        return self.candidates[0] if len(self.candidates) == 1 else None


def search(
    history: History,
    good: str,
    bad: str,
    judge: Judge,
    progress: Progress | None = None,
    reasons: Mapping[str, str] | None = None,
) -> SearchResult:
    """Find the first bad revision between `good` and `bad` (full names), testing as few as possible.

    Raises VerispecError: V-BIS-BAD-IS-GOOD, V-BIS-GOOD-IS-BAD, V-BIS-END-UNKNOWN when the ends are not what they
    are said to be; V-BIS-FIXED when the fault is older than the fork that `good` lies on; V-BIS-SWAPPED,
    V-BIS-UNRELATED.
    """
    verdicts: dict[str, RevisionResult] = {}

    def ask(name: str, left: int) -> RevisionResult:
        if name not in verdicts:
            if progress is not None:
                progress(f"judging {history.describe(name).short}", len(verdicts), len(verdicts) + left.bit_length())
            verdicts[name] = judge(name)
        return verdicts[name]

    forks = history.forks(good, bad)
    total = len(history.candidates([good], bad))
    _require(history, "bad", bad, ask(bad, total), reasons or {})
    _require(history, "good", good, ask(good, total), reasons or {})
    for fork in forks:
        if ask(fork, total) is RevisionResult.BAD:
            raise VerispecError(
                "V-BIS-FIXED",
                f"the fault is older than the fork of good and bad, {history.describe(fork).short} has it too",
                where=history.describe(good).short,
                cause="good does not come before bad; on its side the fault was fixed after they parted",
                hint="name a good revision that came before bad",
            )
    known_good = [good]
    while True:
        candidates = history.candidates(known_good, bad)
        unknown = [name for name in candidates if name not in verdicts]
        if not unknown:
            # The remaining revisions that are not bad could not be tested; each of them may be the first bad one.
            return SearchResult(tuple(candidates), verdicts, total)
        skips = sum(name in verdicts for name in candidates) - 1
        name = unknown[_away(skips, len(unknown))]
        verdict = ask(name, len(unknown))
        if verdict is RevisionResult.BAD:
            bad = name
        elif verdict is RevisionResult.GOOD:
            known_good.append(name)


def _away(skips: int, size: int) -> int:
    """Return which of `size` revisions, the best first, to take after `skips` that could not be tested.

    Revisions that cannot be tested come in runs, so the next one is taken away from the last, spread over the
    better ones by multiples of the golden ratio.
    """
    return int(size * (skips * GOLDEN % 1) ** 1.5)


def _require(history: History, expected: str, name: str, verdict: RevisionResult, reasons: Mapping[str, str]) -> None:
    if verdict.value == expected:
        return
    short = history.describe(name).short
    if verdict is RevisionResult.CANNOT_TELL:
        raise VerispecError(
            "V-BIS-END-UNKNOWN",
            f"the {expected} end cannot be judged",
            where=short,
            cause=reasons.get(name, ""),
            hint="name another revision near it, unless the reason holds for all of them",
            exit_code=exits.CANNOT_TELL,
        )
    raise VerispecError(
        "V-BIS-BAD-IS-GOOD" if expected == "bad" else "V-BIS-GOOD-IS-BAD",
        f"the {expected} end is {verdict.value}: the fault is {'not' if expected == 'bad' else 'already'} there",
        where=short,
        cause=reasons.get(name, ""),
        hint=f"name a revision that is {expected}, or ask for another rule, finding or case",
    )
