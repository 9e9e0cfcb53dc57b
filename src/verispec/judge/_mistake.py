"""A mistake of an op: another oracle, in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from verispec.judge._compare import Array, oracle_outputs

Inputs = Mapping[str, Any]
Outputs = dict[str, Array]
Rule = Callable[[str, Inputs], Outputs | None]
"""From an op and its arguments to the outputs with a mistake; None where the mistake changes nothing by its nature."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """A mistake that a call may show.

    Attributes:
        words: description of the mistake, to follow "as if".
        rule: function that returns the outputs with the mistake.
        is_listed: True if it is listed for an op or for random numbers. Its words are then the same for every call, so
            that they name the fault of many cases. Those of a misread input have numbers of the call.
    """

    words: str
    rule: Rule
    is_listed: bool


def without(name: str) -> Rule:
    """Return the mistake of a limit that is ignored, which the call must have."""
    return having(name, lambda _: None)


def having(name: str, value: Callable[[Any], Any]) -> Rule:
    """Return the mistake of another value of one argument, which the call must have."""
    return lambda op, inputs: (
        None if inputs.get(name) is None else oracle_outputs(op, inputs, **{name: value(inputs[name])})
    )


def reading(changed: Inputs) -> Rule:
    """Return the mistake of other arguments."""
    return lambda op, inputs: oracle_outputs(op, inputs, **changed)
