"""The program of the fork server: pytest, without garbage collection until the suites are collected.

Collections while torch and the suites are imported find nothing and take a sixth of the time.
"""

from __future__ import annotations

import argparse
import gc
from pathlib import Path

from verispec.engines.registry import import_modules
from verispec.run.fork_server import ForkServer


def main() -> int:
    """Import the engine's modules, then run pytest with the arguments of the command line; return its exit code.

    The engine comes first, so that a wrong name is an error before the suites are imported.
    """
    gc.disable()
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--engine", required=True)
    parser.add_argument("--scratch", type=Path, required=True, help="folder shared with the supervisor")
    parser.add_argument("--processes", type=int, default=1, help="workers that share the queue")
    parser.add_argument("--start-timeout", type=float, default=60.0, help="seconds for importing the engine's modules")
    ours, for_pytest = parser.parse_known_args()
    server = ForkServer(ours.scratch, ours.processes)
    if "--collect-only" not in for_pytest:
        server.fork_template(lambda: import_modules(ours.engine), ours.start_timeout)
    import pytest

    return int(pytest.main([f"--engine={ours.engine}", *for_pytest], plugins=[server]))


if __name__ == "__main__":
    raise SystemExit(main())
