"""An engine whose module leaves a trace of each import, and which crashes in every case.

With `THREAD` in the environment the import starts a thread, so that the process cannot be forked afterwards.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from lifecycle_engines import FOLDER, CrashesInEveryCase

THREAD = "VERISPEC_TEST_THREAD"

with (Path(os.environ[FOLDER]) / "imports").open("a") as trace:
    trace.write(f"{os.getpid()}\n")

if os.environ.get(THREAD):
    threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()


class Engine(CrashesInEveryCase):
    def __init__(self) -> None:
        with (Path(os.environ[FOLDER]) / "starts").open("a") as trace:
            trace.write(f"{os.getpid()}\n")
