"""The certificate of an engine: the faults that its statistical tests exclude, merged over a run."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import Any

from verispec import exits
from verispec.report import pictures
from verispec.report.powers import power
from verispec.run.record import Record
from verispec.run.runfile import Run

NOT_EXCLUDED = "-"
EVIDENCE = (
    "Evidence E says how many times better a named fault explains the random outputs than a correct engine does. A "
    "test fails when its E reaches its limit, and a run when the E of all its tests reaches 1e6: a correct engine does "
    "in one run of a million at most. E is infinite if a correct engine never gives an output."
)
BEST = '; best explained by "'
"""Words before the explanations in the message of a test with evidence."""
LIMIT = 6.0
"""log10 of the evidence at which a run fails: one correct engine in a million reaches it."""


@dataclass(frozen=True)
class Certificate:
    """Results of a run's statistical tests.

    Attributes:
        run: results of `verispec certify`, or of any run.
    """

    run: Run

    @cached_property
    def tests(self) -> tuple[Record, ...]:
        """Records with evidence, a coupling or measured noise."""
        return tuple(record for record in self.run.records if record.evidence)

    @cached_property
    def failing(self) -> tuple[Record, ...]:
        """Tests that failed on their own."""
        return tuple(record for record in self.run.records if record.failed)

    @cached_property
    def log10_e(self) -> float:
        """log10 of the run's merged evidence; infinite after an impossible outcome."""
        if not self.tests:
            return -math.inf
        from verispec.judge.statistics.budget import merged

        weighted = [
            (e["weight"], math.inf if e["log10_e"] is None else e["log10_e"] * math.log(10))
            for e in (record.evidence for record in self.tests)
            if "weight" in e
        ]
        return merged(weighted) / math.log(10)

    @property
    def families(self) -> tuple[str, ...]:
        """Names of the families that were tested, in the order of the run."""
        return tuple(dict.fromkeys(family_of(record) for record in self.tests))

    @cached_property
    def couplings(self) -> dict[str, dict[str, Any]]:
        """Requests, differences and the bound on total variation of each family that was coupled."""
        from verispec.judge.statistics.coupling import bound

        found: dict[str, dict[str, Any]] = {}
        for record in self.tests:
            part = record.evidence.get("coupling")
            if part:
                total = found.setdefault(
                    family_of(record), {"requests": 0, "tokens": 0, "differing": 0, "brackets": []}
                )
                for name in ("requests", "tokens", "differing"):
                    total[name] += part[name]
                total["brackets"] += part["brackets"][:2]
        for total in found.values():
            total["total_variation"] = bound(total["requests"], total["differing"])
        return found

    @cached_property
    def excluded(self) -> list[dict[str, Any]]:
        """Every fault that was bet on, with the smallest size that each family excludes."""
        from verispec.judge.statistics.faults import FAULTS

        sizes: dict[tuple[str, str], dict[str, set[float]]] = {}
        for record in self.tests:
            evidence = record.evidence
            for bet in evidence.get("all", ()):
                sizes.setdefault((bet["where"], bet["fault"]), {}).setdefault(family_of(record), set())
            # A test whose evidence failed says what is wrong, not what is excluded.
            for bet in evidence.get("excluded", ()) if not record.failed or fails_apart(record) else ():
                sizes[bet["where"], bet["fault"]][family_of(record)].add(bet["size"])
        rows = []
        for (where, key), families in sizes.items():
            fault = FAULTS[key]
            shown = {family: _smallest(fault.unit, found) for family, found in families.items()}
            best = min((_effect(fault.unit, size) for found in families.values() for size in found), default=1.0)
            name = fault.name.replace("below {}", "below a limit").replace(" {}", "")
            rows.append({"where": where, "fault": name, "unit": fault.unit, "families": shown, "effect": best})
        return rows

    def exit_code(self) -> int:
        """Return 0 when nothing failed, 1 when something did, 125 when nothing was tested."""
        if self.failing or self.log10_e >= LIMIT:
            return exits.BAD
        return exits.GOOD if self.tests and self.run.footer.get("complete") else exits.CANNOT_TELL

    @property
    def transplanted(self) -> list[str]:
        """Ops whose kernel was the reference's instead of the engine's."""
        return list(self.run.header.get("transplanted", ()))

    def statement(self, sources: Mapping[str, str] | None = None) -> str:
        """Return the result in a few sentences.

        Args:
            sources: name of the cause behind each case that is a consequence, by case id; None if unknown.
        """
        replaced = f"With the reference's {' and '.join(self.transplanted)}: " if self.transplanted else ""
        return replaced + self._result(sources or {})

    def _result(self, sources: Mapping[str, str]) -> str:
        if self.failing:
            decided = len(self.run.records) - len(self._undecided)
            text = f"{len(self.failing)} of {decided} statistical tests fail"
            text += f"{consequences_of(self.failing, sources)}."
            if self._undecided:
                text += f" {len(self._undecided)} have no result."
            apart = Counter(record.evidence["apart"]["without"] for record in self.failing if fails_apart(record))
            for without, number in apart.items():
                text += f" {number} of them pass without {without}, and what they exclude holds for such batches."
            return text
        parts = [f"E = {power(self.log10_e)} over {len(self.tests)} tests (limit 1e6)."]
        for family, coupling in self.couplings.items():
            parts.append(
                f"{family}: total variation at most {coupling['total_variation']:.2g} by coupling of "
                f"{coupling['requests']:,} requests."
            )
        return " ".join(parts)

    @property
    def _undecided(self) -> list[Record]:
        return [record for record in self.run.records if record.outcome in ("unsupported", "inconclusive", "error")]

    def to_json(self) -> dict[str, Any]:
        """Return the certificate as JSON."""
        return {
            "engine": dict(self.run.header["engine"]),
            "verispec": self.run.header["verispec"],
            "seed": self.run.header["seed"],
            "packages": self.run.header["platform"]["packages"],
            "transplanted": self.transplanted,
            "statement": self.statement(),
            "log10_e": None if math.isinf(self.log10_e) else round(self.log10_e, 3),
            "level": 1e-6,
            "couplings": self.couplings,
            "excluded": self.excluded,
            "failing": [{"id": record.id, "message": record.message} for record in self.failing],
            "undecided": [
                {"id": record.id, "outcome": record.outcome, "reason": record.reason} for record in self._undecided
            ],
            "tests": [{"id": record.id, "outcome": record.outcome, **record.evidence} for record in self.tests],
        }

    def as_markdown(self) -> str:
        """Return the certificate as a page of Markdown."""
        engine = self.run.header["engine"]
        families = [family for family in self.families if any(family in row["families"] for row in self.excluded)]
        lines = [f"# Certificate of {engine['asked']}", "", self.statement(), ""]
        lines += [f"- **{record.id}**: {record.message}" for record in self.failing]
        lines += ["", "## Excluded at 1e-6", ""]
        if self.failing and not any(size for row in self.excluded for size in row["families"].values()):
            lines.append("No fault is excluded: no test passed.")
        else:
            lines += ["The smallest size of each fault that the tests exclude.", ""]
            lines += ["| outcome | fault | " + " | ".join(families) + " |", "| --- | --- |" + " --- |" * len(families)]
            for row in self.excluded:
                cells = [row["families"].get(family, "") or NOT_EXCLUDED for family in families]
                fault = row["fault"].replace("|", "\\|")
                lines.append(f"| {row['where']} | {fault} | " + " | ".join(cells) + " |")
        if self._undecided:
            lines += ["", "## Not tested", ""]
            reasons: dict[str, list[str]] = {}
            for record in self._undecided:
                reasons.setdefault(f"{record.outcome}, {record.reason}", []).append(record.id)
            for reason, (first, *rest) in reasons.items():
                lines.append(f"- {reason}: {first}" + (f" and {len(rest):,} more" if rest else ""))
        lines += ["", "## Tests", "", "| case | result | outcomes | evidence E | limit | best explanation |"]
        lines.append("| --- | --- | --- | --- | --- | --- |")
        for record in self.tests:
            evidence = record.evidence
            found, limit = (text or NOT_EXCLUDED for text in evidence_of(record))
            count = f"{evidence['count']:,} {evidence['unit']}" if "count" in evidence else NOT_EXCLUDED
            best = explanation_of(record, {}) or NOT_EXCLUDED
            lines.append(f"| {record.id} | {record.outcome} | {count} | {found} | {limit} | {best} |")
        return "\n".join(lines) + "\n"

    def as_html(self) -> str:
        """Return the certificate as one page with pictures; it loads nothing."""
        engine = escape(str(self.run.header["engine"]["asked"]))
        bars = [
            (f"{row['where']}: {row['fault']}", _best_text(row["families"]), row["effect"]) for row in self.excluded
        ]
        noise = [
            (record.case.clause + " " + family_of(record), record.evidence)
            for record in self.tests
            if "noise" in record.evidence or "needles" in record.evidence
        ]
        parts = [f"<h1>Certificate of {engine}</h1><p>{escape(self.statement())}</p>"]
        parts += [f"<p><b>{escape(record.id)}</b>: {escape(record.message)}</p>" for record in self.failing]
        parts.append("<h2>Excluded</h2>" + pictures.excluded_sizes(bars))
        if noise:
            parts.append("<h2>Random numbers</h2>" + pictures.noise_table(noise))
        parts.append("<h2>Tests</h2>")
        for record in self.tests:
            if "trail" in record.evidence:
                parts.append(f"<details><summary>{escape(record.id)}: {record.outcome}</summary>")
                parts.append(pictures.evidence_over_tokens(record.evidence, record.id))
                if "reliability" in record.evidence:
                    parts.append(pictures.reliability(record.evidence))
                parts.append(pictures.places(record.evidence) + "</details>")
        data = json.dumps(self.to_json()).replace("</", "<\\/")
        style = "body{font-family:sans-serif;max-width:60em;margin:2em auto;color:#24292f}summary{cursor:pointer}"
        return (
            f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Certificate of {engine}</title>'
            f"<style>{style}</style></head><body>{''.join(parts)}"
            f'<script type="application/json" id="certificate">{data}</script></body></html>'
        )


