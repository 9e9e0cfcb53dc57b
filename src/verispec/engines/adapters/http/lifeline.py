"""Blame the end of a server on the case in which it ended, and on no other.

A request that fails by its connection or by a status from 500 on may have failed alone, or with the whole server. The
difference is shown by requests that have been answered before: if they fail now too, the server is down.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from verispec import exits
from verispec.engines.adapters.http.client import ServerFault
from verispec.engines.protocol.running_case import running_case
from verispec.errors import VerispecError

RESTART = 10.0
"""Seconds that a server gets to come back, as one under a supervisor does."""
BETWEEN = 0.5
"""Seconds between two questions to a server that does not answer."""
OF_THE_SERVER = ("V-HTTP-LOST", "V-HTTP-TIMEOUT", "V-HTTP-STATUS")
"""Faults that a server which is down shows at any request."""

T = TypeVar("T")


class Lifeline:
    """Guards the requests to one server; safe in many threads.

    Args:
        where: address of the server, for messages.
        answers: function that returns True if the server answers what it has answered before.
    """

    def __init__(self, where: str, answers: Callable[[], bool]) -> None:
        self._where = where
        self._answers = answers
        self._lock = threading.Lock()
        self._looked = 0.0
        """`time.monotonic()` of the last question to the server."""
        self._silence = 0.0
        """Seconds for which it did not answer then; inf if it did not come back."""
        self._case, self._error = "", Exception()
        """The case in which it went down, and the error of that case."""

    def guarded(self, send: Callable[[], T]) -> T:
        """Return the answer of a request.

        Raises:
            VerispecError: V-HTTP-DOWN, the server has been down since an earlier case; V-HTTP-CONNECT, it accepts no
                connection.
            ServerFault: the request's own, or V-HTTP-DOWN if the server does not come back after it.
        """
        self._require_up()
        try:
            return send()
        except ServerFault as fault:
            if fault.diagnostic.code not in OF_THE_SERVER:
                raise
            raise self.verdict(fault) from fault
        except VerispecError as error:
            if error.diagnostic.code == "V-HTTP-CONNECT" and self._look(RESTART) == math.inf:
                self._case, self._error = running_case(), error
            raise

    def verdict(self, fault: ServerFault) -> ServerFault:
        """Return `fault` of a request; V-HTTP-DOWN instead if the server does not come back after it."""
        silence, found = self._look(RESTART), fault.diagnostic
        if silence == math.inf:
            down = ServerFault("V-HTTP-DOWN", "the server stopped answering in this case", self._where, str(fault))
            self._case, self._error = running_case(), down
            return down
        if not silence:
            return fault
        message = f"{found.message}; the server was down after it for {silence:.0f} s"
        return ServerFault(found.code, message, found.where, found.cause)

    def _require_up(self) -> None:
        if self._silence != math.inf or self._look(0.0) != math.inf:
            return
        if self._case == running_case():
            raise self._error
        raise VerispecError(
            "V-HTTP-DOWN",
            f"the server is down since {self._case}",
            where=self._where,
            hint="start the server again, then the run; verispec repro runs that case alone",
            exit_code=exits.CANNOT_TELL,
        )

    def _look(self, patience: float) -> float:
        """Return the seconds until the server answers, 0 if it does at once, inf if it does not within `patience`.

        Threads that ask before another one's last question share its answer. An earlier question may have been answered
        by a server that has ended since.
        """
        asked = time.monotonic()
        with self._lock:
            if self._looked >= asked:
                return self._silence
            is_up = is_up_at_once = self._question()
            while not is_up and time.monotonic() - asked < patience:
                time.sleep(BETWEEN)
                is_up = self._question()
            passed = time.monotonic() - asked
            self._silence = 0.0 if is_up_at_once else passed if is_up else math.inf
            return self._silence

    def _question(self) -> bool:
        """Return True if the server answers what it is asked now."""
        self._looked = time.monotonic()
        return self._answers()
