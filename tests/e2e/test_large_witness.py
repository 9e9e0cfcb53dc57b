"""Witness models: an engine loads one of 151,936 tokens, tables explain its text, and a head drafts by its table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from verispec.engines.protocol.generation import GenerationRequest
from verispec.engines.registry import resolve
from verispec.fixtures.witness import STATES, TARGET_LAYERS, save_witness, witness_tables
from verispec.judge.statistics.rows import Rows
from verispec.judge.statistics.text import GivenText, kinds_of
from verispec.reference.models import AuxiliaryStates, load_eagle3, load_target

VOCAB = 151_936
TEXTS, LENGTH = 24, 24


@pytest.mark.slow
def test_the_tables_of_a_large_witness_explain_its_text(tmp_path: Path) -> None:
    """576 tokens: the tables explain them, and those of the next state do not."""
    tables = witness_tables(VOCAB)
    folders = save_witness(tmp_path, tables)
    generator = resolve("reference").load(
        folders["target"],
        method="draft_model",
        draft=folders["draft"],
        num_speculative_tokens=3,
        max_num_seqs=TEXTS,
        max_num_batched_tokens=512,
        max_model_len=64,
    )
    rng = np.random.default_rng(0)
    asked = [
        GenerationRequest(
            tuple(rng.integers(1, VOCAB, 3).tolist()), max_tokens=LENGTH, ignore_eos=True, temperature=1.0, seed=n
        )
        for n in range(TEXTS)
    ]
    p, q = (softmax(table.astype(np.float64)) for table in (tables.target, tables.draft))
    results = generator.generate(asked)
    for shift, found in ((0, False), (1, True)):
        model = GivenText(1.0, 0, drafted=True)
        rows = Rows(np.roll(p, shift, axis=0), np.roll(q, shift, axis=0))
        for request, result in zip(asked, results, strict=True):
            tokens = np.array(result.token_ids)
            states = tables.states([request.prompt_token_ids[-1], *tokens[:-1]])
            model.add(rows, states, tokens, *kinds_of(result.steps, len(tokens)), slack=1e-5)
        assert model.evidence.count == TEXTS * LENGTH
        assert model.evidence.failed == found
    assert len(p) == STATES


def test_the_drafts_of_a_witness_head_have_its_table(tmp_path: Path) -> None:
    """Rows read the target's states first, then the head's own, as in a chain of drafts."""
    tables = witness_tables(512)
    folders = save_witness(tmp_path, tables)
    target = load_target(folders["target"], torch.float32, "cpu")
    head = load_eagle3(folders["eagle3"], target)
    ids = torch.from_numpy(np.random.default_rng(0).integers(1, 512, (4, 1, 60)))
    expected = [tables.draft[tables.states(row[0])] for row in ids.numpy()]
    with torch.inference_mode(), AuxiliaryStates(target, head.config.aux_layers(TARGET_LAYERS)) as aux:
        target(ids[0])
        hidden = head.combine(aux.take())
        for row, rows in zip(ids, expected, strict=True):
            normed, hidden = head(row, hidden, torch.arange(60)[None])
            np.testing.assert_allclose(head.logits(normed)[0].numpy(), rows, atol=1e-5)


def softmax(table: np.ndarray) -> np.ndarray:
    weights = np.exp(table - table.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True)
