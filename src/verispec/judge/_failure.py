"""Results of a case and the exceptions that carry them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

import numpy as np

from verispec.engines import Unsupported, UnsupportedCall
from verispec.errors import RemoteFault, describe_exception
from verispec.judge._traceback import engine_traceback
from verispec.reference import oracle

Answer = TypeVar("Answer")


class Outcome(StrEnum):
    """Result of a case. XFAIL and XPASS come from the known failures, CRASH and TIMEOUT from the supervisor."""

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
    """Class of a failure. Reports group failures by op and kind."""

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
    RESOURCE = "resources kept"


EXPLANATION: dict[Kind, str] = {
    Kind.UNWRITTEN: "elements that the op must write still hold their value from before the call",
    Kind.OVERWRITTEN: "elements that the op must not write were changed",
    Kind.VALUE: "the values are wrong",
    Kind.IMPRECISE: "the output is close, but its error exceeds the contract's bound",
    Kind.OUTSIDE: "memory outside the tensors was written",
    Kind.INPUT_CHANGED: "an input tensor was changed",
    Kind.STALE: "the result depends on memory that is not an input: an output's old content, or the guard bands",
    Kind.RAISED: "the call raised",
    Kind.ACCEPTED: "an input that the contract forbids was accepted without an error",
    Kind.RELATION: "two calls that must give the same result do not",
    Kind.LAW: "observed frequencies contradict the exact distribution",
    Kind.BINDING: "a caller cannot bind to the implementation",
    Kind.RESOURCE: "memory or threads grow with the number of calls",
}


NOT_WRITTEN = "not written"
"""An element that still holds the harness's mark, where a failure shows what the engine wrote."""
UNTOUCHED = "untouched"
"""An element that must keep the mark, where a failure shows what is expected."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Reason why a case failed.

    Attributes:
        kind: class of the failure.
        message: one sentence with the first wrong element or the engine's exception.
        output: name of the wrong output, or empty.
        wrong: number of wrong elements.
        total: number of compared elements.
        examples: first wrong elements, each with index, expected and got.
        details: further values for the report.
    """

    kind: Kind
    message: str
    output: str = ""
    wrong: int = 0
    total: int = 0
    examples: tuple[dict[str, Any], ...] = ()
    details: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the failure as a JSON-serialisable dictionary."""
        return asdict(self)


def described(example: Mapping[str, Any]) -> str:
    """Return the index of a wrong element and its fault; the harness's mark is never shown as a value."""
    index, expected, got = example["index"], example["expected"], example["got"]
    if expected == UNTOUCHED:
        return f"{index} must stay {UNTOUCHED}, was written: {got}"
    return f"{index} {'was' if got == NOT_WRITTEN else 'is'} {got}, expected {expected}"


class Mismatch(AssertionError):
    """Raised when the op under test is wrong; carries the `Failure` to the results file."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(f"{failure.kind}: {failure.message}")


class DeviceLost(Exception):
    """Raised when a kernel broke the process's CUDA context, so that every later call in this process fails too."""


def lost_device(error: BaseException) -> DeviceLost | None:
    """Return `DeviceLost` if `error` is a CUDA error of torch or Triton, else None.

    CUDA reports a broken context at the next call, whatever that is. A server may quote such an error of its own.
    """
    if isinstance(error, DeviceLost):
        return error
    if isinstance(error, RemoteFault) or isinstance(error.__cause__, RemoteFault):  # a Mismatch that it caused
        return None
    text = describe_exception(error)
    return DeviceLost(text.partition("\n")[0]) if "CUDA error" in text or "Error [CUDA]" in text else None


_NO_MEMORY = re.compile(r"DefaultCPUAllocator: can't allocate memory: you tried to allocate (\d+) bytes")
MOST_MEMORY = 2**40
"""Bytes above which a request is the engine's fault: no machine that runs a case has as many."""


def short_of_memory(text: str) -> Inconclusive | None:
    """Return the result of an allocation that torch refused, None for another error or an absurd size."""
    found = _NO_MEMORY.search(text)
    if not found or int(found[1]) > MOST_MEMORY:
        return None
    size = f"{int(found[1]) / 2**30:.1f} GiB"
    return Inconclusive(f"the engine asked for {size}, and memory ran out; run this case where more is free")


def failed_call(error: Exception) -> DeviceLost | Inconclusive | Mismatch:
    """Return the result of an engine's call that raised `error`, with the engine's part of the traceback.

    Args:
        error: any exception that is neither a rejection nor an error of the harness.

    Returns:
        `DeviceLost` if the process's CUDA context is broken, `Inconclusive` if the machine has too little memory, else
        a failure of the case.
    """
    text = describe_exception(error)
    if undecided := short_of_memory(text):
        return undecided
    if type(error).__name__ == "CompilationError":  # drop the kernel's source, which Triton prints before the error
        text = f"CompilationError: {text.rpartition(chr(10))[2]}"
    message = " ".join(text.split())[:300]  # the traceback has all of it
    return lost_device(error) or Mismatch(Failure(Kind.RAISED, message, details={"traceback": engine_traceback(error)}))


def call_engine(call: Callable[[], Answer]) -> Answer:
    """Call an engine and turn any exception into a failure.

    Args:
        call: function without arguments that calls the engine.

    Returns:
        The value that `call` returns.

    Raises:
        Mismatch: `call` raised an ordinary exception.
        Inconclusive: the machine has too little memory for the call.
        DeviceLost: the process's CUDA context is broken.
        UnsupportedCall: the engine does not support this call.
    """
    running = oracle.off_limits.set(True)
    try:
        return call()
    except UnsupportedCall:
        raise
    except Exception as error:
        raise failed_call(error) from error
    finally:
        oracle.off_limits.reset(running)


class NotOffered(UnsupportedCall):
    """The engine does not have this part at all, so nothing is missing when no case of it is tested."""


Part = TypeVar("Part")


def offered(part: Part | Unsupported) -> Part:
    """Return `part`, which an engine offers.

    Raises:
        NotOffered: the engine answered `Unsupported` instead.
    """
    if isinstance(part, Unsupported):
        raise NotOffered(part.reason)
    return part


class Inconclusive(Exception):
    """Raised when the evidence is too weak for a result; never counts as a pass."""


def assert_same(relation: str, expected: Any, got: Any) -> None:
    """Raise `Mismatch` unless two calls that must agree gave the same values.

    Args:
        relation: metamorphic relation between the calls, such as "a permuted batch".
        expected: values of the plain call.
        got: values of the transformed call.

    Raises:
        Mismatch: the shapes or some elements differ; the message shows the first one.
    """
    if np.shape(expected) != np.shape(got):
        message = f"{relation}: the shape is {list(np.shape(got))}, the plain call gives {list(np.shape(expected))}"
        raise Mismatch(Failure(Kind.RELATION, message, total=int(np.size(expected))))
    wrong = np.flatnonzero(np.asarray(expected).ravel() != np.asarray(got).ravel())
    if len(wrong):
        index = [int(i) for i in np.unravel_index(wrong[0], np.shape(expected))]
        one, two = np.asarray(expected)[tuple(index)].item(), np.asarray(got)[tuple(index)].item()
        message = f"{relation}: element {index} is {two}, the plain call gives {one}"
        raise Mismatch(Failure(Kind.RELATION, message, wrong=len(wrong), total=int(np.size(expected))))
