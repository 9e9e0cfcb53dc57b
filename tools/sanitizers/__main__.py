"""Run a command with a sanitizer's runtime loaded first: ``python tools/sanitizers KIND COMMAND...``.

KIND is address, undefined or thread. Python is not instrumented, so the runtime must be there before it; the kernels
are, by ``-DVERISPEC_SANITIZE=KIND``. The first finding ends the command with a report and an exit code that is not 0.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

RUNTIMES = {"address": "libasan.so", "undefined": "libubsan.so", "thread": "libtsan.so"}
OPTIONS = {
    # Python keeps memory until it ends; the suites look for leaks themselves (ANY-10).
    "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1:abort_on_error=1",
    "TSAN_OPTIONS": "halt_on_error=1:abort_on_error=1:report_signal_unsafe=0"
    f":suppressions={Path(__file__).resolve().with_name('thread.supp')}",
}
ADDR_NO_RANDOMIZE = 0x0040000
"""personality(2): older runtimes do not know the memory maps of newer kernels."""


def main(kind: str, command: list[str]) -> None:
    """Replace this process by `command`."""
    compiler = os.environ.get("CXX", "c++")
    asked = [compiler, f"-print-file-name={RUNTIMES[kind]}"]
    runtime = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    if not Path(runtime).is_absolute():
        sys.exit(f"{compiler} has no {RUNTIMES[kind]}: install it (Debian: libgcc-12-dev) or name another CXX")
    ctypes.CDLL(None).personality(ADDR_NO_RANDOMIZE)
    preload = " ".join(filter(None, [str(Path(runtime).resolve()), os.environ.get("LD_PRELOAD")]))
    os.execvpe(command[0], command, {**os.environ, **OPTIONS, "LD_PRELOAD": preload})


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in RUNTIMES:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2:])
