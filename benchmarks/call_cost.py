"""Time a small call of the fused ops on the CPU: what the check costs, in Python and for a layout that is known.

    python benchmarks/call_cost.py

One request, three drafts, eight tokens, so that the kernels have next to nothing to do. Processor time in microseconds,
the least of several runs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "triton"))

import numpy as np
import torch
from op_cases import Size, make

from verispec.reference import cpu
from verispec.reference.contracts import load
from verispec.reference.contracts._check import bind, check

CALLS, RUNS = 20000, 7
SIZE = Size(8, requests=1)
KINDS = {
    "verify_greedy": ("plain",),
    "verify_one_hot": ("plain", "limits"),
    "verify_draft_logits": ("plain", "limits"),
}


def microseconds(function: Callable[[], Any]) -> float:
    """Return the processor time of one call."""
    times = []
    for _ in range(RUNS):
        began = time.process_time()
        for _ in range(CALLS):
            function()
        times.append((time.process_time() - began) * 1e6 / CALLS)
    return min(times)


def row(op: str, variant: str) -> str:
    """Return the line of one op."""
    values = make(op, variant, SIZE).arguments
    given = {n: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for n, v in values.items()}
    contract, function, kernel = load(op), cpu.op(op), cpu.kernel(op)
    seen = check(contract, bind(contract, (), given), "cpu")
    passed = [seen[p.name] for p in contract.params]
    function(**given)  # from now on its layout is known
    times = (
        microseconds(lambda: function(**given)),
        microseconds(lambda: kernel(*passed)),
        microseconds(lambda: check(contract, bind(contract, (), given), "cpu")),
    )
    return f"| {op} | {variant} | {' | '.join(f'{t:.2f}' for t in times)} |"


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    print("| op | case | call | kernel alone, from addresses in Python | check in Python |")
    print("| --- | --- | ---: | ---: | ---: |")
    for op, variants in KINDS.items():
        for variant in variants:
            print(row(op, variant), flush=True)


if __name__ == "__main__":
    main()
