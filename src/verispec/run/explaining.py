"""Which kernel makes a whole sampler or a generation fail: failing cases run again with the reference's in its place.

A case that goes through many kernels fails when one of them does. If it passes once the reference's
kernel stands in the place of the engine's, it is no fault of its own, and its record says whose it is.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from verispec.reference import contracts
from verispec.run.plan import Plan
from verispec.run.progress import Watcher
from verispec.run.record import Record
from verispec.run.supervisor import Judged, Supervisor
from verispec.transplant.graft import exchangeable

FEW = 16
"""Cases that one process judges sooner than several have started."""

EXCHANGEABLE = ("vllm",)
"""Engines whose kernels `verispec.transplant` can exchange."""


def explain(plan: Plan, records: Iterable[Record], watcher: Watcher) -> Iterator[Record]:
    """The failing records that other ops' faults explain, each with `explained_by`.

    Ops with a failure that production reaches are exchanged one by one, the most failing first; then all
    at once, and where that mends what none of them did alone, two by two, those first that explained the most.
    """
    failing = [r for r in records if r.failed and not r.explained_by]
    counts = Counter(r.case.subject for r in failing if r.reach)
    suspects = [op for op, _ in counts.most_common() if op in exchangeable()]
    waiting = {r.id: r for r in failing if r.seen == "fail" and not _has_kernel(r.case.subject)}
    if plan.engine not in EXCHANGEABLE or plan.transplanted:
        return

    def mended(exchanged: tuple[str, ...], cases: dict[str, Record]) -> Iterator[Record]:
        watcher.explaining(", ".join(exchanged), len(cases))
        for record in _mended(plan, exchanged, cases):
            yield replace(record, explained_by=", ".join(exchanged))
            del cases[record.id]

    alone: Counter[str] = Counter(dict.fromkeys(suspects, 0))
    for op in suspects:
        for record in mended((op,), waiting) if waiting else ():
            alone[op] += 1
            yield record
    if not waiting or len(suspects) < 2:
        return
    together = {record.id: record for record in mended(tuple(suspects), waiting)}
    pairs = itertools.combinations([op for op, _ in alone.most_common()], 2) if len(suspects) > 2 else ()
    for pair in pairs:
        if together:
            yield from mended(pair, together)
    yield from together.values()


def _mended(plan: Plan, exchanged: tuple[str, ...], cases: Mapping[str, Record]) -> list[Record]:
    """The records whose cases pass with the reference's `exchanged`."""
    processes = plan.processes if len(cases) > FEW else 1
    again = replace(plan, only=tuple(cases), exact=True, suites=(), transplanted=exchanged, processes=processes)
    verdicts = [Record.from_json(news.record) for news in Supervisor(again) if isinstance(news, Judged)]
    return [cases[verdict.id] for verdict in verdicts if verdict.outcome == "pass"]


def _has_kernel(subject: str) -> bool:
    """Whether the subject is an op of its own, or a matter of binding alone."""
    return subject in contracts.names() and contracts.load(subject).family != "sampler"
