"""Render the outputs of runs of this tool as one Markdown page.

python tools/seed_faults/render.py RUN... > docs/verdicts/static-seeded-faults.md
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

HEAD = """# Catching power of the static checker: mutants

Rendered by `python tools/seed_faults/render.py RUN...` from what `python tools/seed_faults TREE --seed N --count N` and
the same with `--types` printed.

A machine makes each fault in one place of a real release: it drops, renames, adds or exchanges what a launch, a call or
a definition has. A fault counts as found if a new error names its kernel, op, function or member. A harmless edit must
bring no new error. Target: 90 % of the faults, no false report. Kinds are drawn evenly, as far as a tree offers them.
"""

_KIND = re.compile(r"^ *(\d+) of +(\d+)  (.+)$")
_TOTAL = re.compile(r"^(\S+) seed (\d+): (\d+) of (\d+) faults found \(([\d.]+%)\); (\d+) false reports after (\d+)")


def section(text: str, kind: str) -> str:
    """Return the section for one run.

    Args:
        text: output of the run.
        kind: kind of the edit.
    """
    kinds = [match for line in text.splitlines() if (match := _KIND.match(line))]
    totals = [match for line in text.splitlines() if (match := _TOTAL.match(line))]
    if len(totals) != 1:
        raise SystemExit("this run has not ended")
    tree, seed, found, made, share, false, harmless = totals[0].groups()
    missed = [line for line in text.splitlines() if line.startswith("missed: ")]
    lines = [f"## {tree}, {kind}, seed {seed}", ""]
    lines += [f"{found} of {made} faults found ({share}); {false} false reports after {harmless} harmless edits.", ""]
    lines += ["| kind of fault | made | found |", "| --- | ---: | ---: |"]
    lines += [f"| {match[3]} | {match[2]} | {match[1]} |" for match in kinds if match[2] != "0"]
    if missed:
        lines += ["", "Missed:", ""]
        lines += [f"- {_place(line)}" for line in missed]
    return "\n".join(lines)


def _place(line: str) -> str:
    """Return a missed fault as its kind, place and symbol."""
    fields = dict(re.findall(r"(path|symbol|kind)='([^']*)'", line))
    number = re.search(r"line=(\d+)", line)
    return f"{fields['kind']}: `{fields['symbol']}` in {fields['path']}, line {number[1] if number else '?'}"


def main() -> None:
    """Print the page for the files named on the command line."""
    sections = []
    for name in sys.argv[1:]:
        text = Path(name).read_text()
        sections.append(section(text, "plain Python" if "import: name vanished" in text else "kernels and ops"))
    print("\n\n".join([HEAD.rstrip(), *sections]))


if __name__ == "__main__":
    main()
