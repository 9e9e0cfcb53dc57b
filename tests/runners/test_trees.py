"""Draft trees where a runner cannot run them, and the ranks of their tokens."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from verispec.engines.protocol.generation import LoadOptions
from verispec.errors import VerispecError
from verispec.reference.proposers.tree import most_likely
from verispec.reference.runners.cpu import CPURunner

if TYPE_CHECKING:
    from conftest import Models


@pytest.mark.parametrize("windowed", ["target", "draft"])
def test_a_tree_is_refused_for_a_model_with_sliding_windows(models: Models, tmp_path: Path, windowed: str) -> None:
    folders = {"target": models.target, "draft": models.draft}
    copied = Path(shutil.copytree(folders[windowed], tmp_path / windowed))
    config = json.loads((copied / "config.json").read_text())
    config |= {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 8}
    (copied / "config.json").write_text(json.dumps(config))
    folders[windowed] = copied
    tree = {"num_speculative_tokens": 2, "speculative_token_tree": ((0,), (1,)), "draft_sample_method": "greedy"}
    with pytest.raises(VerispecError, match=r"V-GEN-OPTION.*speculative_token_tree.*windows, of 8 tokens"):
        CPURunner(folders["target"], LoadOptions(method="draft_model", draft=folders["draft"], **tree))
    CPURunner(models.target, LoadOptions(method="draft_model", draft=models.draft, **tree)).close()


def test_equal_tokens_have_ranks_in_order_of_their_ids() -> None:
    logits = torch.tensor([[1.0, 3.0, 2.0, 3.0], [0.0, 0.0, 0.0, 0.0]])
    before = logits.clone()
    assert most_likely(logits, 3).tolist() == [[1, 3, 2], [0, 1, 2]]
    assert torch.equal(logits, before)
