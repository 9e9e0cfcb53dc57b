"""Tables and texts in narrow terminals: no columns of single letters, and no line past the edge."""

from __future__ import annotations

import re

import pytest

from verispec.cli import doctor, engines, ops
from verispec.doctor import Check, State
from verispec.report.explanation import as_text, explain
from verispec.report.inventory import rows
from verispec.terminal import table

HEAD = ["what", "state", "found"]
ROWS = [
    ["python", "ok", "3.11.7"],
    ["vllm@SOURCE[#REV]", "missing", "needs triton; install it with: pip install triton"],
]


def lines_of(text: list[str], width: int) -> list[str]:
    """Return the lines that are longer than the terminal although they have several words behind the indentation."""
    return [line for line in text if len(line) > width and " " in line.strip()]


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_a_table_is_columns_where_they_fit_and_blocks_elsewhere(width: int) -> None:
    found = list(table(HEAD, ROWS, width))
    assert lines_of(found, width) == []
    assert found[0].split() == (HEAD if width > 40 else ["python"])
    assert "needs triton; install it with: pip install triton" in " ".join(" ".join(found).split())


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_the_tables_of_engines_ops_and_doctor_fit(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (engines, ops, doctor):
        monkeypatch.setattr(module, "columns", lambda *_: width)
    listed = engines._table([engines._row(name) for name in engines.names()])
    assert lines_of(listed, width) == []
    assert lines_of(ops.lines(rows(())), width) == []


@pytest.mark.parametrize("width", [40, 80])
def test_a_state_keeps_its_colour(width: int) -> None:
    check = Check("CUDA", State.MISSING, "no ok driver", "--device cuda", "ask for one")
    shown = [doctor._coloured(line) for line in table(HEAD, [["CUDA", check.state, doctor._found(check)]], width)]
    coloured = [line.plain[span.start : span.end] for line in shown for span in line.spans]
    assert coloured == ["missing"]
    assert "no ok driver; ask for one (for: --device cuda)" in " ".join(" ".join(line.plain for line in shown).split())


@pytest.mark.parametrize("name", ["RRS-7", "whole_sampler", "parameters", "rules", "SIG101"])
@pytest.mark.parametrize("width", [40, 60])
def test_an_explanation_fits(name: str, width: int) -> None:
    code = re.compile(r"^    |^not a fault|^  \w+: |^called as|^batch is|^verispec explain NAME")  # keeps its lines
    assert [line for line in lines_of(list(as_text(explain(name), width)), width) if not code.match(line)] == []
