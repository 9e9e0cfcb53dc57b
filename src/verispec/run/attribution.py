"""Attribution: name the op whose fault makes an end-to-end case fail.

A case that goes through many kernels fails when one of them does. If it passes once the reference's kernel
replaces the engine's, the case has no fault of its own, and its record names the op.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from verispec.kernel_swap.patch_vllm import exchangeable
from verispec.reference import contracts
from verispec.run.events import CaseEnded, Waiting
from verispec.run.plan import Plan
from verispec.run.progress import ProgressListener
from verispec.run.record import Record, is_quick
from verispec.run.supervisor import Supervisor

FEW = 16
"""Cases that one process finishes sooner than several have started."""

EXCHANGEABLE = ("vllm",)
"""Engines whose kernels `verispec.kernel_swap` can replace."""

ROUNDS = 2
"""Cases of one clause and kind of failure whose kernels are searched for, one after the other."""

Exchanged = tuple[str, ...]
"""Ops that use the reference's kernels instead of the engine's."""
Passing = Callable[[Exchanged, Iterable[str]], list[str]]
"""A run of cases with exchanged kernels, which returns the ids of those that pass."""


def may_explain(plan: Plan, records: Iterable[Record]) -> bool:
    """Return whether `explain` would run cases again."""
    suspects, waiting = _suspects_and_waiting(plan, records)
    return bool(suspects and waiting)


def explain(
    plan: Plan, records: Iterable[Record], listener: ProgressListener, deadline: float | None = None
) -> Iterator[Record]:
    """Yield the failing records that faults of other ops explain, each with `explained_by`.

    Search the kernels that a case needs for one case per clause and kind of failure. The others of its group run with
    these kernels, then with those found for other groups: every yielded case has passed, though fewer kernels might do.
    A case that still fails is searched for in the next of `ROUNDS`, or keeps its failure. So the number of suspects
    multiplies the runs of a few cases only.
    """
    suspects, waiting = _suspects_and_waiting(plan, records)

    def passing(exchanged: Exchanged, cases: Iterable[str]) -> list[str]:
        cases = tuple(cases)
        if not cases:
            return []
        listener.explaining(", ".join(exchanged), len(cases))
        return _passing(plan, exchanged, cases, listener, deadline)

    answers: set[Exchanged] = set()
    for _ in range(ROUNDS if suspects else 0):
        groups = {group[0].id: group for group in _alike(waiting.values())}
        found = _needed(suspects, list(groups), passing)
        for case, exchanged in found.items():
            yield replace(waiting[case], explained_by=", ".join(exchanged))
        fresh = sorted(set(found.values()) - answers, key=lambda exchanged: (len(exchanged), exchanged))
        answers |= set(fresh)
        waiting = {case: record for case, record in waiting.items() if case not in groups}
        own = {r.id: found[case] for case, group in groups.items() if case in found for r in group[1:]}
        # Its group's kernels first, which mostly are its own; then those of other groups, the fewest first.
        for is_own in (True, False):
            for exchanged in fresh:
                tried = [case for case in waiting if (own.get(case) == exchanged) == is_own]
                for case in passing(exchanged, tried):
                    yield replace(waiting.pop(case), explained_by=", ".join(exchanged))


def _needed(suspects: Sequence[str], cases: Sequence[str], passing: Passing) -> dict[str, Exchanged]:
    """Return the kernels that each case needs, for the cases that pass with any.

    First exchange the kernels of the suspects one by one, then all at once. For cases that need several, drop one
    kernel at a time and keep it out if the case still passes, so that the answer is minimal.
    """
    needed: dict[str, Exchanged] = {}
    alone: Counter[str] = Counter(dict.fromkeys(suspects, 0))
    for op in suspects:
        found = passing((op,), [case for case in cases if case not in needed])
        alone[op] += len(found)
        needed |= dict.fromkeys(found, (op,))
    if len(suspects) < 2:
        return needed
    several = dict.fromkeys(passing(tuple(suspects), [case for case in cases if case not in needed]), tuple(suspects))
    for op, _ in reversed(alone.most_common()):
        for exchanged, group in _by_exchanged(several).items():
            fewer = tuple(kept for kept in exchanged if kept != op)
            # No single op explains any of these cases.
            if 1 < len(fewer) < len(exchanged):
                several |= dict.fromkeys(passing(fewer, group), fewer)
    return needed | several


def _alike(records: Iterable[Record]) -> list[list[Record]]:
    """Return the records by subject, clause and kind of failure, the cheapest of each group first."""
    groups: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        groups.setdefault((record.case.subject, record.case.clause, record.kind), []).append(record)
    return [sorted(group, key=lambda r: (not is_quick(r.case), r.seconds, r.id)) for group in groups.values()]


def _suspects_and_waiting(plan: Plan, records: Iterable[Record]) -> tuple[list[str], dict[str, Record]]:
    """Return the ops whose kernels may be at fault, the most failing first, and the cases that they may explain.

    A known failure explains others, but is not explained again: its entry names its issue.
    """
    if plan.engine not in EXCHANGEABLE or plan.transplanted:
        return [], {}
    failing = [r for r in records if r.failed and not r.explained_by]
    counts = Counter(r.case.subject for r in failing if r.reach)
    suspects = [op for op, _ in counts.most_common() if op in exchangeable()]
    return suspects, {r.id: r for r in failing if r.outcome == "fail" and not _has_kernel(r.case.subject)}


def _by_exchanged(needed: Mapping[str, Exchanged]) -> dict[Exchanged, list[str]]:
    groups: dict[Exchanged, list[str]] = {}
    for case, exchanged in needed.items():
        groups.setdefault(exchanged, []).append(case)
    return groups


def _passing(
    plan: Plan, exchanged: Exchanged, cases: tuple[str, ...], listener: ProgressListener, deadline: float | None
) -> list[str]:
    """Return the ids of the cases that pass with the reference's kernels of `exchanged`."""
    processes = plan.processes if len(cases) > FEW else 1
    again = replace(plan, only=cases, exact=True, suites=(), transplanted=exchanged, processes=processes)
    found = []
    for event in Supervisor(again, deadline=deadline):
        match event:
            case Waiting(text):
                listener.waiting(text)
            case CaseEnded(_, line):
                result = Record.from_json(line)
                listener.again(result)
                if result.outcome == "pass":
                    found.append(result.id)
    return found


def _has_kernel(subject: str) -> bool:
    """Return True if the subject is an op with a kernel, not an end-to-end sampler or a function of rates."""
    return subject in contracts.names() and contracts.load(subject).family != "sampler"
