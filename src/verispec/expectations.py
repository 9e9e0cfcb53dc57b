"""Known failures of an engine, each with the issue that tracks it.

A TOML file in the engine's repository:

    [[expect]]
    case = "sampler/expand_batch_to_tokens:*dtype=float32*"
    outcome = "fail"
    issue = "https://github.com/..."
    reason = "the shim writes into a converted copy"

A case that fails as expected becomes `xfail`. A case that passes becomes `xpass` and fails the run, so that the file
stays current. An entry that matches no case fails the run too. A failure of the outcome `varies` depends on chance,
such as memory that may or may not be there: its cases may fail in any way, and may pass.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from verispec.cases import selects
from verispec.errors import VerispecError
from verispec.run.record import FAILING, Record

VARIES = "varies"
OUTCOMES = ("fail", "crash", "timeout", "unsupported", VARIES)
_FIELDS = {"case": True, "outcome": True, "issue": True, "reason": False}


@dataclass(frozen=True, slots=True)
class Expectation:
    """One known failure: the expected outcome of the cases that `case` matches, and the issue that tracks it."""

    number: int
    case: str
    outcome: str
    issue: str
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the entry as a JSON-serialisable dictionary."""
        return asdict(self)

    def __str__(self) -> str:
        return f"entry {self.number} ({self.case!r}: {self.outcome}, {self.issue})"


def load(path: Path) -> tuple[Expectation, ...]:
    """Return the entries of the file `path`.

    Raises:
        VerispecError: V-EXPECT with the entry, the expected and the actual value.
    """
    try:
        with path.open("rb") as file:
            document = tomllib.load(file)
    except OSError as error:
        raise _wrong(path, "cannot read the known-failures file", cause=error.strerror or str(error)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _wrong(path, "the known-failures file is not TOML", cause=str(error)) from error
    if unknown := sorted(set(document) - {"expect"}):
        raise _wrong(path, f"unknown key {unknown[0]!r}", "expected only [[expect]] entries")
    entries = document.get("expect", [])
    if not isinstance(entries, list):
        raise _wrong(path, "expect is not a list of entries", "expected [[expect]], with two pairs of brackets")
    return tuple(_entry(path, number, entry) for number, entry in enumerate(entries, 1))


def require_proposal(path: Path, current: Path | None) -> None:
    """Raise VerispecError V-EXPECT unless a proposal may be written to `path`: a new file, or an earlier proposal."""
    if current is not None and path.absolute() == current.absolute():
        raise _wrong(path, "the proposal would replace the file of --expect", "name another file, and compare the two")
    if not path.absolute().parent.is_dir():
        raise _wrong(path, "the folder of the proposal does not exist", "name a file in an existing folder")
    if path.exists():
        try:
            known = not set(tomllib.loads(path.read_text(encoding="utf-8"))) - {"expect"}
        except (OSError, ValueError) as error:
            raise _wrong(path, "the file exists and is not a file of known failures", cause=str(error)) from error
        if not known:
            raise _wrong(
                path, "the file exists and is not a file of known failures", cause="it has other keys than [[expect]]"
            )


def _entry(path: Path, number: int, entry: Any) -> Expectation:
    where = f"entry {number}"
    if not isinstance(entry, dict):
        raise _wrong(path, f"{where}: expected a table, got {entry!r}")
    if unknown := sorted(set(entry) - set(_FIELDS)):
        raise _wrong(path, f"{where}: unknown key {unknown[0]!r}", f"expected {', '.join(_FIELDS)}")
    for name, required in _FIELDS.items():
        value = entry.get(name, None if required else "")
        if not isinstance(value, str) or (required and not value.strip()):
            got = "nothing" if name not in entry else repr(entry[name])
            raise _wrong(path, f"{where}: {name} must be a non-empty text, got {got}", _why(name))
    if entry["outcome"] not in OUTCOMES:
        raise _wrong(path, f"{where}: outcome {entry['outcome']!r} is unknown", f"expected {', '.join(OUTCOMES)}")
    if "://" not in entry["issue"]:
        raise _wrong(path, f"{where}: issue must be a link, got {entry['issue']!r}", _why("issue"))
    return Expectation(number, **entry)


def _why(name: str) -> str:
    return {
        "case": "a case id, a prefix of whole parts, or a pattern with *",
        "outcome": f"one of {', '.join(OUTCOMES)}",
        "issue": "nobody fixes a known failure without an issue",
        "reason": "omit it, or explain the failure in one sentence",
    }[name]


def _wrong(path: Path, message: str, hint: str = "", *, cause: str = "") -> VerispecError:
    hint = hint or "docs/reference/known-failures.md describes the file"
    return VerispecError("V-EXPECT", message, where=str(path), cause=cause, hint=hint)


def apply(entries: Sequence[Expectation], record: Record) -> Record:
    """Return the record with the outcome of the first entry that matches it; unchanged if none does."""
    entry = next((e for e in entries if selects(e.case, record.id)), None)
    if entry is None:
        return record
    if entry.outcome == VARIES:
        failed = record.outcome in FAILING
        return replace(record, outcome="xfail", observed=record.outcome, issue=entry.issue) if failed else record
    if record.outcome == "pass":
        return replace(record, outcome="xpass", observed="pass", issue=entry.issue)
    if record.outcome != entry.outcome:
        return record
    if entry.outcome == "unsupported":
        return replace(record, issue=entry.issue)
    return replace(record, outcome="xfail", observed=record.outcome, issue=entry.issue)


def unmatched(entries: Sequence[Expectation], cases: Sequence[str]) -> tuple[Expectation, ...]:
    """Return the entries that match none of `cases`."""
    return tuple(e for e in entries if not any(selects(e.case, case) for case in cases))
