"""Calibrate the statistical tests on simulated samplers: false alarms of a correct one, and what each fault takes.

    python tools/calibrate_statistics.py null --runs 10000
    python tools/calibrate_statistics.py faults --seeds 200

Prints one JSON object per line. `null` gives the shares of runs whose evidence ever reached 10, 100 and 1,000;
Ville's inequality bounds them by 10, 1 and 0.1 %. `faults` gives requests until a fault is found and how it is named.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/statistics"))

from faulty_samplers import FAULTS, SimulatedSampler, run

from verispec.cases.row_sets import random_row_sets
from verispec.judge.statistics.given_drafts import GivenDrafts, RowSets


def null(runs: int, requests: int, first_seed: int) -> None:
    """Print how often evidence against a correct sampler reached each limit."""
    source = random_row_sets(np.random.default_rng(0), 16, 5, 256)
    exact = RowSets(source.p, source.q, source.slack)
    sampler = SimulatedSampler(source)
    reached = dict.fromkeys((2, 10, 100, 1000, 10000, 1000000), 0)
    largest, impossible = -math.inf, 0
    for seed in range(first_seed, first_seed + runs):
        rng = np.random.default_rng(seed)
        model = GivenDrafts(exact, 1.0, seed)
        top = -math.inf
        for _ in range(requests // 64):
            sets, lengths = source.choose(rng, 64)
            model.add(sampler(rng, sets, lengths, source.draw(rng, sets)))
            top = max(top, model.evidence.log_e)
        impossible += bool(model.evidence.impossible)
        largest = max(largest, top)
        for limit in reached:
            reached[limit] += top >= math.log(limit)
    shares = {str(limit): count / runs for limit, count in reached.items()}
    result = {"runs": runs, "requests": requests, "reached": shares, "impossible": impossible}
    print(json.dumps({**result, "largest": math.exp(largest)}), flush=True)


def faults(seeds: int, only: list[str]) -> None:
    """Print for every fault how often it was found and named, and after how many requests."""
    for fault in only or list(FAULTS):
        found, named, counts = 0, Counter[str](), []
        for seed in range(seeds):
            evidence, cap = run(fault, seed)
            found += evidence.failed
            counts.append(evidence.count if evidence.failed else 10 * cap)
            named[evidence.best_bets()[0][0].key] += 1
        result = {"fault": fault, "found": found, "seeds": seeds, "named": named.most_common(3)}
        times = {"mean": float(np.mean(counts)), "q99": float(np.quantile(counts, 0.99))}
        print(json.dumps({**result, **times}), flush=True)


def main() -> None:
    """Run the calibration that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["null", "faults"])
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--requests", type=int, default=512)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--fault", action="append", default=[])
    options = parser.parse_args()
    if options.what == "null":
        null(options.runs, options.requests, options.first_seed)
    else:
        faults(options.seeds, options.fault)


if __name__ == "__main__":
    main()
