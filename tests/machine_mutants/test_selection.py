"""`verispec mutants --op` looks its name up before minutes are spent on a build."""

from __future__ import annotations

from pathlib import Path

import pytest

from verispec import exits
from verispec.errors import VerispecError
from verispec.mutants import campaign, schemata
from verispec.mutants.layers import LAYERS, chosen

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


def test_a_layer_runs_where_its_engine_can() -> None:
    """Those that need a GPU are no part of all layers without one."""
    assert {layer.name for layer in chosen("all")} == LAYERS.keys() - {"gpu"}
    assert {layer.name for layer in chosen("all", "cuda")} == {"triton", "gpu"}
    with pytest.raises(VerispecError, match=r"V-MUT-DEVICE(.|\n)*triton, gpu"):
        chosen("cpp", "cuda")


def test_a_machine_without_a_gpu_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Before a testing process starts."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    [layer] = chosen("gpu")
    prepared = campaign.prepare(campaign.CampaignPlan(layer, 3, 1, device=layer.devices[0]))
    [round_, *_] = campaign.rounds(prepared.plan)
    with pytest.raises(VerispecError, match=r"V-MUT-NO-DEVICE") as caught:
        campaign.judge(prepared, tmp_path / "gpu.jsonl", round_)
    assert caught.value.exit_code == exits.CANNOT_TELL


def test_each_file_is_mutated_in_one_layer() -> None:
    """Those of models and runners that need a GPU are left to the layer of that name."""
    paths = [path for layer in LAYERS.values() for path in layer.paths()]
    assert len(paths) == len(set(paths))
    assert {name for layer in LAYERS.values() if layer.is_cpp for name in layer.files} <= {
        path.name for path in (SOURCES / "csrc").iterdir()
    }
    needed = [path.name for path in LAYERS["gpu"].paths()]
    assert {"_attention.py", "_linear.py", "fused_gpu.py", "step_graphs.py"} <= set(needed)
