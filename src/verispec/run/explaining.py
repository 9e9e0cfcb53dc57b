"""Which kernel makes a whole sampler or a generation fail: failing cases run again with the reference's in its place.

A case that goes through many kernels fails when one of them does. If it passes once the reference's
kernel stands in the place of the engine's, it is no fault of its own, and its record says whose it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from verispec.reference import contracts
from verispec.run.plan import Plan
from verispec.run.progress import Watcher
from verispec.run.record import Record
from verispec.run.supervisor import Judged, Supervisor

EXCHANGEABLE = ("vllm",)
"""Engines whose kernels `verispec.transplant` can exchange."""


def explain(plan: Plan, records: Iterable[Record], watcher: Watcher) -> Iterator[Record]:
    """The failing records that another op's fault explains, each with `explained_by`.

    Ops with a failure that production reaches are exchanged one by one, the most failing first, and at
    last all at once for what needs more than one.
    """
    failing = [r for r in records if r.failed and not r.explained_by]
    ops = {name for name in contracts.names() if contracts.load(name).family == "flat"}
    suspects = [op for op, _ in Counter(r.case.subject for r in failing if r.reach).most_common() if op in ops]
    open_cases = {r.id: r for r in failing if r.seen == "fail" and not _has_kernel(r.case.subject)}
    if plan.engine not in EXCHANGEABLE or plan.transplanted:
        return
    trials = [(op,) for op in suspects] + ([tuple(suspects)] if len(suspects) > 1 else [])
    for exchanged in trials:
        if open_cases:
            watcher.explaining(", ".join(exchanged), len(open_cases))
        for record in _mended(plan, exchanged, open_cases):
            yield replace(record, explained_by=", ".join(exchanged))
            del open_cases[record.id]


def _mended(plan: Plan, exchanged: tuple[str, ...], cases: Mapping[str, Record]) -> list[Record]:
    """The records whose cases pass with the reference's `exchanged`."""
    if not cases:
        return []
    again = replace(plan, only=tuple(cases), exact=True, suites=(), transplanted=exchanged)
    verdicts = [Record.from_json(news.record) for news in Supervisor(again) if isinstance(news, Judged)]
    return [cases[verdict.id] for verdict in verdicts if verdict.outcome == "pass"]


def _has_kernel(subject: str) -> bool:
    """Whether the subject is an op of its own, or a matter of binding alone."""
    return subject in contracts.names() and contracts.load(subject).family != "sampler"
