"""Result files: a header, then one line per mutant; a file that exists is continued."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from verispec.cache_folder import cache_dir
from verispec.errors import VerispecError
from verispec.mutants import score
from verispec.mutants.campaign import CampaignPlan
from verispec.mutants.model import Mutant, MutantResult, Verdict
from verispec.run.session import command_line


def path_of(plan: CampaignPlan, out: Path | None, *, many: bool) -> Path:
    """Return the results file: `out`, with the layer in its name where there are many, or the user's cache."""
    layer = plan.layer.name
    if out is None:
        drawn = f"{plan.sample}-{plan.seed}" + "-survivors" * bool(plan.chosen)
        return cache_dir() / "mutants" / f"{layer}-{plan.op or 'all'}-{drawn}.jsonl"
    out = out.resolve()  # self-tests run in another folder
    return out.with_name(f"{out.stem}-{layer}{out.suffix}") if many else out


def begin(path: Path, plan: CampaignPlan, total: int, drawn: int) -> None:
    """Write the header of a new file, or check that of one that is continued.

    Raises VerispecError V-MUT-RESUME for a file of another sample.
    """
    header = {"layer": plan.layer.name, "sample": plan.sample, "seed": plan.seed, "op": plan.op, "total": total}
    header["per_clause"] = plan.per_clause
    header["chosen"] = len(plan.chosen)
    if path.exists() and path.stat().st_size:
        lines = _lines(path)
        before = {"chosen": 0, **{k: v for k, v in lines[0].items() if k in header}}
        if before != header:
            raise VerispecError(
                "V-MUT-RESUME", "the file holds results of another sample, or of other sources", where=str(path),
                cause=f"it has {before}, this would be {header}", hint="name another file in --out, or delete this one",
            )  # fmt: skip
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    first = {"type": "header", **header, "drawn": drawn, "command": " ".join(command_line())}
    path.write_text(json.dumps(first) + "\n", encoding="utf-8")


def survivors_of(path: Path, layer: str) -> frozenset[str]:
    """Return the ids of a layer's mutants in a results file that failed no case and are not listed as equivalent.

    Raises:
        VerispecError: V-MUT-CHOSEN, there is none.
    """
    fates = (Verdict.SURVIVED, Verdict.NOT_REACHED, Verdict.CRASHED)
    found = score.with_list(read([path]), score.reviewed())
    ids = frozenset(r.mutant.id for r in found if r.verdict in fates and r.mutant.layer == layer)
    if not ids:
        raise VerispecError(
            "V-MUT-CHOSEN", f"no mutant of the layer {layer} failed no case there", where=str(path),
            hint="name the layer of the file in --of",
        )  # fmt: skip
    return ids


def skip_listed(path: Path, mutants: Iterable[Mutant]) -> None:
    """Append a result for each mutant that the reviewed list calls equivalent and that has none, so that none runs."""
    already, entries = done(path), score.reviewed()
    with path.open("a", encoding="utf-8") as stream:
        for mutant in mutants:
            entry = score.entry_of(mutant, entries)
            if entry and mutant.id not in already:
                result = MutantResult(mutant, Verdict.EQUIVALENT, reason=entry.reason)
                stream.write(json.dumps({"type": "mutant", **result.to_json()}) + "\n")


def read(paths: Iterable[Path]) -> list[MutantResult]:
    """Return all results of `paths`; of a repeated mutant the last result counts.

    A mutant that has not met all cases yet counts as what it is so far: without it, an interrupted file would score the
    killed ones alone.
    """
    found = {r["id"]: MutantResult.from_json(r) for p in paths for r in _lines(p) if r.get("type") != "header"}
    return list(found.values())


def unfinished(paths: Iterable[Path]) -> int:
    """Return how many of the drawn mutants of `paths` have not met all cases."""
    return sum(_lines(path)[0]["drawn"] - len(done(path)) for path in paths)


def done(path: Path, number: int | None = None) -> frozenset[str]:
    """Return the ids of the mutants with a result, and of those that round `number` or a later one left open."""
    lines = list(_lines(path))
    decided = {line["id"] for line in lines if line.get("type") == "mutant"}
    if number is None:
        return frozenset(decided)
    met = (line for line in lines if line.get("type") == "open" and line.get("round", 0) >= number)
    return frozenset(decided.union(line["id"] for line in met))


def open_records(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the records of the cases that each mutant with an open result has met."""
    return {line["id"]: line.get("records", []) for line in _lines(path) if line.get("type") == "open"}


def command_of(path: Path) -> str:
    """Return the command that made a results file."""
    return str(_lines(path)[0].get("command", ""))


def _lines(path: Path) -> list[dict[str, Any]]:
    """Return the JSON objects of a file, without a line that a kill cut short."""
    if not path.exists():
        raise VerispecError(
            "V-MUT-FILE",
            "there is no such results file",
            where=str(path),
            hint="name a file that verispec mutants --out FILE wrote",
        )
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    if not found or found[0].get("type") != "header":
        raise VerispecError(
            "V-MUT-FILE",
            "this is not a results file of mutants: its first line is not a header",
            where=str(path),
            hint="name a file that verispec mutants --out FILE wrote",
        )
    return found
