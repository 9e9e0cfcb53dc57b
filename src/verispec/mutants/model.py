"""The data of a mutation campaign: faults, results and their classes."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    """Fate of a mutant, from best to worst for the suites."""

    KILLED = "killed"
    """A case of a clause of the mutated op failed."""
    KILLED_ELSEWHERE = "killed elsewhere"
    """Only a case of another contract failed."""
    CRASHED = "crash or timeout only"
    """No case failed; the process crashed, hung, or a test raised outside of any comparison."""
    SURVIVED = "survived"
    NOT_REACHED = "not reached"
    """No case executes the mutated code (under the mutant's trigger)."""
    EQUIVALENT = "equivalent"
    """Listed, with a reason, in the reviewed list."""
    INVALID = "invalid"
    """The mutant does not build or cannot be imported; it is not counted."""


ALWAYS = "always"


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault: at `line` and `column` of `file`, `before` became `after`.

    Attributes:
        layer: name of the layer.
        file: path below the layer's folder.
        line: line of the fault, from 1.
        column: column of the fault, from 1.
        operator: kind of fault.
        before: the original code.
        after: the faulty code.
        text: the source line, for the reviewed list.
        number: selects the mutant within its layer.
        ops: ops whose own clauses should catch it; empty means any clause of the layer's suites.
        trigger: condition under which the fault acts.
        loops: number of loops around the site, as far as its language's operators know them.
        never: triggers that cannot hold at the site.
        function: name of the function around it, for Python.
    """

    layer: str
    file: str
    line: int
    column: int
    operator: str
    before: str
    after: str
    text: str
    number: int
    ops: tuple[str, ...] = ()
    trigger: str = ALWAYS
    loops: int = 0
    never: tuple[str, ...] = ()
    function: str = ""

    @property
    def id(self) -> str:
        """A name that is unique within a version of the sources."""
        when = "" if self.trigger == ALWAYS else f" [{self.trigger}]"
        return (
            f"{self.layer}/{self.file}:{self.line}:{self.column} {self.operator}: {self.before} -> {self.after}{when}"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the mutant as a JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Mutant:
        """Return the mutant of a JSON object."""
        return cls(**{**data, "ops": tuple(data["ops"]), "never": tuple(data.get("never", ()))})


@dataclass(slots=True)
class MutantResult:
    """Results of the cases on one mutant.

    Attributes:
        mutant: the fault.
        verdict: fate of the mutant.
        case: the case that decided: the first that failed, else the first that crashed.
        cases: number of cases that were run.
        seconds: wall time of all cases.
        reason: reason for a fate that no failing case explains.
        crashes: ids of the cases that crashed or hung.
    """

    mutant: Mutant
    verdict: Verdict
    case: str = ""
    cases: int = 0
    seconds: float = 0.0
    reason: str = ""
    crashes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return the result as a JSON object."""
        return {**asdict(self), "mutant": self.mutant.to_json(), "id": self.mutant.id}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> MutantResult:
        """Return the result of a JSON object."""
        given = {f.name: data[f.name] for f in fields(cls) if f.name in data}
        return cls(**{**given, "mutant": Mutant.from_json(data["mutant"]), "verdict": Verdict(data["verdict"])})
