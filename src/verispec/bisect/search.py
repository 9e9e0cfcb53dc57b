"""Binary search of a history by git bisect's rules: on the graph, and with revisions that cannot be tested."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from enum import StrEnum

from verispec import exits
from verispec.bisect.history import History
from verispec.errors import VerispecError

GOLDEN = 0.6180339887498949
LOOKS = 8
"""Steps per revision that a round plays ahead: each asks git once."""


class RevisionResult(StrEnum):
    """Result of a probe of one revision. CANNOT_TELL is git's ``skip``."""

    GOOD = "good"
    BAD = "bad"
    CANNOT_TELL = "cannot tell"


Judge = Callable[[str], RevisionResult]
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The end of a search: one `candidates` is the first bad revision; several could not be separated.

    Attributes:
        candidates: the revisions that may be the first bad one.
        verdicts: results that decided, by revision.
        total: revisions between the ends.
        rounds: number of waits for results.
        tested: revisions with a result, used or not.
    """

    candidates: tuple[str, ...]
    verdicts: dict[str, RevisionResult] = field(hash=False)
    total: int
    rounds: int = 0
    tested: int = 0

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
    parallel: int = 1,
) -> SearchResult:
    """Find the first bad revision between `good` and `bad` (full names), testing as few as possible.

    With `parallel` above 1, `judge` runs in threads. Each round then also tests the revisions that will most probably
    be next. The answer is that of the search one by one, since results that it would not have asked for are not used.

    Raises VerispecError: V-BIS-BAD-IS-GOOD, V-BIS-GOOD-IS-BAD, V-BIS-END-UNKNOWN when an end is not as
    declared; V-BIS-FIXED when the fault is older than the fork that `good` lies on; V-BIS-SWAPPED,
    V-BIS-UNRELATED.
    """
    forks = tuple(history.forks(good, bad))
    position = _Position(history, good, bad, forks)
    total = len(history.candidates([good], bad))
    known: dict[str, RevisionResult] = {}
    """Results of all rounds, used or not."""
    rounds = 0
    pool = ThreadPoolExecutor(parallel)
    try:
        while (name := position.next()) is not None:
            if name not in known:
                names = _ahead(position, known, parallel)
                rounds += 1
                if progress is not None:
                    left = (total if position.at_ends else position.left).bit_length()
                    shown = ", ".join(history.describe(name).short for name in names)
                    progress(f"testing {shown}", len(position.verdicts), len(position.verdicts) + left)
                # One by one, results come from this thread, which may fork.
                results = pool.map(judge, names) if parallel > 1 else map(judge, names)
                known |= zip(names, results, strict=True)
            position = position.after(name, known[name])
            position.require_sound(reasons or {})
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # after an interrupt, the caller ends what still runs
    # The remaining revisions that are not bad could not be tested; each of them may be the first bad one.
    return SearchResult(tuple(position.candidates()), position.verdicts, total, rounds, len(known))


@dataclass(frozen=True, slots=True)
class _Position:
    """A search between two questions.

    Attributes:
        first, last: the ends that were given.
        forks: merge bases that must be good.
        verdicts: answers so far.
    """

    history: History
    first: str
    last: str
    forks: tuple[str, ...]
    verdicts: dict[str, RevisionResult] = field(default_factory=dict)
    known_good: tuple[str, ...] = ()
    bad: str = ""

    @property
    def at_ends(self) -> bool:
        """Return whether the ends and forks are not all known."""
        return any(name not in self.verdicts for name in (self.last, self.first, *self.forks))

    @property
    def left(self) -> int:
        """Return the number of candidates without an answer."""
        return sum(name not in self.verdicts for name in self.candidates())

    def candidates(self) -> Sequence[str]:
        """Return the revisions that may be the first bad one, in the order of the history."""
        return self.history.candidates([self.first, *self.known_good], self.bad or self.last)

    def next(self) -> str | None:
        """Return the revision to ask about; None at the end."""
        for name in (self.last, self.first, *self.forks):
            if name not in self.verdicts:
                return name
        candidates = self.candidates()
        unknown = [name for name in candidates if name not in self.verdicts]
        if not unknown:
            return None
        skips = sum(name in self.verdicts for name in candidates) - 1
        return unknown[_away(skips, len(unknown))]

    def after(self, name: str, verdict: RevisionResult) -> _Position:
        """Return the search after an answer."""
        verdicts = {**self.verdicts, name: verdict}
        if self.at_ends or verdict is RevisionResult.CANNOT_TELL:
            return replace(self, verdicts=verdicts)
        if verdict is RevisionResult.BAD:
            return replace(self, verdicts=verdicts, bad=name)
        return replace(self, verdicts=verdicts, known_good=(*self.known_good, name))

    def expected(self, name: str) -> dict[RevisionResult, float]:
        """Return the probability of each answer; the share of revisions that cannot be tested is learned."""
        if self.at_ends:
            return {RevisionResult.BAD if name == self.last else RevisionResult.GOOD: 1.0}
        skipped = sum(verdict is RevisionResult.CANNOT_TELL for verdict in self.verdicts.values())
        skip = (skipped + 0.1) / (len(self.verdicts) + 2)
        half = (1 - skip) / 2
        return {RevisionResult.BAD: half, RevisionResult.GOOD: half, RevisionResult.CANNOT_TELL: skip}

    def require_sound(self, reasons: Mapping[str, str]) -> None:
        """Raise VerispecError for ends and forks that are not good and bad."""
        for expected, name in (("bad", self.last), ("good", self.first)):
            if name in self.verdicts:
                _require(self.history, expected, name, self.verdicts[name], reasons)
        for fork in self.forks:
            if self.verdicts.get(fork) is RevisionResult.BAD:
                raise VerispecError(
                    "V-BIS-FIXED",
                    f"the fault is older than the fork of good and bad, {self.history.describe(fork).short} has it too",
                    where=self.history.describe(self.first).short,
                    cause="good does not come before bad; on its side the fault was fixed after they parted",
                    hint="name a good revision that came before bad",
                )


def _ahead(position: _Position, known: Mapping[str, RevisionResult], count: int) -> list[str]:
    """Return the next revision to ask about, and those that are most probably asked about after it.

    The search is played on with every possible answer, the most probable first, until `count` unknown revisions are
    found. On a line this splits what is left into `count` + 1 equal parts.
    """
    names: dict[str, None] = {}
    order = itertools.count()
    waiting = [(-1.0, next(order), position)]
    looked = 0
    while waiting and len(names) < count and looked < LOOKS * count:
        looked += 1
        weight, _, here = heapq.heappop(waiting)
        name = here.next()
        if name is None:
            continue
        if name in known:
            answers = {known[name]: 1.0}
        else:
            names[name] = None
            answers = here.expected(name)
        if count > 1:
            for verdict, probability in answers.items():
                heapq.heappush(waiting, (weight * probability, next(order), here.after(name, verdict)))
    return list(names)


def _away(skips: int, size: int) -> int:
    """Return which of `size` revisions, the best first, to take after `skips` that could not be tested.

    Revisions that cannot be tested come in runs. The next one is therefore far from the last: multiples of the golden
    ratio spread it over the better ones.
    """
    return int(size * (skips * GOLDEN % 1) ** 1.5)


def _require(history: History, expected: str, name: str, verdict: RevisionResult, reasons: Mapping[str, str]) -> None:
    if verdict.value == expected:
        return
    short = history.describe(name).short
    if verdict is RevisionResult.CANNOT_TELL:
        raise VerispecError(
            "V-BIS-END-UNKNOWN",
            f"the {expected} end cannot be tested",
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
