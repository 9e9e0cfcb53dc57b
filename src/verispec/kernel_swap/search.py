"""Search for the culprit kernels with as few runs as possible."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from verispec import exits

FORMAT = "verispec/transplant/1"


@dataclass(frozen=True, slots=True)
class SwapTrial:
    """One run with the kernels of `ops` substituted.

    Args:
        ops: substituted ops.
        good: True if the run was good; None if that is unknown.
        called: those of `ops` whose kernel was called.
        exit_code: exit code of the run.
        loaded: True if the run imported the engine at all.
        reason: reason why that is unknown, or why a kernel could not be substituted.
    """

    ops: tuple[str, ...]
    good: bool | None
    called: tuple[str, ...]
    exit_code: int
    loaded: bool = True
    reason: str = ""


class SwapAnswer(StrEnum):
    """Result of a search."""

    CULPRIT = "culprit"
    """The fault goes away with each of the named kernels alone."""
    TOGETHER = "culprits together"
    """The fault goes away with all of the named kernels, and with no fewer."""
    STAYS = "stays"
    """The fault is there with every candidate exchanged."""
    NO_FAULT = "no fault"
    """The unmodified run is good."""
    CANNOT_TELL = "cannot tell"
    """A run could not tell, or called none of the kernels."""


@dataclass(frozen=True, slots=True)
class SwapResult:
    """The answer, the kernels that it names, why, and every run that was made."""

    answer: SwapAnswer
    ops: tuple[str, ...] = ()
    reason: str = ""
    trials: list[SwapTrial] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """GOOD if the search found out whether kernels cause the fault, else CANNOT_TELL."""
        found = (SwapAnswer.CULPRIT, SwapAnswer.TOGETHER, SwapAnswer.STAYS)
        return exits.GOOD if self.answer in found else exits.CANNOT_TELL

    def to_json(self) -> dict[str, Any]:
        """Return the result as a JSON object of the format `FORMAT`."""
        return {
            "format": FORMAT,
            "answer": self.answer.value,
            "ops": list(self.ops),
            "reason": self.reason,
            "trials": [
                {"ops": list(t.ops), "good": t.good, "called": list(t.called), "exit_code": t.exit_code}
                for t in self.trials
            ],
        }


def search(candidates: Sequence[str], run: Callable[[tuple[str, ...]], SwapTrial]) -> SwapResult:
    """Run with no kernel exchanged, with all, then with each alone that was called, then leave out one by one."""
    trials: list[SwapTrial] = []

    def trial(ops: Sequence[str]) -> SwapTrial:
        trials.append(run(tuple(ops)))
        return trials[-1]

    plain = trial(())
    if plain.good is None:
        return SwapResult(
            SwapAnswer.CANNOT_TELL, reason=_because("the unmodified run cannot be tested", plain), trials=trials
        )
    if not plain.loaded:
        reason = "the run never imported the engine, so its exit code says nothing about the engine's kernels"
        return SwapResult(SwapAnswer.CANNOT_TELL, reason=reason, trials=trials)
    if plain.good:
        return SwapResult(SwapAnswer.NO_FAULT, reason="the run is good with the engine's own kernels", trials=trials)
    everything = trial(candidates)
    called = [op for op in candidates if op in everything.called]
    if not called:
        reason = _because("the run called none of these kernels, or the engine has no place to put others", everything)
        return SwapResult(SwapAnswer.CANNOT_TELL, reason=reason, trials=trials)
    if everything.good is None:
        return SwapResult(
            SwapAnswer.CANNOT_TELL,
            reason=_because("with reference kernels the run cannot be tested", everything),
            trials=trials,
        )
    if not everything.good:
        return SwapResult(
            SwapAnswer.STAYS, tuple(called), "with reference kernels in their place, the fault is there", trials
        )
    if len(called) == 1:
        return SwapResult(SwapAnswer.CULPRIT, tuple(called), "it is the only kernel that the run called", trials)
    alone = [op for op in called if trial((op,)).good]
    if alone:
        return SwapResult(
            SwapAnswer.CULPRIT, tuple(alone), "the fault goes away with the reference kernel alone", trials
        )
    needed = list(called)
    for op in called:
        fewer = [other for other in needed if other != op]
        if fewer and trial(fewer).good:
            needed = fewer
    return SwapResult(
        SwapAnswer.TOGETHER, tuple(needed), "the fault goes away with all of them, and with no fewer", trials
    )


def _because(text: str, trial: SwapTrial) -> str:
    return f"{text}: {trial.reason}" if trial.reason else text
