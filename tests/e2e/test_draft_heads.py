"""The suites' heads against the reference engine's, which share no line with them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from verispec import fixtures
from verispec.engines.protocol.generation import FinishReason, GenerationResult, SpeculativeStep
from verispec.reference.models import AuxiliaryStates, load_eagle3, load_mtp
from verispec.suites.e2e._draft_heads import draft_head, inner_states
from verispec.suites.e2e._head import save_own_head
from verispec.suites.e2e._reference_model import model, reference_chain, widen
from verispec.suites.e2e._stale_keys import reference_stale

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


@pytest.mark.parametrize("name", ["eagle3", "mtp"])
def test_keys_stay_behind_accepted_drafts_alone(name: str) -> None:
    """Chains of a head whose keys stay are the right ones up to the first step that accepts one of several."""
    drawn = torch.randint(2048, (KNOWN,), generator=torch.Generator().manual_seed(4)).tolist()
    prompt, tokens = tuple(drawn[:8]), tuple(drawn[8:])
    made = ((0, 0), (3, 0), (3, 1), (3, 0), (1, 1), (3, 3), (3, 0))
    result = GenerationResult(tokens, FinishReason.LENGTH, steps=tuple(SpeculativeStep(*step) for step in made))
    folder, target = fixtures.model(name), fixtures.model("target")
    right = reference_chain(folder, target, 3).logits(prompt, tokens)
    stale = reference_stale(folder, target, 3, [(prompt, result)]).logits(prompt, tokens)
    begins = [sum(accepted + 1 for _, accepted in made[:n]) for n in range(1, len(made))]
    same = [np.allclose(right[place], stale[place], atol=1e-9) for place in begins]
    assert same == [True, True, False, False, False, False]
