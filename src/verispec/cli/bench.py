"""``verispec bench``: time an engine from raw logits to tokens, beside another one."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from verispec.bench.inputs import DTYPES, LIMITS, OPS, ROWS, BenchShape
from verispec.errors import VerispecError
from verispec.whole_file import PatientWriter, require_place

app = typer.Typer(add_completion=False)


@app.command()
def bench(
    engine: Annotated[str, typer.Option("--engine", help="The engine to time; see 'verispec engines'.")] = "reference",
    vs: Annotated[str, typer.Option("--vs", help="The engine beside it; empty for none.")] = "",
    op: Annotated[
        list[str] | None, typer.Option(help=f"Op to time: {', '.join(OPS)} (default: all); repeatable.")
    ] = None,
    batch: Annotated[
        list[int] | None, typer.Option(help="Number of requests (default: 1, 8 and 64); repeatable.")
    ] = None,
    drafts: Annotated[list[int] | None, typer.Option(help="Draft tokens per request (default: 3); repeatable.")] = None,
    vocab: Annotated[list[int] | None, typer.Option(help="Vocabulary size (default: 128256); repeatable.")] = None,
    dtype: Annotated[
        list[str] | None, typer.Option(help=f"Dtype of the logits: {', '.join(DTYPES)} (default: float32); repeatable.")
    ] = None,
    rows: Annotated[
        list[str] | None,
        typer.Option(help=f"Shape of the distributions: {', '.join(ROWS)} (default: peaked); repeatable."),
    ] = None,
    acceptance: Annotated[
        list[float] | None, typer.Option(help="Acceptance rate of the drafts, 0 to 1 (default: 0.7); repeatable.")
    ] = None,
    limits: Annotated[
        list[str] | None, typer.Option(help=f"Limits of the requests: {', '.join(LIMITS)} (default: none); repeatable.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda (default: the engine's own choice).")] = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads on the CPU.")] = 1,
    samples: Annotated[int, typer.Option(min=3, help="Measurements per shape and engine.")] = 15,
    svg: Annotated[Path | None, typer.Option(help="Write the roofline picture to this file.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the results as JSON to this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Time an engine from raw logits to tokens, beside another one.

    Both run in turn in one process on the same inputs, after their results were checked. 'fused' is one op for the
    whole step, 'ops' are verification and resampling one by one; '--vs ENGINE:ops' asks for the latter. The floor
    is the time of reading the needed rows once, measured in the same run.

    Examples:

        verispec bench --vs reference:ops --batch 8 --svg roofline.svg

        verispec bench --engine reference:triton --device cuda --op verify_greedy
    """
    require_place(svg, "--svg")
    require_place(out, "--out")
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
    from verispec.bench.rendering import heading, lines, roofline

    contest = Contest(engine, vs, device, threads, samples)
    results = []
    for shape in shapes:
        results.append(contest.run(shape))
        if not as_json:
            head = heading(engine, vs) if len(results) == 1 else []
            print("\n".join([*head, *lines(results[-1])]), flush=True)
    report: dict[str, Any] = contest.header() | {"results": [result.to_json() for result in results]}
    if as_json:
        print(json.dumps(report, indent=2), flush=True)
    writer = PatientWriter()
    if out:
        writer.write(out, json.dumps(report, indent=1) + "\n", what="the results")
    if svg:
        writer.write(svg, roofline(results, engine, vs), what="the picture")
    writer.close()


def _known(option: str, given: list[str] | None, allowed: tuple[str, ...], default: tuple[str, ...]) -> tuple[str, ...]:
    for value in given or ():
        if value not in allowed:
            raise VerispecError(
                "V-BENCH-OPTION", f"unknown value {value!r}", where=option, hint=f"known are {', '.join(allowed)}"
            )
    return tuple(given) if given else default
