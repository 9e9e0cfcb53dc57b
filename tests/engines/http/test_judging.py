"""A right server passes every clause of SRV, and each wrong one fails the clause that names its fault."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_runs import outcomes_of
from own_server import LogprobsShifted, OwnServer, SeedIgnored, StopLate, TemperatureIgnored

WRONG: list[tuple[type[OwnServer], str]] = [
    (TemperatureIgnored, "e2e/served_text:SRV-2:style=temperature 0.5"),
    (StopLate, "e2e/served_text:SRV-4:stop=strings"),
    (LogprobsShifted, "e2e/served_answers:SRV-6:sampling=greedy"),
    (SeedIgnored, "e2e/served_answers:SRV-7:others=31"),
]
"""A fault, and a case of the clause that names it."""


@pytest.mark.parametrize(("fault", "case"), WRONG, ids=lambda value: getattr(value, "__name__", ""))
def test_a_wrong_server_is_caught(fault: type[OwnServer], case: str, tmp_path: Path) -> None:
    with fault().served() as address:
        assert outcomes_of(address, case, tmp_path) == {"fail"}


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "case"), WRONG, ids=lambda value: getattr(value, "__name__", ""))
def test_a_wrong_server_is_caught_without_its_checkpoint(fault: type[OwnServer], case: str, tmp_path: Path) -> None:
    with fault().served() as address:
        assert outcomes_of(_without(address), case, tmp_path) == {"fail"}


def test_a_right_server_passes_every_clause(tmp_path: Path) -> None:
    with OwnServer().served() as address:
        assert outcomes_of(address, "e2e/served*", tmp_path) == {"pass"}


@pytest.mark.slow
def test_a_right_server_is_judged_without_its_checkpoint(tmp_path: Path) -> None:
    """A repetition penalty and top-p need whole rows."""
    with OwnServer().served() as address:
        assert outcomes_of(_without(address), "e2e/served*", tmp_path) == {"pass", "unsupported"}


def test_a_right_server_passes_clauses_of_generation(tmp_path: Path) -> None:
    with OwnServer().served() as address:
        assert outcomes_of(address, "e2e/limits:GEN-10:draft=ngram k=3;budget=7", tmp_path) == {"pass"}


def _without(address: str) -> str:
    """The address of a server of whose checkpoint nobody said anything."""
    base, _, options = address.partition("?")
    return f"{base}?{'&'.join(option for option in options.split('&') if not option.startswith('checkpoint'))}"
