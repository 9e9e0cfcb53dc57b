"""All details of one case, as ``verispec repro`` prints them."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from verispec.engines.protocol.source_places import CALLER, CODE, KERNEL, ORIGIN
from verispec.report.causes import rule_of
from verispec.report.certificate import message_of
from verispec.report.text import circumstances, places_line, title
from verispec.run.captured_call import PARTS
from verispec.run.record import AS_IF, FAULT, SILENT, Record
from verispec.terminal import COLUMNS, printable, wrapped

SHOWN = 16
"""Maximum number of array elements per line."""

MARKS = {"outputs": " (-7777 and nan: not written)", "expected": " (-7777 and nan: must stay untouched)"}
"""Meaning of the mark that outputs hold before a call, by part of a call."""


def case_lines(
    record: Record,
    header: Mapping[str, Any],
    call: Mapping[str, Mapping[str, Any]] | None = None,
    width: int = COLUMNS,
) -> Iterator[str]:
    """Yield the case, its clause, inputs and outputs, the failure and its reach, as printable lines.

    Sentences are broken at `width` columns; values, tables and tracebacks keep their lines.

    Args:
        record: the case.
        header: header of its run.
        call: all values of its last call, to show arrays whole; None shows the record's summary.
        width: columns of a line.
    """
    for line in _lines(record, header, call, width):
        yield printable(line)


def _lines(
    record: Record, header: Mapping[str, Any], call: Mapping[str, Mapping[str, Any]] | None, width: int
) -> Iterator[str]:
    yield f"{record.id}  {record.outcome}"
    yield from wrapped(title(header), width)
    yield from wrapped(circumstances(header), width)
    yield ""
    if rule := rule_of(record):
        yield from wrapped(f"{record.case.clause}  {rule}", width)
    yield f"test: {record.test}"
    if call is not None:
        yield from full_lines(call)
    for part in PARTS if call is None else ():
        if values := record.detail.get(part):
            yield ""
            yield f"{part}{MARKS[part]}" if part in MARKS and _has_mark(values) else part
            yield from _values(values)
    if record.failed or record.reason:
        yield ""
        yield from _failure(record, width)


def _has_mark(values: Mapping[str, Mapping[str, Any]]) -> bool:
    shown = [str(v) for value in values.values() for v in value.get("values", ())]
    return "-7777" in shown or "nan" in shown


def _failure(record: Record, width: int) -> Iterator[str]:
    if record.failed:
        source = {record.id: f"a fault in {record.explained_by}"} if record.explained_by else {}
        yield from wrapped(f"{record.kind}: {message_of(record, source)}", width)
        if wrong := record.failure.get("wrong"):
            total = record.failure.get("total")
            yield f"  {wrong:,} of {total:,} elements" if total else f"  {wrong:,} elements"
        for example in record.failure.get("examples", ()):
            yield f"  {example['index']}  expected {example['expected']}, got {example['got']}"
        for name, value in record.failure.get("details", {}).items():
            if name in SILENT:
                continue
            yield AS_IF.strip() if name == FAULT and f"{AS_IF}{value}" in record.message else name
            yield from (f"  {line}" for line in detail_lines(value))
        reached = (
            f"reached in production: {record.reach}"
            if record.reach
            else "no caller is known that passes such arguments; only the contract is broken"
        )
        yield from wrapped(f"{record.level}  {reached}", width)
        if origin := record.places.get(ORIGIN, ""):
            yield from wrapped(f"such calls are made at {origin}", width)
        kernel, caller, code = (record.places.get(name, "") for name in (KERNEL, CALLER, CODE))
        if kernel or caller:
            yield from wrapped(places_line(kernel, caller, code), width)
    else:
        yield from wrapped(f"{record.outcome}: {record.reason}", width)
        if record.at:
            yield f"  at {record.at}"


def detail_lines(value: Any) -> Iterator[str]:
    """Yield a detail of a failure as lines: a list as one line per item, rows with the same fields as a table."""
    if isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
        rows = [list(map(str, value[0])), *([_number(cell) for cell in row.values()] for row in value)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            yield "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
    elif isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        yield from value
    else:
        yield from str(value).splitlines()


def full_lines(call: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield every value of a captured call, each array whole."""
    import numpy as np

    for part, values in call.items():
        yield ""
        yield part
        for name, value in values.items():
            if not hasattr(value, "dtype"):
                yield f"  {name}: {value}"
                continue
            yield f"  {name}  {value.dtype} {'x'.join(map(str, value.shape)) or 'scalar'}:"
            text = np.array2string(value, threshold=sys.maxsize, max_line_width=COLUMNS - 4, precision=9)
            yield from (f"    {line}" for line in text.splitlines())


def _values(values: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    width = max(len(name) for name in values)
    for name, value in values.items():
        if "shape" not in value:
            yield f"  {name.ljust(width)}  {_plain(value.get('value'))}"
            continue
        size = math.prod(value["shape"])
        if len(value["shape"]) == 2 and SHOWN < size == len(value["values"]):  # whose rows fit one below the other
            yield f"  {name.ljust(width)}  {value['dtype']} {'x'.join(map(str, value['shape']))}:"
            yield from _rows(value["values"], value["shape"][1])
            continue
        shown = " ".join(_number(v) for v in value["values"][:SHOWN])
        shape = "x".join(map(str, value["shape"])) or "scalar"
        yield f"  {name.ljust(width)}  {value['dtype']} {shape}: {shown}{_more(size)}"


def _rows(values: Sequence[Any], columns: int) -> Iterator[str]:
    """Yield a small matrix, one row per line."""
    cells = [_number(value) for value in values]
    wide = max(map(len, cells))
    for start in range(0, len(cells), columns):
        yield "    " + " ".join(cell.rjust(wide) for cell in cells[start : start + columns])


def _plain(value: Any) -> str:
    """Return a value that is no array, of a list the first items."""
    if not isinstance(value, list):
        return str(value)
    return f"{value[:SHOWN]}{_more(len(value))}"


def _more(size: int) -> str:
    return f" ... ({size:,} in all; --full shows them)" if size > SHOWN else ""


def _number(value: Any) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)
