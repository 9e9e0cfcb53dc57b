"""Steps of a request from an engine's totals of its drafts, read after every token."""

from __future__ import annotations

from collections.abc import Sequence

from verispec.engines.protocol.generation import SpeculationMetrics, SpeculativeStep


class CountedSteps:
    """The steps of one request so far, in `steps`.

    Args:
        drafted: drafts that the engine counted before the request.
        accepted: accepted ones among them.
    """

    def __init__(self, drafted: int = 0, accepted: int = 0) -> None:
        self.steps: list[SpeculativeStep] = []
        self._drafted, self._accepted = drafted, accepted
        self._room = 0  # Tokens that belong to the last step and have not come yet.

    def count(self, drafted: int, accepted: int) -> None:
        """Count one token; the arguments are the engine's totals when it came."""
        if drafted > self._drafted:
            self.steps.append(SpeculativeStep(drafted - self._drafted, accepted - self._accepted))
            self._room += self.steps[-1].accepted + 1
        elif not self._room:
            self.steps.append(SpeculativeStep(0, 0))
            self._room = 1
        self._room -= 1
        self._drafted, self._accepted = drafted, accepted


def summed(steps: Sequence[SpeculativeStep], depth: int) -> SpeculationMetrics:
    """Return the sums over `steps` of at most `depth` drafts each."""
    drafted = [step for step in steps if step.drafted]
    return SpeculationMetrics(
        len(drafted),
        sum(step.drafted for step in drafted),
        sum(step.accepted for step in drafted),
        tuple(sum(step.accepted > place for step in drafted) for place in range(depth)),
    )
