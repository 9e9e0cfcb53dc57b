"""What a judged case ends with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

import numpy as np

from verispec.engines import Unsupported, UnsupportedCall
from verispec.errors import describe_exception

Answer = TypeVar("Answer")


class Outcome(StrEnum):
    """The result of a case. XFAIL and XPASS come from expectations, CRASH and TIMEOUT from the supervisor."""

    PASS = "pass"
    FAIL = "fail"
    XFAIL = "xfail"
    XPASS = "xpass"
    UNSUPPORTED = "unsupported"
    CRASH = "crash"
    TIMEOUT = "timeout"
    ERROR = "error"
    INCONCLUSIVE = "inconclusive"


class Kind(StrEnum):
    """The class of a failure; with the op it is what failures are folded by."""

    UNWRITTEN = "unwritten"
    OVERWRITTEN = "overwritten"
    VALUE = "value"
    IMPRECISE = "imprecise"
    OUTSIDE = "outside"
    INPUT_CHANGED = "input changed"
    STALE = "depends on stale memory"
    RAISED = "raised"
    ACCEPTED = "bad input accepted"
    RELATION = "relation broken"
    LAW = "law"
    BINDING = "binding"


EXPLANATION: dict[Kind, str] = {
    Kind.UNWRITTEN: "elements that the op must write still hold what was there before the call",
    Kind.OVERWRITTEN: "elements that the op must leave alone were changed",
    Kind.VALUE: "elements differ from the oracle",
    Kind.IMPRECISE: "the answer is right up to an inexactness that is larger than the contract's bound",
    Kind.OUTSIDE: "memory outside the tensors was written",
    Kind.INPUT_CHANGED: "an input tensor was changed",
    Kind.STALE: "the result depends on memory that is not an input: what an output held, or what surrounds a tensor",
    Kind.RAISED: "the call raised",
    Kind.ACCEPTED: "input that the contract forbids was accepted without an error",
    Kind.RELATION: "two calls that must agree do not",
    Kind.LAW: "observed frequencies contradict the exact law",
    Kind.BINDING: "a caller cannot bind to the implementation",
}


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a case failed: the class, one sentence, and the first few places where it shows."""

    kind: Kind
    message: str
    output: str = ""
    wrong: int = 0
    total: int = 0
    examples: tuple[dict[str, Any], ...] = ()
    details: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class Mismatch(AssertionError):
    """Raised by the judge; carries the `Failure` into the run file."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(f"{failure.kind}: {failure.message}")


class DeviceLost(Exception):
    """A kernel has broken the process's CUDA context: whatever runs after it in this process fails too."""


def lost_device(error: BaseException) -> DeviceLost | None:
    """`DeviceLost` when an exception of torch or Triton says so; CUDA reports it at whatever call comes next."""
    if isinstance(error, DeviceLost):
        return error
    text = describe_exception(error)
    return DeviceLost(text.partition("\n")[0]) if "CUDA error" in text or "Error [CUDA]" in text else None


def call_engine(call: Callable[[], Answer]) -> Answer:
    """What `call` of an engine returns; what it raises is a verdict on it.

    Raises `Mismatch`, `DeviceLost` where nothing can go on, and `UnsupportedCall` as the engine does.
    """
    try:
        return call()
    except UnsupportedCall:
        raise
    except Exception as error:
        text = describe_exception(error)
        if type(error).__name__ == "CompilationError":  # Triton's: the kernel's source stands before its last line
            text = f"CompilationError: {text.rpartition(chr(10))[2]}"
        verdict = lost_device(error) or Mismatch(Failure(Kind.RAISED, text))
        raise verdict from error


class NotOffered(UnsupportedCall):
    """The engine does not have this part at all, so nothing is missing when no case of it is tested."""


Part = TypeVar("Part")


def offered(part: Part | Unsupported) -> Part:
    """Return a part of an engine. Raises `NotOffered` when the engine answered `Unsupported` instead."""
    if isinstance(part, Unsupported):
        raise NotOffered(part.reason)
    return part


class Inconclusive(Exception):
    """Raised when the evidence is not enough for a verdict; never a pass."""


def assert_same(relation: str, expected: Any, got: Any) -> None:
    """Two calls that must agree do: raises `Mismatch` with the first place where they do not.

    `relation` says what the calls have to do with each other, e.g. "a permuted batch".
    """
    wrong = np.flatnonzero(np.asarray(expected).ravel() != np.asarray(got).ravel())
    if len(wrong):
        index = [int(i) for i in np.unravel_index(wrong[0], np.shape(expected))]
        one, two = np.asarray(expected)[tuple(index)].item(), np.asarray(got)[tuple(index)].item()
        message = f"{relation}: element {index} is {two}, the plain call gives {one}"
        raise Mismatch(Failure(Kind.RELATION, message, wrong=len(wrong), total=int(np.size(expected))))
