"""Which kernel makes a whole sampler or a generation fail: failing cases run again with the reference's in its place.

A case that goes through many kernels fails when one of them does. If it passes once the reference's
kernel stands in the place of the engine's, it is no fault of its own, and its record says whose it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from verispec.kernel_swap.patch_vllm import exchangeable
from verispec.reference import contracts
from verispec.run.plan import Plan
from verispec.run.progress import ProgressListener
from verispec.run.record import Record
from verispec.run.supervisor import Judged, Supervisor

FEW = 16
"""Cases that one process judges sooner than several have started."""

EXCHANGEABLE = ("vllm",)
"""Engines whose kernels `verispec.kernel_swap` can exchange."""

Exchanged = tuple[str, ...]
"""Ops of which the reference's kernels stand in the engine's place."""


def explain(plan: Plan, records: Iterable[Record], watcher: ProgressListener) -> Iterator[Record]:
    """The failing records that other ops' faults explain, each with `explained_by`.

    Ops with a failure that production reaches are exchanged one by one, the most failing first; then all at
    once. From what only that mends one kernel after the other is taken out again, the least suspicious first,
    and stays out where the case still passes: none is named that the case does not need.
    """
    failing = [r for r in records if r.failed and not r.explained_by]
    counts = Counter(r.case.subject for r in failing if r.reach)
    suspects = [op for op, _ in counts.most_common() if op in exchangeable()]
    waiting = {r.id: r for r in failing if r.seen == "fail" and not _has_kernel(r.case.subject)}
    if plan.engine not in EXCHANGEABLE or plan.transplanted:
        return

    def mended(exchanged: Exchanged, cases: Iterable[str]) -> list[str]:
        cases = tuple(cases)
        if not cases:
            return []
        watcher.explaining(", ".join(exchanged), len(cases))
        return _mended(plan, exchanged, cases)

    alone: Counter[str] = Counter(dict.fromkeys(suspects, 0))
    for op in suspects:
        for case in mended((op,), waiting):
            alone[op] += 1
            yield replace(waiting.pop(case), explained_by=op)
    if len(suspects) < 2:
        return
    needed = dict.fromkeys(mended(tuple(suspects), waiting), tuple(suspects))
    for op, _ in reversed(alone.most_common()):
        for exchanged, cases in _by_exchanged(needed).items():
            fewer = tuple(kept for kept in exchanged if kept != op)
            # One alone has mended none of these.
            if 1 < len(fewer) < len(exchanged):
                needed |= dict.fromkeys(mended(fewer, cases), fewer)
    for case, exchanged in needed.items():
        yield replace(waiting[case], explained_by=", ".join(exchanged))


def _by_exchanged(needed: Mapping[str, Exchanged]) -> dict[Exchanged, list[str]]:
    groups: dict[Exchanged, list[str]] = {}
    for case, exchanged in needed.items():
        groups.setdefault(exchanged, []).append(case)
    return groups


def _mended(plan: Plan, exchanged: Exchanged, cases: tuple[str, ...]) -> list[str]:
    """The ids of the cases that pass with the reference's `exchanged`."""
    processes = plan.processes if len(cases) > FEW else 1
    again = replace(plan, only=cases, exact=True, suites=(), transplanted=exchanged, processes=processes)
    verdicts = [Record.from_json(news.record) for news in Supervisor(again) if isinstance(news, Judged)]
    return [verdict.id for verdict in verdicts if verdict.outcome == "pass"]


def _has_kernel(subject: str) -> bool:
    """Whether the subject is an op of its own, or a matter of binding alone."""
    return subject in contracts.names() and contracts.load(subject).family != "sampler"
