"""Benchmarks: what is timed is right, inputs have the acceptance that was asked for, reports hold what was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from verispec import cli
from verispec.bench.inputs import OPS, BenchShape, make
from verispec.bench.rendering import BenchResult, heading, lines, roofline
from verispec.bench.steps import check, needed_bytes, step_of
from verispec.bench.timing import Time
from verispec.engines import Engine
from verispec.engines.adapters.reference import Reference
from verispec.engines.registry import resolve
from verispec.errors import VerispecError


@pytest.fixture(scope="module")
def reference() -> Engine:
    return resolve("reference")


class Faulty(Reference):
    """The reference, whose ops emit another last token or accept another number of drafts."""

    def __init__(self, output: str) -> None:
        super().__init__("verispec.reference.cpu", "faulty", "cpu", {})
        self._output = output

    def op(self, name: str) -> Any:
        true = super().op(name)

        def function(**arguments: Any) -> None:
            true(**arguments)  # type: ignore[operator]
            if self._output in arguments:
                arguments[self._output] += 1

        return function


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("acceptance", [0.0, 0.7, 1.0])
def test_acceptance_is_what_was_asked_for(reference: Engine, op: str, acceptance: float) -> None:
    """Of 300 requests with one draft each; the bound is five standard deviations."""
    shape = BenchShape(op, 300, 1, 500, acceptance=acceptance)
    inputs = make(shape, "cpu")
    step = step_of(reference, shape, inputs)
    step.run()
    accepted = float((step.counts - 1).float().mean())
    assert abs(accepted - acceptance) < 5 * (0.25 / 300) ** 0.5


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("limits", ["none", "both"])
@pytest.mark.parametrize("way", ["fused", "ops"])
def test_a_right_engine_passes_the_check(reference: Engine, op: str, limits: str, way: str) -> None:
    shape = BenchShape(op, 5, 3, 700, rows="flat", limits=limits)
    inputs = make(shape, "cpu")
    step = step_of(reference, shape, inputs, way)
    assert step.way == way
    check(step, shape, inputs)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(("way", "output"), [("fused", "sampled"), ("fused", "num_sampled"), ("ops", "num_accepted")])
def test_a_wrong_engine_is_not_timed(op: str, way: str, output: str) -> None:
    shape = BenchShape(op, 5, 3, 700)
    inputs = make(shape, "cpu")
    with pytest.raises(VerispecError, match="expected"):
        check(step_of(Faulty(output), shape, inputs, way), shape, inputs)


def test_needed_bytes_end_at_the_first_rejected_draft(reference: Engine) -> None:
    for acceptance, rows in ((0.0, 1 + 1), (1.0, 4 + 3)):
        shape = BenchShape("verify_draft_logits", 6, 3, 256, dtype="bfloat16", acceptance=acceptance)
        inputs = make(shape, "cpu")
        step = step_of(reference, shape, inputs)
        step.run()
        assert needed_bytes(step, shape, inputs) == 6 * rows * 256 * 2


def result(peer: Time | None) -> BenchResult:
    return BenchResult(
        BenchShape(OPS[0], 1, 3, 1000), Time(2.0, 1.0, 3.0), "fused", peer, "ops", Time(1.0, 1.0, 1.0), 4000
    )


def test_a_result_says_ratio_and_share() -> None:
    assert (
        result(Time(6.0, 6.0, 6.0)).to_json() | {"ratio": 3.0, "share_of_floor": 0.5}
        == result(Time(6.0, 6.0, 6.0)).to_json()
    )
    assert result(None).ratio is None
    assert "3.00" in lines(result(Time(6.0, 6.0, 6.0)))[1]


def test_a_table_fits_80_columns_and_its_figures_stand_under_their_names() -> None:
    shape = BenchShape("verify_draft_logits", 1024, 16, 151_936, "bfloat16", "peaked", 0.75, "both")
    slow = Time(1_234_567.8, 1_234_567.0, 1_234_568.0)
    large = BenchResult(shape, slow, "fused", slow, "ops", Time(123_456.7, 1.0, 1.0), 4_999_999_999)
    table = [*heading("reference:triton", "vllm@vllm==0.33.0"), *lines(large), *lines(result(None))]
    assert max(map(len, table)) <= 80
    names, first, second = table[2], table[4], table[6]
    for name, figure in (("spread", "0%"), ("ratio", "1.00"), ("of floor", "10%"), ("MB", "5000.00")):
        end = names.index(name) + len(name)
        assert first[:end].endswith(f" {figure}"), name
    assert second[: names.index("peer") + 4].endswith(" -")


def test_the_picture_holds_every_point() -> None:
    tree = ElementTree.fromstring(roofline([result(Time(6.0, 6.0, 6.0))] * 3, "a<b", "other"))
    assert len(tree.findall(".//{http://www.w3.org/2000/svg}circle")) == 6


def test_the_command_writes_what_it_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, svg = tmp_path / "bench.json", tmp_path / "bench.svg"
    arguments = ["--op", OPS[1], "--batch", "2", "--vocab", "300", "--samples", "3", "--vs", "reference:ops"]
    with pytest.raises(SystemExit) as end:
        cli.main(["bench", *arguments, "--out", str(out), "--svg", str(svg), "--json"])
    assert not end.value.code
    report = json.loads(out.read_text())
    assert json.loads(capsys.readouterr().out) == report
    (measured,) = report["results"]
    assert measured["engine_way"] == "fused"
    assert measured["peer_way"] == "ops"
    assert measured["ratio"] > 0
    assert svg.read_text().startswith("<svg")


def test_an_unknown_op_names_the_known_ones() -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["bench", "--op", "verify_all"])
    assert end.value.code == 2