def family_of(record: Record) -> str:
    """Return the tested part: the sampler's family, or generation with its sampler."""
    params = dict(record.case.params)
    if record.case.suite == "e2e":
        return "generation" + (f" {params['sampler']}" if params.get("sampler", "flat") != "flat" else "")
    return params.get("family", "flat")


def fails_apart(record: Record) -> bool:
    """Return True if a test failed by a fault that its statistics, from other batches, do not show."""
    evidence = record.evidence
    log10_e = evidence.get("log10_e")
    return record.failed and "apart" in evidence and log10_e is not None and log10_e < evidence["log10_limit"]


def fails_together(records: Sequence[Record]) -> bool:
    """Return True if tests that pass one by one have enough evidence together to fail the run."""
    passing = tuple(record for record in records if not record.failed)
    return Certificate(Run({}, passing, {})).log10_e >= LIMIT


def is_test(record: Record) -> bool:
    """Return True for a test of random outputs that came to a result; a wrong one may end before it has an E."""
    return bool(record.evidence) or (record.category == "law" and record.decided)


def statistics_line(records: Sequence[Record], sources: Mapping[str, str]) -> str:
    """Return one line about the statistical tests of any run; empty when it has none.

    Args:
        records: results of the run.
        sources: name of the cause behind each case that is a consequence, by case id.
    """
    drawn = [record for record in records if is_test(record)]
    if not any("weight" in record.evidence for record in drawn):
        return ""
    count = len(drawn)
    tests = "1 test" if count == 1 else f"{count} tests"
    failing = sum(record.failed for record in drawn)
    found = f"{failing} of {tests} of random outputs fail" if failing else f"{tests} of random outputs"
    found += consequences_of(drawn, sources)
    others = Certificate(Run({}, tuple(r for r in drawn if r.id not in sources and r.evidence), {}))
    if not any("weight" in record.evidence for record in others.tests):
        return f"statistics: {found}."
    left = " without these" if len(others.tests) < count else ""
    if not any(record.failed for record in others.tests):
        number = len(others.tests)
        unexplained = sum(r.id not in sources for r in drawn)
        other = "other " if unexplained < count else ""  # than those that fail by a known cause
        which = "" if not left else f"; the {other}test" if number == 1 else f"; the {other}{number}"
        which += " with an E" * (unexplained > number)
        return (
            f"statistics: {found}{which} {'finds' if number == 1 else 'find'} nothing against the engine "
            f"(E of the run = {power(others.log10_e)}; a run fails from E = 1e6 on)."
        )
    return (
        f"statistics: {found}, with evidence E = {power(others.log10_e)} against the engine{left}. A run fails from "
        "E = 1e6 on, which a correct engine reaches in one run of a million at most."
    )


