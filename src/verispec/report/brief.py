"""The causes that a user can meet, one line each, and the way to run their commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from verispec.cases import CaseId
from verispec.cases.glosses import GLOSSES
from verispec.reference import contracts
from verispec.reference.contracts import clause_of
from verispec.report.cause import Cause
from verispec.report.certificate import BEST
from verispec.report.reported_clause import BY_CLAUSE
from verispec.report.stopped import RAISED
from verispec.report.verdict import RunSummary
from verispec.run.logs import LAST_CALL
from verispec.run.record import AS_IF

TITLE = "What users of speculative decoding can meet"
CONTRACTS = (
    "The rules are verispec's own contracts. Each names its source: a paper, an issue, an engine's code, or the "
    "contract alone. A source is where the rule was read, and no repair."
)
INSTALL = (
    "The commands of this report need verispec beside the engine, and it needs Python 3.11 or newer and a C++17 "
    "compiler. To install it: git clone https://github.com/verispec/verispec, then pip install "
    "'./verispec[judge,generate]'."
)
_WRONG = (*BY_CLAUSE, "law", "unwritten", "overwritten", "depends on stale memory")
"""Kinds of failure whose message shows elements of tensors, and not what they lead to."""


def met(causes: Sequence[Cause]) -> tuple[Cause, ...]:
    """Return the errors, which a user can meet. A single cause needs no list."""
    return tuple(cause for cause in causes if len(causes) > 1 and cause.level == "error")


def introduction(verdict: RunSummary) -> str:
    """Return the difference of errors and notes, if there are both, and the error to repair first."""
    notes = sum(cause.level == "note" for cause in verdict.causes)
    apart = "Real callers reach these errors. The notes below have no known caller, a rare one, or do no harm."
    return " ".join(filter(None, [apart if notes else "", _start_with(verdict), _package(verdict.run.header)]))


def _package(header: Mapping[str, Any]) -> str:
    package = packaging(header["engine"])
    return f"The package is {package}; verispec did not compare its files with the engine's own." if package else ""


def packaging(engine: Mapping[str, Any]) -> str:
    """Return the package of an engine with its version; empty if it has the engine's own name and version."""
    package = str(engine["details"].get("distribution", ""))
    return "" if package == f"{engine['name']} {engine['version']}" else package


def _start_with(verdict: RunSummary) -> str:
    first = met(verdict.causes)[0]
    if not first.consequences:
        return ""
    count = len(first.cases) + len(first.consequences)
    failing = sum(len(cause.cases) + len(cause.consequences) for cause in verdict.causes)
    return (
        f"Start with {first.clause}: with its consequences it is {count} of the {failing} failing cases. Run again "
        "after its repair, since it may hide others."
    )


def brief_line(cause: Cause, header: Mapping[str, Any]) -> str:
    """Return an error as one line, with the fields of `brief_fields`.

    Args:
        cause: the error.
        header: header of its run.
    """
    return " ".join(f"{name}: {text}." for name, text in brief_fields(cause, header))


def brief_fields(cause: Cause, header: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the named facts of an error: severity, trigger, effect or fault, clause, place, evidence end to end.

    Args:
        cause: the error.
        header: header of its run.
    """
    seen = [("Effect", effect(cause))]
    clause = clause_of(cause.clause)
    if cause.named:
        own = [("Effect", clause.effect)] if clause and clause.effect else []
        name = "As if" if f"{AS_IF}{cause.named}" in cause.message else "Fault"
        seen = [*own, (name, cause.named), ("Seen", cause.message.removeprefix(f"{cause.named}: "))]
    ops = cause.subjects[0] if len(cause.subjects) == 1 else f"{len(cause.subjects)} ops"
    made = f". Such calls are made at {cause.origin}" if cause.origin else ""
    code = f" ({cause.code})" if cause.code else ""
    place = cause.kernel or cause.caller
    at = f", in the function at {place}{code}" if place else ""
    return [
        ("Severity", cause.severity),
        ("Trigger" if cause.is_trigger else "First seen with", f"{cause.reach}{made}"),
        *seen,
        ("Clause", f"{cause.clause} of {ops}{at}"),
        ("End to end", end_to_end(cause, header)),
        ("Upstream", upstream(cause, header)),
    ]


def end_to_end(cause: Cause, header: Mapping[str, Any]) -> str:
    """Return whether an error was seen in generated text: in this run, or in the engine alone.

    Args:
        cause: the error.
        header: header of its run.
    """
    generated = [case for case in (*cause.cases, *cause.consequences) if CaseId.parse(case).suite == "e2e"]
    if generated:
        return f"seen in a generation of this run, such as {generated[0]}"
    engine, clause = header["engine"], clause_of(cause.clause)
    for sighting in clause.sightings if clause else ():
        if (sighting.engine, sighting.version) == (engine["name"], engine["version"]):
            script = f"docs/verdicts/proofs/{sighting.script}"
            return f"seen with {sighting.engine} {sighting.version} alone: {sighting.text} (python {script})"
    return "not confirmed"


def upstream(cause: Cause, header: Mapping[str, Any]) -> str:
    """Return the state of an error in the engine's own tracker, where verispec knows it.

    Args:
        cause: the error.
        header: header of its run.
    """
    clause = clause_of(cause.clause)
    known = clause.upstream.get(header["engine"]["name"], "") if clause else ""
    return ", ".join(cause.issues) or known or "verispec knows no report"


def ids_line(causes: Sequence[Cause]) -> str:
    """Return the meaning of the values in the case ids of `causes` that do not explain themselves; empty for none."""
    pairs = dict.fromkeys(pair for cause in causes for pair in CaseId.parse(cause.case).params)
    said = [f"{name}={value}: {GLOSSES[name].values[value]}" for name, value in pairs if _has_gloss(name, value)]
    return f"In these case ids, {'; '.join(said)}." if said else ""


def _has_gloss(name: str, value: str) -> bool:
    return name in GLOSSES and value in GLOSSES[name].values


def effect(cause: Cause) -> str:
    """Return the effect of a cause on a user."""
    message = cause.message.partition(LAST_CALL)[0].partition(BEST)[0].rstrip(".")
    if cause.kind == "raised":
        place = cause.stopped.removeprefix(RAISED).strip()
        return f"the step raises {message}" + (f" ({place})" if place else "")
    clause = clause_of(cause.clause)
    if cause.kind not in _WRONG or clause is None:
        return message
    op = next((contracts.load(name) for name in cause.subjects if name in contracts.names()), None)
    return clause.effect or (op.effect if op else "") or message
