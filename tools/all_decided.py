"""Require that a run of the reference decided every case: an inconclusive one tests nothing.

    verispec run --engine reference --out run.jsonl
    python tools/all_decided.py run.jsonl

Cases that the engine does not support are not asked for. Names the others with their reasons, and ends with 1.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from verispec.judge import Outcome
from verispec.run import runfile
from verispec.run.record import Record


def undecided(records: Iterable[Record]) -> list[Record]:
    """Return the records of cases with too little evidence."""
    return [record for record in records if record.outcome == Outcome.INCONCLUSIVE]


def main() -> None:
    """Check the results file that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="results file of verispec run")
    path = parser.parse_args().run
    run = runfile.read(path)
    if not run.footer:
        sys.exit(f"{path}: the run has not ended")
    found = undecided(run.records)
    for record in found:
        print(f"{record.id}: {record.reason}")
    print(f"{len(found)} of {len(run.records)} cases undecided, seed {run.header['seed']}")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
