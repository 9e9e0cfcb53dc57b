"""Shrink a call that ends its process or hangs it: each trial runs in a worker process of its own."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from verispec.judge import OpCall, OpUnderTest
from verispec.reference import contracts, oracle
from verispec.run.plan import Plan
from verispec.run.record import Record
from verispec.run.supervisor import Supervisor
from verispec.saved_calls import file
from verispec.saved_calls.file import SavedCase, arguments_of
from verispec.saved_calls.record_folder import SUFFIX
from verispec.saved_calls.shrink import minimal

LONGEST = 120.0
"""Seconds that shrinking may take. A trial costs one start of the engine, whose modules are imported once."""
TRIAL = 10.0
"""Seconds until a trial counts as hung: a call smaller than one that hangs takes milliseconds, or hangs too."""
TOLD_EVERY = 5.0
"""Seconds between two lines of progress."""


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The smallest call that was found.

    Attributes:
        case: case with its call.
        message: end of the process that ran it.
        trials: processes that ran.
        repeats: False if the saved call alone does not fail as the case did; it is then unchanged.
    """

    case: SavedCase
    message: str
    trials: int
    repeats: bool = True


def shrunk(plan: Plan, saved: SavedCase, tell: Callable[[str], None]) -> Shrunk:
    """Return a smaller call that ends its worker process in the same way as the call of `saved`.

    Args:
        plan: plan of the one case, on the engine that crashed or hung.
        saved: the case, with its last launch and how that ended.
        tell: function that receives a line now and then.

    Raises:
        VerispecError: the engine cannot be started any more.
    """
    contract = contracts.load(saved.op)
    with tempfile.TemporaryDirectory(prefix="verispec-shrink-") as folder:
        replay = Path(folder) / f"trial{SUFFIX}"
        again = replace(
            plan, replay=replay, record=None, shrink=None, save=None, detail=False, processes=1, trial=True,
            timeout=min(plan.timeout, TRIAL),
        )  # fmt: skip
        with Supervisor(again).trials() as judge:
            trials = _Trials(saved, replay, judge, tell)
            if not trials.fails(saved.call):
                return Shrunk(saved, saved.failure["message"], trials.count, repeats=False)
            trials.message = trials.ending
            deadline = time.monotonic() + LONGEST
            minimal(contract, saved.call, lambda call: _answered(contract, call) and trials.fails(call), deadline)
            while len(trials.failing) > 1 and not trials.fails(trials.failing[-1]):
                trials.failing.pop()  # it failed once, and not again: the one before it is more reliable
        smallest = replace(saved, **arguments_of(trials.failing[-1], saved.op))
        return Shrunk(smallest, trials.message, trials.count)


class _Trials:
    """Calls that were tried, one process each."""

    def __init__(
        self, saved: SavedCase, replay: Path, judge: Callable[[], dict[str, Any]], tell: Callable[[str], None]
    ) -> None:
        self._saved, self._replay, self._judge, self._tell = saved, replay, judge, tell
        self._told = time.monotonic()
        self.failing: list[OpCall] = []
        self.count = 0
        self.ending = self.message = ""

    def fails(self, call: OpCall) -> bool:
        """Return whether the process ends or hangs as with the first call."""
        case = replace(self._saved, **arguments_of(call, self._saved.op))
        file.write(self._replay, case)
        record = Record.from_json(self._judge())
        self.count += 1
        self.ending = record.message
        alike = record.outcome == self._saved.failure["kind"] and self.message in ("", record.message)
        if alike and not any(call is known for known in self.failing):
            self.failing.append(call)
        if time.monotonic() - self._told > TOLD_EVERY:
            self._told = time.monotonic()
            elements = sum(array.size for array in case.tensors.values())
            self._tell(f"shrinking: {self.count} trials, {len(self.failing) - 1} smaller, now {elements:,} elements")
        return alike


def _answered(contract: contracts.Contract, call: OpCall) -> bool:
    """Return whether the oracle can answer `call`; one that it rejects would accuse the engine of nothing."""
    op = OpUnderTest(contract, lambda **_: None)
    try:
        inputs, _ = op.call(call.values, dtypes=call.dtypes, layouts=call.layouts, shapes=call.shapes)
        copies = {name: value.copy() if hasattr(value, "copy") else value for name, value in inputs.items()}
        oracle.load(contract.name)(**copies)
    except (ValueError, KeyError, IndexError, OverflowError):
        return False
    return True
