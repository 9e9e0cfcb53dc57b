"""All details of one case, as ``verispec repro`` prints them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from verispec.reference import contracts
from verispec.report.text import circumstances, title
from verispec.run.record import Record

SHOWN = 16
"""Maximum number of array elements per line."""


def case_lines(record: Record, header: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a case: its clause, inputs, outputs, first wrong elements and production reach."""
    yield f"{record.id}  {record.outcome}"
    yield title(header)
    yield circumstances(header)
    yield ""
    if clause := clause_text(record.case.clause):
        yield f"{record.case.clause}  {clause}"
    yield f"test: {record.test}"
    for part in ("inputs", "outputs"):
        if values := record.detail.get(part):
            yield ""
            yield part
            yield from _values(values)
    if record.failed or record.reason:
        yield ""
        yield from _failure(record)


def clause_text(clause: str) -> str:
    """Return the text of the clause; empty if no op has it."""
    try:
        return contracts.by_clause(clause).clause(clause).text
    except KeyError:
        return ""


def _failure(record: Record) -> Iterator[str]:
    if record.failed:
        yield f"{record.kind}: {record.message}"
        if wrong := record.failure.get("wrong"):
            total = record.failure.get("total")
            yield f"  {wrong:,} of {total:,} elements" if total else f"  {wrong:,} elements"
        for example in record.failure.get("examples", ()):
            yield f"  {example['index']}  expected {example['expected']}, got {example['got']}"
        for name, value in record.failure.get("details", {}).items():
            yield f"{name}"
            yield from (f"  {line}" for line in str(value).splitlines())
        reached = (
            f"reached: {record.reach}" if record.reach else "no known caller reaches this; only the contract is broken"
        )
        yield f"{record.level}  {reached}"
    else:
        yield f"{record.outcome}: {record.reason}"
        if record.at:
            yield f"  at {record.at}"


def _values(values: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    width = max(len(name) for name in values)
    for name, value in values.items():
        if "shape" not in value:
            yield f"  {name.ljust(width)}  {value.get('value')}"
            continue
        size = 1
        for dim in value["shape"]:
            size *= dim
        shown = " ".join(_number(v) for v in value["values"][:SHOWN])
        more = f" ... ({size:,} in all)" if size > SHOWN else ""
        shape = "x".join(map(str, value["shape"])) or "scalar"
        yield f"  {name.ljust(width)}  {value['dtype']} {shape}: {shown}{more}"


def _number(value: Any) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)
