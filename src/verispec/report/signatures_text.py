"""Findings for people: each with its place, both sides of the disagreement, and how to fix it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from verispec.report.signatures import WEIGHT, SignatureReport, compared
from verispec.static.finding import Finding, Level
from verispec.terminal import COLUMNS, printable, wrapped

COLOURS = {Level.ERROR: "bold red", Level.WARNING: "yellow", Level.NOTE: "cyan"}


def print_text(outcome: SignatureReport, console: Console, *, level: Level = Level.WARNING) -> None:
    """Print the findings from `level` upwards, and a summary of all."""
    for finding in outcome.placed():
        if WEIGHT[finding.level] >= WEIGHT[level]:
            print_finding(finding, console)
    for diagnostic in outcome.diagnostics:
        for line in str(diagnostic).splitlines():
            print_folded(line, console, style="dim", first=len(line) - len(line.lstrip()))
    if outcome.findings:
        console.print(_by_rule(outcome.findings), width=width_of(console))
    for line, style in _summary(outcome, level):
        print_folded(line, console, style=style)


def width_of(console: Console) -> int:
    """Return the columns of a terminal, and `COLUMNS` for a file or a pipe."""
    return console.width if console.is_terminal else COLUMNS


def print_patches(outcome: SignatureReport, console: Console) -> None:
    """Print the patch points of a plugin, those that need work first."""
    order = {"gone": 0, "broken": 1, "differs": 2, "unknown": 3, "ok": 4}
    row = "{:8} {:10} {}"
    lines = [row.format("state", "kind", "host name, and where it is installed")]
    for patch in sorted(outcome.patches, key=lambda patch: (order[patch.state], patch)):
        lines.append(row.format(patch.state, patch.kind, printable(patch.target)))
        lines.append(row.format("", "", printable(f"{outcome.prefix}{patch.path}:{patch.line}")))
    console.print("\n".join(lines), soft_wrap=True, highlight=False, markup=False)  # names stay whole, to be copied
    console.print()


def print_finding(finding: Finding, console: Console) -> None:
    """Print a finding: level, rule, place, message, and the lines of both sides."""
    level, rule = finding.level.value, finding.rule
    head, *more = wrapped(f"{level} {rule} {finding.location}  {finding.symbol}", width_of(console), rest=6)
    styled = Text(head)
    styled.stylize(COLOURS[finding.level], 0, len(level))
    styled.stylize("bold", len(level), len(f"{level} {rule}"))
    for line in (styled, *map(Text, more)):
        console.print(line, soft_wrap=True)
    print_folded(finding.message, console, first=2, rest=2)
    for side in finding.sides:
        print_folded(f"{side.label}: {side.location}: {side.text}", console, first=4, rest=8)
    if finding.fix:
        print_folded(f"fix: {finding.fix}", console, style="green", first=2, rest=4)
    print_folded(f"verispec explain {rule}   fingerprint {finding.fingerprint}", console, style="dim", first=2)
    console.print()


def print_folded(text: str, console: Console, *, style: str = "", first: int = 0, rest: int = 4) -> None:
    """Print a text in lines that fit the console; a path or a name that is longer stays whole."""
    for line in wrapped(text, width_of(console), first=first, rest=rest):
        console.print(Text(line, style), soft_wrap=True)


def _by_rule(findings: tuple[Finding, ...]) -> Table:
    from verispec.static import rules

    count = Counter((finding.rule, finding.level) for finding in findings)
    table = Table(box=None, pad_edge=False)
    table.add_column("rule")
    table.add_column("message")
    for level in Level:
        table.add_column(level.value, justify="right")
    known = set(rules.names())
    for rule in sorted({finding.rule for finding in findings}):
        title = rules.load(rule).title if rule in known else ""
        table.add_row(rule, title, *(str(count[rule, level] or "-") for level in Level))
    return table


def _summary(outcome: SignatureReport, level: Level) -> Iterator[tuple[str, str]]:
    """Yield lines, each with its style."""
    count = outcome.count()
    said = ", ".join(f"{count[level]} {level.value}{'' if count[level] == 1 else 's'}" for level in Level)
    against = f" against {outcome.core}" if outcome.core else ""
    files = f" in {int(outcome.stats['files'])} files" if "files" in outcome.stats else ""
    yield f"{outcome.tree}{against}: {said}{files}", ""
    if "kernels" in outcome.stats:
        yield compared(outcome), "dim"
    left_out = f"{outcome.known} known finding{'' if outcome.known == 1 else 's'} left out"
    if outcome.since:
        yield f"only what is new since {outcome.since}; {left_out}", ""
    elif outcome.known:
        yield left_out, ""
    hidden = sum(number for name, number in count.items() if WEIGHT[name] < WEIGHT[level])
    if hidden:
        below = f"{hidden} finding{'s are' if hidden > 1 else ' is'} below the level {level.value} and not shown"
        yield f"{below}; --level note shows {'them' if hidden > 1 else 'it'}", "dim"
