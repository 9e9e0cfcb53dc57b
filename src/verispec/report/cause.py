"""A cause and a gap: failing cases with one presumed fault, and cases without a result for one reason."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from verispec.run.record import AS_IF

EVERY_OP = "ANY-"
"""Beginning of the ids of clauses that hold for every op."""


@dataclass(frozen=True, slots=True)
class Cause:
    """A group of failing cases with one presumed fault.

    Attributes:
        case: smallest failing case of `clause`, the clause that the fault breaks most clearly; among those that explain
            themselves as most do, where most do.
        where: parameters that separate failing from passing cases, or empty.
    """

    level: str
    clause: str
    clauses: tuple[str, ...]
    kind: str
    subjects: tuple[str, ...]
    message: str
    where: str
    reach: str
    case: str
    cases: tuple[str, ...]
    issues: tuple[str, ...] = ()
    consequences: tuple[str, ...] = ()
    """Cases of end-to-end samplers and generations that pass with the reference's kernel in the op's place."""
    saved: str = ""
    """File with the inputs of `case`, if the run recorded them."""
    rule: str = ""
    """Text of `clause`."""
    source: str = ""
    """Source of `clause`, where it belongs to a contract."""
    fault: str = ""
    """The fault in a few words, if clauses of several ops forbid the same one."""
    named: str = ""
    """The fault that `case` names, in words; empty where it cannot tell."""
    located: bool = False
    """True if the message says where all wrong places lie and right ones do not."""
    crashes: int = 0
    """Cases in which the process ended, where `kind` is another."""
    hangs: int = 0
    """Cases without an answer in time, where `kind` is another."""
    unreachable: str = ""
    """Reason why no caller of a real engine breaks `clause`, where its contract gives one."""
    rare: str = ""
    """Estimate of how rarely a caller breaks `clause`, where its contract gives one."""
    harmless: str = ""
    """Reason why breaking `clause` does no harm to the callers that do, where its contract gives one."""
    kernel: str = ""
    """File and line of the kernel, where the engine knows it."""
    caller: str = ""
    """File and line of the function that calls it."""
    stopped: str = ""
    """Line of code at which `case` raised, hung or ended its process, where a traceback tells it."""
    code: str = ""
    """Owner of the kernel's code, such as one platform, where the engine knows it."""
    origin: str = ""
    """File and line of the engine that makes such calls, where `clause` knows it and this engine has it."""
    severity: str = ""
    """Severity of an error; empty for a note."""
    parts: tuple[str, ...] = ()
    """One line per op, where notes of several ops are one cause."""
    twin: str = ""
    """Parameters of `case`, if another cause has the same clause and ops."""
    is_trigger: bool = True
    """False if cases that have another `reach`, of this cause or of `clause`, fail too: it is then no condition."""
    beside: tuple[str, ...] = ()
    """Clauses of its own that the op fails too, for a note of clauses of every op: it may be one of their faults."""

    @property
    def name(self) -> str:
        """The clause, with its ops if it is a clause of every op."""
        return f"{self.clause} of {', '.join(self.subjects)}" if self.clause.startswith(EVERY_OP) else self.clause

    @property
    def headline(self) -> str:
        """The clause and the ops that fail it; the kind of fault, if it is that of several ops."""
        if self.parts:
            return f"{self.fault} in {len(self.subjects)} ops"
        return f"{self.clause}, {', '.join(self.subjects)}" + (f", {self.twin}" if self.twin else "")

    @property
    def norm(self) -> str:
        """The text of the clause and its source; empty if the run did not record the text."""
        return f"{self.rule} Source: {self.source}." if self.rule and self.source else self.rule

    @property
    def tells(self) -> bool:
        """True if the message names the fault, or says where it shows."""
        return bool(self.named) or self.located or AS_IF in self.message

    def to_json(self) -> dict[str, Any]:
        """Return the cause as a JSON-serialisable dictionary."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Gap:
    """Cases without a result for the same reason: the engine does not support them, or the evidence is too weak."""

    reason: str
    outcome: str
    subjects: tuple[str, ...]
    cases: tuple[str, ...]
    issue: str = ""
    applies: bool = True
    """False if the engine does not have the tested part at all."""

    def to_json(self) -> dict[str, Any]:
        """Return the gap as a JSON-serialisable dictionary."""
        return asdict(self)
