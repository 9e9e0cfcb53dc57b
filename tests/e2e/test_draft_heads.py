"""The suites' heads against the reference engine's, which share no line with them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from verispec import fixtures
from verispec.reference.models import AuxiliaryStates, load_eagle3, load_mtp
from verispec.suites.e2e._draft_heads import draft_head, inner_states
from verispec.suites.e2e._head import save_own_head
from verispec.suites.e2e._reference_model import model, widen

KNOWN = 24


@pytest.mark.parametrize("name", ["eagle3", "eagle3_speculators", "mtp", "own"])
def test_both_computations_of_a_head_agree(name: str, tmp_path: Path) -> None:
    target = model(fixtures.model("target"), torch.float64)
    folder = save_own_head(tmp_path) if name == "own" else fixtures.model(name)
    theirs, ours = widen((load_mtp if name == "mtp" else load_eagle3)(folder, target)), draft_head(folder, target)
    ids = torch.randint(2048, (KNOWN + 1,), generator=torch.Generator().manual_seed(3))
    positions, sees = torch.arange(KNOWN), torch.ones(KNOWN, KNOWN, dtype=torch.bool).tril()
    layers = theirs.config.aux_layers(target.config.num_hidden_layers)
    assert ours.layers == layers
    with torch.inference_mode(), AuxiliaryStates(target, layers) as aux:
        target(ids[None, :KNOWN], use_cache=False)
        hidden = theirs.combine(aux.take())
        normed, following = theirs(ids[None, 1:], hidden, positions[None], attention_mask=sees[None, None])
        expected = theirs.target_logits(theirs.logits(normed))[0]
        first = ours.combine(inner_states(target, ids[None, :KNOWN], layers)[0])
        rows = ours.rows(ours.embed(ids[1:], positions), first, positions, sees)
        # The head's rotary table is float32, whose angles are off by up to 2^-24 each.
        assert torch.allclose(ours.fed(rows), following[0], atol=1e-5)
        assert torch.allclose(ours.logits(rows), expected, atol=1e-5)
