"""Time the fused ops on the CPU beside reading the same logits once.

    OMP_WAIT_POLICY=passive python benchmarks/fused_cpu.py --out benchmarks/fused_cpu.md

Processor time of all threads, of calls in turn with the plain read: lower quartiles, which other programs change less
than medians. Results are compared with the oracle first.
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Iterator
from pathlib import Path

from verispec.bench.contest import Contest
from verispec.bench.inputs import LIMITS, OPS, BenchShape
from verispec.bench.rendering import BenchResult

DRAFTS, VOCABULARY = 5, 128256
THREADS = (1, 2)
TARGETS = {"verify_greedy": 1.15, "verify_one_hot": 1.3, "verify_draft_logits": 1.3}
"""Largest processor time wanted without limits, as a multiple of the read's."""
LIMITED = 1.6


def shapes(batch: int) -> Iterator[BenchShape]:
    """Yield the shapes of one batch size."""
    for op in OPS:
        for limits in LIMITS if op != "verify_greedy" else ("none",):
            yield BenchShape(op, batch, DRAFTS, VOCABULARY, limits=limits)
        if op != "verify_greedy":
            for limits in ("none", "top_p"):
                yield BenchShape(op, batch, DRAFTS, VOCABULARY, rows="flat", limits=limits)


def row(results: list[BenchResult]) -> str:
    """Return the line of one shape, with its results by number of threads."""
    shape = results[0].shape
    target = TARGETS[shape.op] if shape.limits == "none" else LIMITED
    cells = [shape.op, shape.rows, shape.limits, f"{target:g}"]
    for result in results:
        cells += [f"{result.engine.low:,.0f}", f"{result.engine.low / result.read.low:.2f}"]
    return f"| {' | '.join(cells)} |"


def page(samples: int) -> str:
    """Measure everything and return the page."""
    contests = [Contest("reference", "", "cpu", threads, samples) for threads in THREADS]
    lines = [
        "# From raw logits to tokens: the fused ops on a CPU",
        "",
        f"- machine: {platform.machine()}, {contests[0].header()['engines'][0]}, torch {contests[0].header()['torch']}",
        f"- {DRAFTS} drafts per request, {VOCABULARY} tokens, float32, acceptance 0.7, top-k 50, top-p 0.9",
        "",
        "`OMP_WAIT_POLICY=passive python benchmarks/fused_cpu.py`",
        "",
        "Processor time of all threads per call in microseconds, and as a multiple of reading the needed logits once",
        "in the same run: those up to the first rejected draft of each request. Lower quartiles.",
    ]
    for batch in (16, 1):
        columns = ["op", "rows", "limits", "target"]
        columns += [text for n in THREADS for text in (f"us, threads: {n}", "reads")]
        lines += ["", f"## Requests: {batch}", "", f"| {' | '.join(columns)} |"]
        lines += [f"|{' --- |' * 3}{' ---: |' * (len(columns) - 3)}"]
        for shape in shapes(batch):
            lines.append(row([contest.run(shape) for contest in contests]))
            print(lines[-1], flush=True)
    return "\n".join([*lines, ""])


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=15, help="measurements per shape")
    parser.add_argument("--out", type=Path, help="file for the page (default: print it)")
    given = parser.parse_args()
    text = page(given.samples)
    if given.out:
        given.out.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
