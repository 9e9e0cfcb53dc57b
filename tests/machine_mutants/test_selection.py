"""`verispec mutants --op` looks its name up before minutes are spent on a build."""

from __future__ import annotations

from pathlib import Path

import pytest

from verispec.errors import VerispecError
from verispec.mutants import campaign, schemata
from verispec.mutants.layers import chosen

SOURCES = Path(__file__).parents[2] / "reference"
"""The checkout's; an installed package has none."""


@pytest.mark.parametrize(
    ("op", "words"),
    [("rejection_random_sampel", "did you mean rejection_random_sample"), ("qqq", "source files are")],
)
def test_an_unknown_op_is_refused_before_a_build(op: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(*_: Path) -> None:
        raise AssertionError("nothing has to be built")

    monkeypatch.setattr(schemata, "build", build)
    monkeypatch.setattr(campaign, "_source_root", lambda layer: SOURCES)
    [layer] = chosen("cpp")
    plan = campaign.CampaignPlan(layer, 3, 1, op, 1, 90.0, True, "")
    with pytest.raises(VerispecError, match=words) as caught:
        campaign.prepare(plan)
    assert caught.value.diagnostic.code == "V-MUT-OP"
