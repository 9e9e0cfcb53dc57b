"""The result of one case, as a results file holds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from verispec.cases import CaseId

FAILING = ("fail", "crash", "timeout")
"""The engine did something wrong."""
SAVED = "saved case"
"""Detail of a failure that names the file of its inputs."""
FAULT = "fault"
"""Detail of a failure that names its fault, where the case can tell; one fault may break several clauses."""
LOCATED = "located"
"""Detail of a failure that is True if its message says where all wrong places lie and right ones do not."""
TRAITS = "traits"
"""Detail of a failure with all kinds of rows in which all wrong elements lie, each with its evidence."""
AGREEING = "agreeing"
"""Detail of a failure with all mistakes that give its outputs, many of them by chance."""
PARTLY = "agreeing where wrong"
"""Detail of a failure with all mistakes that give its wrong elements, but not all outputs."""
SILENT = (TRAITS, AGREEING, PARTLY)
"""Details that only the report of several cases uses."""
AS_IF = "as if "
"""Words in a failure's message before the mistakes that give exactly the engine's outputs."""
OF_RULE = " of the oracle's "
"""Words in a mistake that is a change of the op's rule, found by trying."""
ALTERNATIVELY = ", or "
"""Words between faults, or mistakes, that explain a failure equally well."""
NOT_WRITTEN = "not written"
"""Value of an element in a failure's examples that still holds the harness's mark."""
UNDECIDED = ("unsupported", "inconclusive", "error")
"""Nothing is known of the engine: it rejected the case, there is not enough evidence, or the test broke."""
KNOWN = ("pass", "xfail", "xpass", *FAILING, *UNDECIDED)
"""Every outcome that this version knows."""

_UNSAID: tuple[Any, ...] = ("", {}, True)
"""Values of fields that need no place in the file."""


@dataclass(frozen=True, slots=True)
class Record:
    """The result of one case.

    Attributes:
        id: the case id.
        outcome: the result that counts.
        seconds: duration of the case.
        cpu: processor seconds of its worker, all threads and the set-up included.
        test: the test function.
        rule: text of the clause, where verispec itself does not have it.
        reach: path of production to the case; empty where only the contract is at stake.
        failure: description of the failure.
        places: ``file:line`` of the engine's kernel and of its caller, for a failing case, where the engine knows them.
        reason: why the case is undecided.
        at: place where a test broke.
        observed: outcome before an expectation changed it.
        issue: the issue that tracks a known failure.
        explained_by: the ops whose faults make this case fail too.
        offered: False where the engine does not have the tested part at all.
        evidence: results of a statistical test.
        acceptance: verifications with drafts (`drafts`), and accepted drafts per position (`accepted`), where the case
            generated text and the engine counts them.
        detail: inputs and outputs of the last call.
    """

    id: str
    outcome: str
    seconds: float = 0.0
    cpu: float = 0.0
    test: str = ""
    rule: str = ""
    reach: str = ""
    failure: Mapping[str, Any] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    at: str = ""
    observed: str = ""
    issue: str = ""
    explained_by: str = ""
    offered: bool = True
    evidence: Mapping[str, Any] = field(default_factory=dict)
    acceptance: Mapping[str, Any] = field(default_factory=dict)
    detail: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, line: Mapping[str, Any]) -> Record:
        """Return the record of a results file's line; fields that a later version added are ignored."""
        return cls(**{name: line[name] for name in cls.__dataclass_fields__ if name in line})

    def to_json(self) -> dict[str, Any]:
        """Return every field that says something, with the type of the line first."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        said = {k: v for k, v in values.items() if k in ("outcome", "seconds", "cpu") or v not in _UNSAID}
        return {"type": "case", **said}

    @property
    def case(self) -> CaseId:
        """The parsed case id."""
        return CaseId.parse(self.id)

    @property
    def seen(self) -> str:
        """Return the outcome without regard to expectations."""
        return self.observed or self.outcome

    @property
    def failed(self) -> bool:
        """True if the case failed, expected or not."""
        return self.seen in FAILING

    @property
    def decided(self) -> bool:
        """Return True if the case has a result that says something about the engine."""
        return self.seen in ("pass", *FAILING)

    @property
    def applies(self) -> bool:
        """Return False for a case of a part that the engine does not have; nothing is missing without its result."""
        return self.offered or self.seen != "unsupported"

    @property
    def kind(self) -> str:
        """Return the class of the failure; empty where there is none."""
        return str(self.failure.get("kind", ""))

    @property
    def message(self) -> str:
        """Message of the failure, else the reason of the outcome."""
        return str(self.failure.get("message", "")) or self.reason

    @property
    def level(self) -> str:
        """Return ``error`` where production reaches the case, ``note`` where only the contract is broken."""
        return "error" if self.reach else "note"

    @property
    def category(self) -> str:
        """Category of the case in the report's table."""
        return category_of(self.case)


CATEGORIES: Mapping[str, str] = {
    "exact": "one written call against the oracle",
    "generated": "calls that Hypothesis writes against the oracle",
    "metamorphic": "calls against each other",
    "law": "frequencies of random outputs against exact probabilities",
    "live": "the engine's callables against their callers",
    "text": "generated text, token by token",
}
"""Categories of cases, each with its method."""


def category_of(case: CaseId) -> str:
    """Return the category of a case from its id: its suite, ``mode=generated``, ``mode=law`` or ``relation=...``."""
    params = dict(case.params)
    if case.suite in ("signatures", "e2e"):
        return "live" if case.suite == "signatures" else "text"
    if "relation" in params:
        return "metamorphic"
    mode = params.get("mode")
    return mode if mode in ("generated", "law") else "exact"


def is_quick(case: CaseId) -> bool:
    """Return True if the case is one small call: no sample, no search, no tensors of gigabytes (``size=large``)."""
    return category_of(case) in ("exact", "live") and dict(case.params).get("size") != "large"
