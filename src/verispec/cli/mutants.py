"""``verispec mutants``: measure the share of faults that the suites catch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from verispec import exits

app = typer.Typer(add_completion=False)


@app.command()
def mutants(
    of: Annotated[
        str,
        typer.Option(
            "--of",
            help="cpp, cpp_models, triton, gpu, oracle, samplers, runners, proposers, models, static, config or all.",
        ),
    ] = "cpp",
    sample: Annotated[int, typer.Option(min=0, help="Mutants to draw from each layer; 0 takes all.")] = 300,
    seed: Annotated[int, typer.Option(help="Seed of the sample.")] = 1,
    op: Annotated[str, typer.Option(help="Only mutants of this op or source file, named without its ending.")] = "",
    processes: Annotated[int, typer.Option("-n", min=0, help="Processes; 0 takes all cores.")] = 0,
    limit: Annotated[float, typer.Option(min=0.1, help="Processor seconds of cases per mutant and round.")] = 90.0,
    per_clause: Annotated[int, typer.Option(min=0, help="Cases of each clause to use; 0 uses all.")] = 0,
    slowest: Annotated[
        float, typer.Option(min=0.1, help="Omit cases that use more processor seconds than this without a mutant.")
    ] = 30.0,
    triggers: Annotated[bool, typer.Option(help="Include faults that act only under a condition.")] = True,
    listed: Annotated[
        bool, typer.Option(help="Test mutants that the reviewed list calls equivalent, to find wrong entries.")
    ] = False,
    device: Annotated[str, typer.Option(help="cuda runs the layers triton and gpu on a GPU.")] = "",
    survivors: Annotated[
        Path | None, typer.Option(help="Test those mutants of a results file that failed no case, instead of a sample.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Results file (JSON lines); an existing one is continued.")] = None,
    render: Annotated[list[Path] | None, typer.Option(help="Render results files; run nothing.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the mutants and run nothing.")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print the score as Markdown.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Generate mutants of the reference engine and score the suites that test it.

    Each mutant runs in a process of its own against the cases that reach it, until one fails. A few quick cases of each
    clause come first. What they leave meets all cases within the limits. A crash alone does not count as a kill.
    Mutants of the reviewed list count as equivalent and do not run.

    Exit codes: 0 the score reaches its targets, 1 it does not, 2 usage.

    Examples:

        verispec mutants --of oracle --sample 20

        verispec mutants --of cpp --op rejection_random_sample --list

        verispec mutants --of cpp --survivors sample.jsonl --out again.jsonl
    """
    from verispec.mutants import campaign, rendering, results, score
    from verispec.mutants.layers import chosen
    from verispec.run.session import command_line

    paths = list(render or ())
    if not paths:
        for layer in chosen(of, device):
            plan = campaign.CampaignPlan(
                layer, sample, seed, op, processes, limit, triggers, device or layer.devices[0],
                per_clause=per_clause, slowest=slowest,
                chosen=results.survivors_of(survivors, layer.name) if survivors else frozenset(),
            )  # fmt: skip
            prepared = campaign.prepare(plan)
            if list_:
                print("\n".join(mutant.id for mutant in prepared.mutants))
                continue
            path = results.path_of(plan, out, many=of == "all")
            results.begin(path, plan, prepared.total, len(prepared.mutants))
            if not listed:
                results.skip_listed(path, prepared.mutants)
            left_out: set[str] = set()
            for round_ in campaign.rounds(plan):
                left_out |= set(campaign.judge(prepared, path, round_, results.done(path, round_.number)))
            if left_out:
                typer.echo(
                    f"{len(left_out)} cases fail without a mutant and are left out, one is {min(left_out)}", err=True
                )
            paths.append(path)
        if list_:
            raise typer.Exit(exits.GOOD)
    found = score.Score(score.with_list(results.read(paths), score.reviewed()))
    if waiting := results.unfinished(paths):
        hint = "the same command with the same --out goes on"
        typer.echo(f"{waiting:,} drawn mutants have not met all cases yet: {hint}", err=True)
    if as_json:
        print(json.dumps(found.to_json(), indent=2))
    elif as_markdown:
        command = results.command_of(paths[0]) if render else " ".join(command_line())
        print(rendering.markdown(found, command), end="")
    else:
        print(rendering.text(found))
        print(f"written to {', '.join(map(str, paths))}")
    raise typer.Exit(exits.GOOD if found.is_good else exits.BAD)
