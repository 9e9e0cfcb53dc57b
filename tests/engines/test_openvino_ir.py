"""Converted checkpoints against transformers, on OpenVINO itself."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from verispec import fixtures
from verispec.engines import UnsupportedCall
from verispec.engines.adapters.openvino_ir import MODEL, converted
from verispec.reference.models import load_target

pytestmark = pytest.mark.openvino


@pytest.fixture
def openvino() -> Any:
    return importlib.import_module("openvino")


@pytest.mark.parametrize("name", ["target", "draft"])
def test_logits_are_those_of_transformers(openvino: Any, name: str) -> None:
    """A prompt of two rows, one of them padded on the left, and then one more token each over the states."""
    folder = fixtures.model(name)
    compiled = openvino.Core().compile_model(str(converted(folder) / MODEL), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    run, reference = compiled.create_infer_request(), load_target(folder, torch.float64)
    rows = np.random.default_rng(7).integers(3, 2000, (2, 12))
    mask = np.ones_like(rows)
    mask[1, :4] = 0
    positions = np.maximum(mask.cumsum(1) - 1, 0)
    beam = np.arange(2, dtype=np.int32)
    with torch.inference_mode():
        shown = [row[known == 1] for row, known in zip(rows, mask, strict=True)]
        expected = [reference(torch.tensor(row[None])).logits[0].numpy() for row in shown]
    for start, end in ((0, 11), (11, 12)):
        inputs = {"input_ids": rows[:, start:end], "attention_mask": mask[:, :end], "beam_idx": beam}
        logits = run.infer(inputs | {"position_ids": positions[:, start:end]})["logits"]
        np.testing.assert_allclose(logits[0], expected[0][start:end], atol=2e-4)
        np.testing.assert_allclose(logits[1, -1], expected[1][end - 1 - 4], atol=2e-4)


def test_a_conversion_is_kept_and_changes_with_the_checkpoint(tmp_path: Path) -> None:
    first = converted(fixtures.model("draft"))
    assert converted(fixtures.model("draft")) == first
    for file in fixtures.model("draft").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [0, 5]}')
    assert converted(tmp_path) != first
    assert converted(first) == first  # It has an OpenVINO model already.


def test_other_models_are_refused() -> None:
    with pytest.raises(UnsupportedCall, match="models of class"):
        converted(fixtures.model("hybrid"))
