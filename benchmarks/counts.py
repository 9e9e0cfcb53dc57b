"""Count what the reference's kernels do, to guard their speed without a clock.

    python benchmarks/counts.py              # compare with benchmarks/counts.json
    python benchmarks/counts.py --record     # write it anew, after a change that is wanted

Per op: the instructions of its C++ kernel under callgrind, on one thread; and the launches of its Triton kernel with
the bytes that its loads and stores ask for, in Triton's interpreter. Exit codes: 0 as recorded, 1 a count moved by more
than `LIMITS` and `SLACK`, 2 callgrind is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "triton"))

from op_cases import Size, make, ops, variants

HERE = Path(__file__).parent
BASELINE = HERE / "counts.json"
SIZE = Size(9001, requests=5, drafts=3)
"""Several tiles of a row, and a tail."""
WIDE = Size(40001, requests=5, drafts=3)
"""Rows of which the C++ kernels sample a part before they search for the limit of top-p."""
ALTERED = ("plain", "one_hot", "limits")
LIMITS = {"instructions": 0.02, "launches": 0.0, "read": 0.02, "written": 0.02}
"""Largest change of a count, as a share. Recorded with g++ 12.2; another compiler may need a record of its own. Steps
of a search follow the rounding of exponentials, which another processor may round otherwise."""

SLACK = {"instructions": 600}
"""Change that is never reported: other layouts of the heap, arrays on whole pages or not, moved counts by up to 448."""

Counts = dict[str, dict[str, int]]
"""Counts by kind, of each call by name."""


def calls() -> Iterator[tuple[str, str, Any]]:
    """Yield name, op and case of every call to count."""
    for op in ops():
        for variant in ALTERED:
            if variant in variants(op):
                yield f"{op}:{variant}", op, make(op, variant, SIZE)


def wide_calls() -> Iterator[tuple[str, str, Any]]:
    """Yield name, op and case of every call from raw logits to tokens on wide rows."""
    for op in ("verify_greedy", "verify_one_hot", "verify_draft_logits"):
        for variant in ALTERED:
            if variant in variants(op):
                yield f"{op}:{variant}:wide", op, make(op, variant, WIDE)


def instructions() -> Counts:
    """Return the instructions of each C++ kernel.

    Raises:
        SystemExit: callgrind is missing.
    """
    if shutil.which("valgrind") is None:
        print("counts: valgrind is not installed; Debian: apt-get install valgrind", file=sys.stderr)
        raise SystemExit(2)
    with tempfile.TemporaryDirectory() as folder:
        inputs, dump = Path(folder, "calls.pickle"), Path(folder, "counts")
        given = [(name, op, case.arguments, case.inplace) for name, op, case in [*calls(), *wide_calls()]]
        inputs.write_bytes(pickle.dumps(given))
        # The child calls getppid around each kernel, and callgrind then writes what it has counted since.
        valgrind = ["valgrind", "--tool=callgrind", "--dump-before=getppid", f"--callgrind-out-file={dump}"]
        names = _child(
            ["_counted_instructions.py", str(inputs)], {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}, valgrind
        )
        totals = [_total(Path(f"{dump}.{n + 1}")) for n in range(2 * len(names) + 2)]
    empty = totals[1]
    return {name: {"instructions": totals[2 * n + 3] - empty} for n, name in enumerate(names)}


def launches() -> Counts:
    """Return the launches of each Triton kernel, and the bytes that it reads and writes."""
    counts: Counts = _child(["_counted_launches.py"], {"TRITON_INTERPRET": "1"})
    return counts


KINDS: dict[str, Callable[[], Counts]] = {"instructions": instructions, "launches": launches}


def _child(command: list[str], environment: dict[str, str], before: list[str] | None = None) -> Any:
    script, *arguments = command
    done = subprocess.run(
        [*(before or []), sys.executable, HERE / script, *arguments],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if before else None,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{script} ended with {done.returncode}: {(done.stderr or b'')[-2000:].decode()}")
    return json.loads(done.stdout)


def _total(dump: Path) -> int:
    (line,) = (line for line in dump.read_text().splitlines() if line.startswith("totals:"))
    return int(line.split()[1])


def compared(recorded: Counts, found: Counts) -> list[str]:
    """Return a line for each count that moved by more than its limit, and for each call on one side alone."""
    lines = [f"{name}: not recorded" for name in found.keys() - recorded.keys()]
    lines += [f"{name}: recorded, but there is no such call" for name in recorded.keys() - found.keys()]
    for name in sorted(recorded.keys() & found.keys()):
        for kind, before in recorded[name].items():
            now = found[name][kind]
            if abs(now - before) > max(LIMITS[kind] * before, SLACK.get(kind, 0)):
                change = f" ({now / before - 1:+.1%})" if before else ""
                lines.append(f"{name}: {now:,} {kind}, recorded {before:,}{change}")
    return sorted(lines)


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="write benchmarks/counts.json")
    parser.add_argument("--only", choices=KINDS, help="count one kind (default: both)")
    given = parser.parse_args()
    recorded: dict[str, Counts] = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    chosen = [given.only] if given.only else list(KINDS)
    found = {kind: KINDS[kind]() for kind in chosen}
    if given.record:
        BASELINE.write_text(json.dumps(recorded | found, indent=1, sort_keys=True) + "\n")
        print(f"recorded {sum(map(len, found.values()))} calls in {BASELINE.name}")
        return
    moved = [line for kind in chosen for line in compared(recorded.get(kind, {}), found[kind])]
    print("\n".join(moved) or f"{sum(map(len, found.values()))} calls as recorded")
    if moved:
        print("If this is wanted: python benchmarks/counts.py --record, and commit benchmarks/counts.json.")
    raise SystemExit(1 if moved else 0)


if __name__ == "__main__":
    main()