def consequences_of(tests: Sequence[Record], sources: Mapping[str, str]) -> str:
    """Return the number of failing tests that are consequences of each cause, to follow their count; or nothing."""
    failing = [record for record in tests if record.failed]
    found = Counter(sources[record.id] for record in failing if record.id in sources)
    if not found:
        return ""
    parts = [
        f"{number} {'as a consequence' if number == 1 else 'as consequences'} of {source}"
        for source, number in found.most_common()
    ]
    if len(parts) == 1 and found.total() == len(failing):
        parts = [f"all {parts[0]}" if len(failing) > 1 else parts[0].removeprefix("1 ")]
    return f" ({', '.join(parts)})"


def evidence_of(record: Record) -> tuple[str, str]:
    """Return the evidence E of a test and its limit, as text; empty where it has none."""
    evidence = record.evidence
    if evidence.get("impossible"):
        found = power(math.inf)
    else:
        found = power(evidence["log10_e"]) if evidence.get("log10_e") is not None else ""
    return found, power(evidence["log10_limit"]) if evidence.get("log10_limit") else ""


def explanation_of(record: Record, sources: Mapping[str, str]) -> str:
    """Return the fault that explains a test best; the cause instead if the test fails as a consequence of it.

    A cause misleads the bets: a fault that they name is then no fault of the engine.
    """
    if record.id in sources:
        return f"a consequence of {sources[record.id]}"
    best = record.evidence.get("best")
    return str(best[0]["label"]) if best else ""


def message_of(record: Record, sources: Mapping[str, str]) -> str:
    """Return the message of a failing case; of a consequence without the faults that explain a test best."""
    if record.id not in sources:
        return record.message
    return f"a consequence of {sources[record.id]}: {record.message.partition(BEST)[0]}"


def _effect(unit: str, size: float) -> float:
    """Return how large a fault of this size is, from 0 to 1."""
    if unit == "factor":
        return abs(size - 1.0)
    return 2.0**-size if unit == "bits" else size


def _smallest(unit: str, sizes: set[float]) -> str:
    """Return the smallest excluded sizes as text; of factors one on either side of 1."""
    if not sizes:
        return ""
    if unit == "factor":
        sides = [max((s for s in sizes if s < 1), default=0.0), min((s for s in sizes if s > 1), default=0.0)]
        return ", ".join(f"x{side:g}" for side in sides if side)
    if unit == "bits":
        return f"{max(sizes):g} bits"
    return f"below {min(sizes):g}" if unit == "below" else f"{min(sizes):.2g} of draws"


def _best_text(families: Mapping[str, str]) -> str:
    shown = [text for text in families.values() if text]
    return shown[0] if shown else "not excluded"
