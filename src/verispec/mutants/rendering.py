"""A score as text and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from verispec.mutants.model import MutantResult, Verdict
from verispec.mutants.score import TARGET, TARGET_OWN, FateTally, Score

COLUMNS = (
    ("own clause", Verdict.KILLED),
    ("other clause", Verdict.KILLED_ELSEWHERE),
    ("crash only", Verdict.CRASHED),
    ("survived", Verdict.SURVIVED),
    ("not reached", Verdict.NOT_REACHED),
    ("equivalent", Verdict.EQUIVALENT),
    ("invalid", Verdict.INVALID),
)
SHOWN = 40
"""Survivors that the text shows; JSON and Markdown have all."""


def text(score: Score) -> str:
    """Return the tables by layer and file, and the first survivors, as plain text."""
    return "\n".join(_text(score))


def _text(score: Score) -> Iterator[str]:
    for title, tallies in (("layer", score.layers), ("file", score.files)):
        width = max([len(title), *map(len, tallies)])
        yield f"{title:<{width}}  {'tested':>6} {'killed':>7} {'own':>7}  " + " ".join(f"{c:>12}" for c, _ in COLUMNS)
        for name, tally in tallies.items():
            counts = " ".join(f"{tally.counts[verdict]:>12}" for _, verdict in COLUMNS)
            yield f"{name:<{width}}  {tally.judged:>6} {tally.share:>7.1%} {tally.own_share:>7.1%}  {counts}"
        yield ""
    survivors = score.survivors
    if survivors:
        yield f"{len(survivors)} mutants without a failing case:"
        yield from (f"  {_line(result)}" for result in survivors[:SHOWN])
        if len(survivors) > SHOWN:
            yield f"  ... and {len(survivors) - SHOWN} more (--json, --markdown)"
    wrong = [r for r in score.results if r.reason.startswith("WRONG ENTRY")]
    yield from (f"listed as equivalent but killed by {r.case}: {r.mutant.id}" for r in wrong)


def _line(result: MutantResult) -> str:
    extra = f" ({result.reason})" if result.reason and result.verdict is not Verdict.CRASHED else ""
    return f"{result.verdict}: {result.mutant.id}{extra}"


def markdown(score: Score, command: str) -> str:
    """Return a page with the command, the tables and every survivor."""
    return "\n".join(_markdown(score, command)) + "\n"


def _markdown(score: Score, command: str) -> Iterator[str]:
    yield "# Catching power: machine-made mutants"
    yield ""
    yield f"Command: `{command}`. Rendered by `verispec mutants --render FILE --markdown`."
    yield ""
    yield f"Targets: {TARGET:.0%} of the mutants that are not equivalent fail a case, {TARGET_OWN:.0%} a case of"
    yield "a clause of the mutated op. A crash or a timeout alone is not a kill. A mutant that no case reaches counts"
    yield "as a survivor."
    for title, tallies in (
        ("Layers", score.layers),
        ("Files", score.files),
        ("Operators", score.operators),
        ("Triggers", score.triggers),
    ):
        yield ""
        yield f"## {title}"
        yield ""
        yield from _table(title[:-1].lower(), tallies)
    yield ""
    yield "## Mutants without a failing case"
    yield ""
    for result in score.survivors:
        mutant = result.mutant
        yield (
            f"- {result.verdict}: `{mutant.layer}/{mutant.file}:{mutant.line}` {mutant.operator}: "
            f"`{mutant.before}` -> `{mutant.after}`" + ("" if mutant.trigger == "always" else f", {mutant.trigger}")
        )


def _table(title: str, tallies: Mapping[str, FateTally]) -> Iterator[str]:
    yield f"| {title} | tested | killed | by own clause | " + " | ".join(name for name, _ in COLUMNS) + " |"
    yield "| --- |" + " ---: |" * (3 + len(COLUMNS))
    for name, tally in tallies.items():
        counts = " | ".join(str(tally.counts[verdict]) for _, verdict in COLUMNS)
        yield f"| {name} | {tally.judged} | {tally.share:.1%} | {tally.own_share:.1%} | {counts} |"
