"""The decorator that turns a suite's test function into cases."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from verispec.reference import contracts

Test = TypeVar("Test", bound=Callable[..., None])
Reach = str | Callable[[Mapping[str, Any]], str | None] | None


@dataclass(frozen=True, slots=True)
class CaseSpec:
    """Declaration that `case` attaches to a test function.

    Attributes:
        clause: id of the clause that the cases check.
        params: values by parameter name, one case per combination.
        fixed: parameters that only appear in the id.
        reach: path of production to a case, a function of its parameters, or None.
        on: the only platform on which production reaches it, or empty for every platform.
        subjects: ops that one test checks in turn; empty if it checks the op that its file is named after.
        p_values: maximum number of p-values that decide a case.
    """

    clause: str
    params: Mapping[str, Sequence[Any]]
    fixed: Mapping[str, Any]
    reach: Reach
    on: str = ""
    subjects: tuple[str, ...] = ()
    p_values: int = 0
    quick: bool = True

    def combinations(self) -> Iterator[dict[str, Any]]:
        """Yield every combination of the listed parameters, in the order of their declaration."""
        lists = {**({"subject": self.subjects} if self.subjects else {}), **self.params}
        for values in itertools.product(*lists.values()):
            yield dict(zip(lists, values, strict=True))

    def reach_of(self, params: Mapping[str, Any], platform: str) -> str:
        """Return how production on `platform` reaches a case, or an empty string if only the contract is broken.

        A clause that no caller of a real engine can break, or only rarely, is never production-reachable.

        Args:
            params: parameters of the case.
            platform: "cpu" or "cuda".
        """
        clause = contracts.by_clause(self.clause).clause(self.clause)
        if clause.unreachable or clause.rare or (self.on and self.on != platform):
            return ""
        text = self.reach(params) if callable(self.reach) else self.reach
        return text or ""


def case(
    clause: str,
    *,
    reach: Reach = None,
    on: str = "",
    subjects: Sequence[str] = (),
    p_values: int = 0,
    quick: bool = True,
    **params: Any,
) -> Callable[[Test], Test]:
    """Declare the cases of a test: the clause that they check and their parameters.

    Args:
        clause: id of the clause, such as "RRS-3".
        reach: path of production to the case, or a function of the parameters that returns it. A failure of such a
            case is an error. None means that no known caller reaches it, and a failure is an info.
        on: the only platform ("cuda") on which production reaches the case.
        subjects: ops that the test checks in turn, each passed to it as `subject`; empty if the file's name says it.
        p_values: maximum number of p-values that decide the case; each takes its part of the run's error budget.
        quick: False for a test of many calls, which `verispec smoke` leaves out.
        **params: a list makes one case per value and is passed to the test, or to its fixture, by name. None stays out
            of the id. Any other value is fixed and only appears in the id, which keeps ids unique when several tests
            check one clause.

    Raises:
        TypeError: the test has cases already; those of the other clause would be lost.
    """
    varied = {k: v for k, v in params.items() if isinstance(v, list)}
    fixed = {k: v for k, v in params.items() if not isinstance(v, list)}

    def attach(test: Test) -> Test:
        if hasattr(test, "__verispec_case__"):
            raise TypeError(f"{test.__name__} has cases already: give those of {clause} a test of their own")
        spec = CaseSpec(clause, varied, fixed, reach, on, tuple(subjects), p_values, quick)
        test.__verispec_case__ = spec  # type: ignore[attr-defined]
        return test

    return attach
