"""Drafts equal those of a drafter without cache, batch or padding.

Verification hides a drafter's faults: outputs stay right and only acceptance falls. So the drafts are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest
import torch

from verispec.engines.generation import GenerationRequest
from verispec.reference.models import load_eagle3
from verispec.reference.runners.base import StepInputs
from verispec.reference.runners.cpu import CPURunner
from verispec.reference.runners.scheduler import Scheduled
from verispec.reference.runners.verification import Verified

if TYPE_CHECKING:
    from conftest import Models

AUX_LAYERS = (1, 4, 6)
SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "k=1": {"num_speculative_tokens": 1},
    "k=6": {"num_speculative_tokens": 6},
    "chunks": {"max_num_batched_tokens": 9, "block_size": 3},
    "preemption": {"block_size": 4, "num_blocks": 30, "max_model_len": 96},
}


class RecordingRunner(CPURunner):
    """Keeps every sequence that was drafted for, with its drafts."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.drafted: list[tuple[list[int], list[int]]] = []

    def _draft(self, scheduled: Sequence[Scheduled], inputs: StepInputs, verified: Verified | None) -> None:
        super()._draft(scheduled, inputs, verified)
        for part in scheduled:
            request = part.request
            if request.drafts:
                known, end = request.num_tokens, request.num_tokens + request.drafts
                self.drafted.append((request.tokens[:known].tolist(), request.tokens[known:end].tolist()))


def record(models: Models, method: str, prompts: list[tuple[int, ...]], **settings: Any) -> RecordingRunner:
    runner = models.runner(method, RecordingRunner, **settings)
    assert isinstance(runner, RecordingRunner)
    runner.generate([GenerationRequest(p, max_tokens=24, ignore_eos=True) for p in prompts])
    assert len(runner.drafted) > 20
    return runner


@pytest.mark.parametrize("setting", SETTINGS)
def test_draft_model(setting: str, models: Models, prompts: list[tuple[int, ...]]) -> None:
    for sequence, drafts in record(models, "draft_model", prompts, **SETTINGS[setting]).drafted:
        for count, draft in enumerate(drafts):
            with torch.no_grad():
                logits = models.drafter(torch.tensor([sequence + drafts[:count]])).logits[0, -1]
            assert draft == int(logits.argmax())


@pytest.mark.parametrize("setting", SETTINGS)
def test_eagle3(setting: str, models: Models, prompts: list[tuple[int, ...]]) -> None:
    """Row i of the head reads token i + 1 and the target's states of position i, then its own output."""
    head = load_eagle3(models.head, models.reference)
    d2t = head.d2t.tolist()
    assert any(d2t), "the draft vocabulary must be a real subset"
    for sequence, drafts in record(models, "eagle3", prompts, **SETTINGS[setting]).drafted:
        with torch.no_grad():
            states = models.reference(torch.tensor([sequence[:-1]]), output_hidden_states=True).hidden_states
            hidden = head.combine(torch.cat([states[layer] for layer in AUX_LAYERS], dim=-1))
            inputs = sequence[1:]
            for draft in drafts:
                normed, following = head(torch.tensor([inputs]), hidden, torch.arange(len(inputs))[None])
                choice = int(head.logits(normed[0, -1]).argmax())
                assert draft == choice + d2t[choice]
                inputs, hidden = [*inputs, draft], torch.cat((hidden, following[:, -1:]), dim=1)


def test_ngram(models: Models, prompts: list[tuple[int, ...]]) -> None:
    for sequence, drafts in record(models, "ngram", [prompts[-1]] * 8, ngram_min=2, ngram_max=3).drafted:
        matches = [
            sequence[end : end + 3]
            for size in (3, 2)
            for end in range(len(sequence) - 1, size - 1, -1)
            if sequence[end - size : end] == sequence[-size:]
        ]
        assert drafts == matches[0][: len(drafts)]
