"""Calibrate the statistical tests on simulated engines: false alarms, and requests until each fault is found.

    python tools/calibrate_statistics.py null --runs 10000 --first-seed 1000000 --processes 64 --out calibration.jsonl
    python tools/calibrate_statistics.py faults --runs 200 --first-seed 1000000 --processes 64 --out calibration.jsonl
    python tools/calibrate_statistics.py summary --out calibration.jsonl
    python tools/calibrate_statistics.py tables

`null` and `faults` append one JSON object per run to the file; runs that it already holds are not repeated, so an
interrupted calibration continues. Twenty seeds share their rows. `summary` counts
the correct runs whose evidence ever reached 10, 100 and 1,000: at most 10, 1 and 0.1 % by Ville's inequality. Per fault
it prints how often it was found and how it was named.

`tables` prints how often the G-test fails right tables, as multiples of the level of one p-value: at most 1 each.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/statistics"))

from simulations import FAULTS, TESTS, correct, planted, run
from tables import beside_a_large_one, enumerated, equal, sampled

Job = tuple[str, str, int]
"""Kind of run ("null" or "faults"), the test or the fault, and the seed."""

LIMITS = (2, 10, 100, 1000, 10_000, 1_000_000)
NULL_UNITS = 600
"""Requests, tokens or decisions of a correct run."""
SAME_ROWS = 20
"""Seeds in a row that share their rows, whose constants are computed once."""


def outcome(job: Job) -> dict[str, Any]:
    """Return the record of one run."""
    kind, name, seed = job
    record: dict[str, Any] = {"kind": kind, "name": name, "seed": seed}
    if kind == "null":
        simulation = correct(name, seed, rows=seed // SAME_ROWS)
        evidence, top = simulation.evidence, -math.inf
        while evidence.count < NULL_UNITS:
            simulation.step()
            top = max(top, evidence.log_e)
        impossible = bool(evidence.impossible)
        return record | {"log_e": None if impossible else top, "impossible": impossible, "count": evidence.count}
    simulation = planted(name, seed, rows=seed // SAME_ROWS)
    evidence = run(simulation)
    (best, first), *others = evidence.best_bets()
    result = {"found": bool(evidence.failed), "failed_at": simulation.trial.record["failed_at"]}
    named = {"named": best.key, "lead": first - others[0][1], "next": others[0][0].key}
    return record | result | named | {"count": evidence.count, "cap": simulation.cap}


def jobs_of(options: argparse.Namespace) -> list[Job]:
    """Return the jobs of the command line, by seed first, so that an interrupted file has all names."""
    known = TESTS if options.what == "null" else FAULTS
    names = options.only or list(known)
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"calibrate_statistics.py: {unknown[0]!r} is none of: {', '.join(known)}")
    seeds = range(options.first_seed, options.first_seed + options.runs)
    return [(options.what, name, seed) for seed in seeds for name in names]


def read(path: Path) -> list[dict[str, Any]]:
    """Return the records of a file; a last line that an interruption cut is left out."""
    records = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return records


def collect(jobs: list[Job], path: Path, processes: int) -> None:
    """Run the jobs that the file lacks and append their records."""
    done = {(record["kind"], record["name"], record["seed"]) for record in read(path)}
    left = [job for job in jobs if job not in done]
    print(f"{len(left)} runs, {len(jobs) - len(left)} already in {path}", file=sys.stderr)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not path.read_bytes().endswith(b"\n"):
        with path.open("a") as file:
            file.write("\n")  # The next record must not join a cut line.
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")  # Of the spawned processes: one thread each.
    with path.open("a") as file, multiprocessing.get_context("spawn").Pool(processes) as pool:
        for record in pool.imap_unordered(outcome, left, chunksize=4):
            file.write(json.dumps(record) + "\n")
            file.flush()


def summarise(records: Iterable[dict[str, Any]]) -> None:
    """Print one JSON object per test and per fault."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for record in records:
        groups.setdefault((record["kind"], record["name"]), []).append(record)
    for (kind, name), group in sorted(groups.items(), reverse=True):
        line: dict[str, Any] = {"kind": kind, "name": name, "runs": len(group)}
        if kind == "null":
            tops = np.array([math.inf if record["impossible"] else record["log_e"] for record in group])
            line["reached"] = {str(limit): int((tops >= math.log(limit)).sum()) for limit in LIMITS}
            line |= {"largest": float(np.exp(tops.max())), "impossible": sum(r["impossible"] for r in group)}
        else:
            counts = [r["failed_at"] for r in group if r["found"]]
            named = Counter(record["named"] for record in group)
            line |= {"found": len(counts), "named_rightly": sum(named[key] for key in FAULTS[name].names)}
            line |= {"named": named.most_common(3)}
            if counts:
                line |= {
                    "mean": float(np.mean(counts)),
                    "q99": float(np.quantile(counts, 0.99)),
                    "cap": group[0]["cap"],
                }
        print(json.dumps(line), flush=True)


def print_tables() -> None:
    """Print one JSON object per table: the expected counts, and the probability that a right table fails."""
    for expected in ([14.0, 14.0], [10.0, 30.0], [53 / 3] * 3, [10.0, 10.0, 30.0], [10.0, 20.0, 30.0]):
        print(json.dumps({"expected": [round(e, 1) for e in expected], "tested": round(enumerated(expected), 2)}))
    for cells, each in ((8, 10), (16, 10), (64, 10), (300, 10), (64, 30)):
        found = {name: round(ratio, 2) for name, ratio in sampled(equal(cells, each)).items()}
        print(json.dumps({"cells": cells, "expected": each, **found}), flush=True)
    for cells in (8, 32, 128):
        found = {name: round(ratio, 2) for name, ratio in sampled(beside_a_large_one(cells)).items()}
        print(json.dumps({"cells": cells, "expected": "10, and one large", **found}), flush=True)


def main() -> None:
    """Run the calibration that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["null", "faults", "summary", "tables"])
    parser.add_argument("--runs", type=int, default=200, help="seeds per test or fault")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--only", action="append", default=[], help="a test or a fault by name; repeatable")
    parser.add_argument("--out", type=Path, help="JSON-lines file of the runs; not for tables")
    options = parser.parse_args()
    if options.what == "tables":
        print_tables()
    elif options.out is None:
        parser.error("--out names the file of the runs")
    elif options.what == "summary":
        summarise(read(options.out))
    else:
        collect(jobs_of(options), options.out, options.processes)


if __name__ == "__main__":
    main()
