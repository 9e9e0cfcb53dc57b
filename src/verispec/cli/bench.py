"""``verispec bench``: time an engine from raw logits to tokens, beside another one."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from verispec.bench.inputs import DTYPES, LIMITS, OPS, ROWS, BenchShape
from verispec.errors import VerispecError

app = typer.Typer(add_completion=False)


@app.command()
def bench(
    engine: Annotated[str, typer.Option("--engine", help="The engine to time; see 'verispec engines'.")] = "reference",
    vs: Annotated[str, typer.Option("--vs", help="The engine beside it; empty for none.")] = "",
    op: Annotated[list[str] | None, typer.Option(help=f"Of {', '.join(OPS)}; all by default.")] = None,
    batch: Annotated[list[int] | None, typer.Option(help="Requests; 1, 8 and 64 by default.")] = None,
    drafts: Annotated[list[int] | None, typer.Option(help="Draft tokens per request; 3 by default.")] = None,
    vocab: Annotated[list[int] | None, typer.Option(help="Vocabulary; 128256 by default.")] = None,
    dtype: Annotated[list[str] | None, typer.Option(help=f"Of {', '.join(DTYPES)}; float32 by default.")] = None,
    rows: Annotated[list[str] | None, typer.Option(help=f"Of {', '.join(ROWS)}; peaked by default.")] = None,
    acceptance: Annotated[list[float] | None, typer.Option(help="From 0 to 1; 0.7 by default.")] = None,
    limits: Annotated[list[str] | None, typer.Option(help=f"Of {', '.join(LIMITS)}; none by default.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; the engine's own choice by default.")] = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads on the CPU.")] = 1,
    samples: Annotated[int, typer.Option(min=3, help="Measurements per shape and engine.")] = 15,
    svg: Annotated[Path | None, typer.Option(help="Where to write the roofline picture.")] = None,
    out: Annotated[Path | None, typer.Option(help="Where to write the results as JSON.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The results as JSON.")] = False,
) -> None:
    """Time an engine from raw logits to tokens, beside another one.

    Both run in turn in one process on the same inputs, after their results were checked. 'fused' is one op for the
    whole step, 'ops' are verification and resampling one by one; '--vs ENGINE:ops' asks for the latter. The floor
    is the time of reading the needed rows once, measured in the same run.

    Examples:

        verispec bench --vs reference:ops --batch 8 --svg roofline.svg

        verispec bench --engine reference:triton --device cuda --op verify_greedy
    """
    shapes = [
        BenchShape(*parts)
        for parts in itertools.product(
            _known("--op", op, OPS, OPS),
            batch or [1, 8, 64],
            drafts or [3],
            vocab or [128256],
            _known("--dtype", dtype, DTYPES, ("float32",)),
            _known("--rows", rows, ROWS, ("peaked",)),
            acceptance or [0.7],
            _known("--limits", limits, LIMITS, ("none",)),
        )
    ]
    from verispec.bench.contest import Contest
    from verispec.bench.rendering import lines, roofline

    contest = Contest(engine, vs, device, threads, samples)
    results = []
    for shape in shapes:
        results.append(contest.run(shape))
        if not as_json:
            print("\n".join(lines(results[-1:], engine, vs)[len(results) > 1 :]), flush=True)
    report: dict[str, Any] = contest.header() | {"results": [result.to_json() for result in results]}
    if as_json:
        print(json.dumps(report, indent=2))
    if out:
        out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if svg:
        svg.write_text(roofline(results, engine, vs), encoding="utf-8")


def _known(option: str, given: list[str] | None, allowed: tuple[str, ...], default: tuple[str, ...]) -> tuple[str, ...]:
    for value in given or ():
        if value not in allowed:
            raise VerispecError(
                "V-BENCH-OPTION", f"unknown value {value!r}", where=option, hint=f"known are {', '.join(allowed)}"
            )
    return tuple(given) if given else default
