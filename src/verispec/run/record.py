"""The verdict on one case, as it stands in a run file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from verispec.cases import CaseId

FAILING = ("fail", "crash", "timeout")
"""The engine did something wrong."""
UNDECIDED = ("unsupported", "inconclusive", "error")
"""Nothing is known of the engine: it does not claim to do this, there is not enough evidence, or the test broke."""


@dataclass(frozen=True, slots=True)
class Record:
    """One case. `outcome` is what counts; where an expectation changed it, `observed` is what was seen.

    `reach` says how production gets there, `failure` what was wrong, `reason` why there is no verdict,
    `explained_by` which op's fault makes this case fail too, `evidence` what a statistical test has shown.
    """

    id: str
    outcome: str
    seconds: float = 0.0
    test: str = ""
    reach: str = ""
    failure: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""
    at: str = ""
    observed: str = ""
    issue: str = ""
    explained_by: str = ""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    detail: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, line: Mapping[str, Any]) -> Record:
        """From a run file's line; fields that a later version added are ignored."""
        return cls(**{name: line[name] for name in cls.__dataclass_fields__ if name in line})

    def to_json(self) -> dict[str, Any]:
        """Every field that says something, with the type of the line first."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {"type": "case", **{k: v for k, v in values.items() if v or k in ("outcome", "seconds")}}

    @property
    def case(self) -> CaseId:
        return CaseId.parse(self.id)

    @property
    def seen(self) -> str:
        """The outcome without regard to expectations."""
        return self.observed or self.outcome

    @property
    def failed(self) -> bool:
        return self.seen in FAILING

    @property
    def kind(self) -> str:
        """The class of the failure; empty where there is none."""
        return str(self.failure.get("kind", ""))

    @property
    def message(self) -> str:
        return str(self.failure.get("message", "")) or self.reason

    @property
    def level(self) -> str:
        """``error`` where production gets there, ``note`` where only the contract is broken."""
        return "error" if self.reach else "note"

    @property
    def category(self) -> str:
        return category_of(self.case)


CATEGORIES = ("exact", "generated", "metamorphic", "law", "live", "text")
"""How a case judges: one written call against the oracle, calls that Hypothesis writes, calls against each
other, frequencies against exact probabilities, callables against callers, generated text token by token."""


def category_of(case: CaseId) -> str:
    """The category of a case, read from its id: its suite, ``mode=generated``, ``mode=law`` or ``relation=...``."""
    params = dict(case.params)
    if case.suite in ("signatures", "e2e"):
        return "live" if case.suite == "signatures" else "text"
    if "relation" in params:
        return "metamorphic"
    mode = params.get("mode")
    return mode if mode in ("generated", "law") else "exact"


def is_quick(case: CaseId) -> bool:
    """Whether the case is one small call: no sample, no search, no tensors of gigabytes (``size=large``)."""
    return category_of(case) in ("exact", "live") and dict(case.params).get("size") != "large"
