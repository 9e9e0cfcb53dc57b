"""Findings for people: each with its place, both sides of the disagreement, and how to fix it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from verispec.report.signatures import WEIGHT, SignatureReport
from verispec.static.finding import Finding, Level
from verispec.terminal import printable

COLOURS = {Level.ERROR: "bold red", Level.WARNING: "yellow", Level.NOTE: "cyan"}


def print_text(outcome: SignatureReport, console: Console, *, level: Level = Level.WARNING) -> None:
    """Print the findings from `level` upwards, and a summary of all."""
    wide = not console.is_terminal  # one line a fact, never broken, for logs and for grep
    for finding in outcome.placed():
        if WEIGHT[finding.level] >= WEIGHT[level]:
            print_finding(finding, console, wide)
    for diagnostic in outcome.diagnostics:
        console.print(Text(printable(str(diagnostic)), "dim"), soft_wrap=wide)
    if outcome.findings:
        console.print(_by_rule(outcome.findings))
    for line in _summary(outcome, level):
        console.print(line, soft_wrap=wide)


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


def print_finding(finding: Finding, console: Console, wide: bool) -> None:
    """Print a finding: level, rule, place, message, and the lines of both sides."""
    head = Text.assemble(
        (finding.level.value, COLOURS[finding.level]),
        (f" {finding.rule} ", "bold"),
        printable(str(finding.location)),
        (printable(f"  {finding.symbol}"), "bold"),
    )
    console.print(head, soft_wrap=wide)
    _print_indented(_said(finding.message, wide), console, wide)
    sides = Table.grid(padding=(0, 2))
    for side in finding.sides:
        label, where, text = printable(side.label), printable(str(side.location)), _said(side.text, wide)
        if wide:
            console.print(Text(f"    {label}: {where}: {text}"), soft_wrap=True)
        sides.add_row(Text(label, "dim"), Text(where, "dim"), Text(text))
    if finding.sides and not wide:
        console.print(Padding(sides, (0, 0, 0, 4), expand=False))
    if finding.fix:
        console.print(Text.assemble(("  fix: ", "green"), _said(finding.fix, wide)), soft_wrap=wide)
    console.print(Text(f"  verispec explain {finding.rule}   fingerprint {finding.fingerprint}", "dim"), soft_wrap=wide)
    console.print()


def _print_indented(text: str, console: Console, wide: bool) -> None:
    if wide:
        console.print(Text(f"  {text}"), soft_wrap=True)
    else:
        console.print(Padding(Text(text), (0, 0, 0, 2), expand=False))


def _said(text: str, one_line: bool) -> str:
    """Return `text` for a terminal; on one line where a CI service could read a line as a command."""
    return printable(" ".join(text.split("\n")) if one_line else text)


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


def _summary(outcome: SignatureReport, level: Level) -> Iterator[Text]:
    count = outcome.count()
    said = ", ".join(f"{count[level]} {level.value}{'' if count[level] == 1 else 's'}" for level in Level)
    against = f" against {outcome.core}" if outcome.core else ""
    files = f" in {int(outcome.stats['files'])} files" if "files" in outcome.stats else ""
    yield Text(printable(f"{outcome.tree}{against}: {said}{files}"))
    if outcome.since:
        yield Text(printable(f"only what is new since {outcome.since}; {outcome.known} known findings left out"))
    hidden = sum(number for name, number in count.items() if WEIGHT[name] < WEIGHT[level])
    if hidden:
        yield Text(f"{hidden} findings below the level {level.value} are not shown; --level note shows them", "dim")
