"""A right server passes every clause of SRV, and each wrong one fails the clause that names its fault."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from engine_runs import records_of
from own_server import OwnServer
from wrong_answers import (
    BiasIgnored,
    LogprobsShifted,
    NeighbourTemperature,
    SamplesShared,
    SeedIgnored,
    TemperatureIgnored,
    TopKIgnored,
)
from wrong_streams import ErrorInStream
from wrong_texts import StopLate, UsageOfOneSample

from verispec.engines.protocol.generation import GenerationRequest

WRONG: list[tuple[type[OwnServer], str]] = [
    (TemperatureIgnored, "served_text:SRV-2:style=temperature 0.5"),
    (StopLate, "served_text:SRV-4:stop=strings"),
    (LogprobsShifted, "served_answers:SRV-6:sampling=greedy"),
    (SeedIgnored, "served_answers:SRV-7:others=31"),
    (SamplesShared, "served_answers:SRV-8:sampling=drawn"),
    (UsageOfOneSample, "served_text:SRV-3:samples=four"),
    (BiasIgnored, "served_text:SRV-9:penalty=logit bias"),
    (TopKIgnored, "served_text:SRV-2:style=top_k 5"),
    (NeighbourTemperature, "served_text:SRV-2:style=temperatures 0.3 and 1"),
]
"""A fault, and a case of the clause that names it."""

NEEDS_CHECKPOINT = {
    "served_text:SRV-9:penalty=repetition",
    "served_text:SRV-9:penalty=repetition below 1",
    "served_text:SRV-9:penalty=allowed tokens",
    "served_text:SRV-2:style=top_k 5",
    "served_text:SRV-2:style=top_p 0.8",
    "served_text:SRV-2:style=unlike",
    "served_text:SRV-2:style=three tokens",
    "served_text:SRV-4:stop=in the prompt",
    "served_text:SRV-4:stop=end of text",
    "served_text:SRV-4:stop=end of text ignored",
    "served_answers:SRV-5:form=characters",
    *(f"served_answers:SRV-13:form={form}" for form in ("greedy", "sampled", "characters")),
}
"""Cases of the model's whole distributions, of its vocabulary, or of its tokenizer."""


def outcomes_of(address: str, cases: Sequence[str], folder: Path) -> dict[str, str]:
    return {name: record["outcome"] for name, record in records_of(address, cases, folder).items()}


def require_caught(address: str, case: str, folder: Path) -> None:
    """The case fails by a wrong value, not by an exception."""
    [record] = records_of(address, [case], folder).values()
    assert record["outcome"] == "fail", record
    assert record["failure"]["kind"] != "raised", record


@pytest.mark.parametrize(("fault", "case"), WRONG, ids=lambda value: getattr(value, "__name__", ""))
def test_a_wrong_server_is_caught(fault: type[OwnServer], case: str, tmp_path: Path) -> None:
    with fault().served() as address:
        require_caught(address, case, tmp_path)


def test_the_temperature_of_a_neighbour_needs_no_common_batch() -> None:
    """On a busy machine the requests of a client may run one by one."""
    server = NeighbourTemperature()
    asked = [GenerationRequest((1, 2), temperature=temperature) for temperature in (0.3, 0.0, 1.0, 0.3)]
    batches = [server.make_batch([request]) for request in asked]
    assert [request.temperature for [request] in batches] == [0.3, 0.0, 0.3, 1.0]


DECIDED = [(fault, case) for fault, case in WRONG if case not in NEEDS_CHECKPOINT]


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "case"), DECIDED, ids=lambda value: getattr(value, "__name__", ""))
def test_a_wrong_server_is_caught_without_its_checkpoint(fault: type[OwnServer], case: str, tmp_path: Path) -> None:
    with fault().served() as address:
        require_caught(_without(address), case, tmp_path)


def test_a_lost_answer_fails_the_case(tmp_path: Path) -> None:
    with ErrorInStream().served() as address:
        [record] = records_of(address, ["served_answers:SRV-5:form=greedy"], tmp_path).values()
    assert (record["outcome"], record["failure"]["kind"]) == ("fail", "raised")
    assert "engine is dead" in record["failure"]["message"]


QUICK = ("served_answers*", "served_load*", "served_text:SRV-[1349]:*", "served_text:SRV-2:style=unlike")
"""All cases but those of one style of sampling."""


def test_a_right_server_passes_every_clause(tmp_path: Path) -> None:
    """The small draft model is served: the cases read its folder as any other's."""
    with OwnServer(checkpoint="draft").served() as address:
        outcomes = outcomes_of(address, QUICK, tmp_path)
    assert len(outcomes) > 60
    assert set(outcomes.values()) == {"pass"}, outcomes


@pytest.mark.slow
def test_a_right_server_passes_every_style_of_sampling(tmp_path: Path) -> None:
    with OwnServer().served() as address:
        outcomes = outcomes_of(address, ("served_text:SRV-2:*",), tmp_path)
    assert len(outcomes) == 7
    assert set(outcomes.values()) == {"pass"}, outcomes


@pytest.mark.slow
def test_a_right_server_is_judged_without_its_checkpoint(tmp_path: Path) -> None:
    with OwnServer().served() as address:
        outcomes = outcomes_of(_without(address), ("served*",), tmp_path)
    assert {name for name, outcome in outcomes.items() if outcome == "unsupported"} == NEEDS_CHECKPOINT
    assert set(outcomes.values()) == {"pass", "unsupported"}


def test_a_right_server_passes_clauses_of_generation(tmp_path: Path) -> None:
    with OwnServer().served() as address:
        assert set(outcomes_of(address, ("limits:GEN-10:draft=ngram k=3;budget=7",), tmp_path).values()) == {"pass"}


def _without(address: str) -> str:
    """Return the address of the same server without its checkpoint."""
    base, _, options = address.partition("?")
    return f"{base}?{'&'.join(option for option in options.split('&') if not option.startswith('checkpoint'))}"
