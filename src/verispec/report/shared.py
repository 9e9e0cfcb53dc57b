"""Notes of several ops with one kind of fault, such as strides that no kernel of an engine honours, as one cause."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from verispec.report.cause import Cause
from verispec.run.logs import LAST_CALL

MANY = 3
"""Ops from which on a report shows one kind of fault as one."""
STRIDES = "strides ignored"
"""The kind of fault that needs a layout."""
_LAYOUT = re.compile(r"\b(gapped|padded|transposed)\b")
"""Layouts in the description of a call that has strides."""


def shared(causes: Sequence[Cause]) -> Iterator[Cause]:
    """Yield the causes, with the notes of `MANY` ops or more that have one kind of fault as one cause."""
    left = list(causes)
    for fault in dict.fromkeys(cause.fault for cause in causes if cause.fault):
        alike = [cause for cause in left if cause.fault == fault and _joins(cause)]
        ops = {op for cause in alike for op in cause.subjects}
        if len(ops) >= MANY:
            alike += [cause for cause in left if fault == STRIDES and _ended_with_strides(cause, ops)]
            left = [cause for cause in left if cause not in alike]
            yield _joined(alike)
    yield from left


def _joins(cause: Cause) -> bool:
    """Return True for a note of one op without an issue."""
    return cause.level == "note" and len(cause.subjects) == 1 and not cause.issues


def _ended_with_strides(cause: Cause, ops: set[str]) -> bool:
    """Return True if a process ended in a call of one of `ops` with strides; no case can name its fault then."""
    call = cause.message.partition(LAST_CALL)[2]
    return _joins(cause) and not cause.fault and ops.issuperset(cause.subjects) and bool(_LAYOUT.search(call))


def _joined(alike: Sequence[Cause]) -> Cause:
    """Return several causes as one: its case and its message are those of the first that names the fault."""
    first = next(cause for cause in alike if cause.fault)
    all_unreachable = all(cause.unreachable for cause in alike if cause.fault)
    return replace(
        first,
        clauses=tuple(dict.fromkeys(clause for cause in alike for clause in cause.clauses)),
        subjects=tuple(sorted({op for cause in alike for op in cause.subjects})),
        where="",
        cases=tuple(case for cause in alike for case in cause.cases),
        consequences=tuple(case for cause in alike for case in cause.consequences),
        crashes=sum(cause.crashes + len(cause.cases) * (cause.kind == "crash") for cause in alike),
        hangs=sum(cause.hangs + len(cause.cases) * (cause.kind == "timeout") for cause in alike),
        unreachable="each op has its reason" if all_unreachable else "",
        kernel="",
        caller="",
        code="",
        parts=tuple(_parts(alike)),
    )


def _parts(alike: Sequence[Cause]) -> Iterator[str]:
    """Yield a line per op: its failing cases, one of them that names the fault, and the place of its kernel."""
    for op in sorted({cause.subjects[0] for cause in alike}):
        mine = sorted((cause for cause in alike if cause.subjects[0] == op), key=lambda cause: not cause.fault)
        count = sum(len(cause.cases) for cause in mine)
        place = f", kernel defined at {mine[0].kernel}" if mine[0].kernel else ""
        reason = f"; {mine[0].unreachable}" if mine[0].unreachable else ""
        yield f"{op}: {count} failing case{'s' * (count > 1)}, such as {mine[0].case}{place}{reason}"
