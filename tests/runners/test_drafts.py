"""Drafts equal those of a drafter without cache, batch or padding.

Verification hides a drafter's faults: outputs stay right and only acceptance falls. So the drafts are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from verispec.engines.protocol.generation import GenerationRequest
from verispec.reference.models import load_eagle3
from verispec.reference.proposers.ngram import lookup
from verispec.reference.runners.base import StepInputs
from verispec.reference.runners.cpu import CPURunner
from verispec.reference.runners.scheduler import Scheduled
from verispec.reference.runners.verification import Verified

if TYPE_CHECKING:
    from conftest import Models

AUX_LAYERS = (1, 2, 3)


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


class AlternatingRunner(RecordingRunner):
    """Gives away the drafts of every second step, as if there had been no room for them."""

    steps = 0

    def _draft(self, scheduled: Sequence[Scheduled], inputs: StepInputs, verified: Verified | None) -> None:
        super()._draft(scheduled, inputs, verified)
        self.steps += 1
        if self.steps % 2:
            for part in scheduled:
                part.request.drop_drafts()


SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "k=1": {"num_speculative_tokens": 1},
    "k=6": {"num_speculative_tokens": 6},
    "chunks": {"max_num_batched_tokens": 9, "block_size": 3},
    "preemption": {"block_size": 4, "num_blocks": 30, "max_model_len": 96},
    "no drafts in every second step": {"kind": AlternatingRunner},
}


def record(
    models: Models,
    method: str,
    prompts: list[tuple[int, ...]],
    expected: list[tuple[int, ...]],
    kind: type[RecordingRunner] = RecordingRunner,
    **settings: Any,
) -> RecordingRunner:
    runner = models.runner(method, kind, **settings)
    assert isinstance(runner, RecordingRunner)
    drafted = runner.generate([GenerationRequest(p, max_tokens=24, ignore_eos=True) for p in prompts])
    assert [result.token_ids for result in drafted] == expected
    assert len(runner.drafted) > 20
    return runner


@pytest.mark.parametrize("setting", SETTINGS)
def test_draft_model(
    setting: str, models: Models, prompts: list[tuple[int, ...]], expected: list[tuple[int, ...]]
) -> None:
    for sequence, drafts in record(models, "draft_model", prompts, expected, **SETTINGS[setting]).drafted:
        with torch.no_grad():
            logits = models.drafter(torch.tensor([sequence + drafts[:-1]])).logits[0, len(sequence) - 1 :]
        assert logits.argmax(dim=-1).tolist() == drafts


@pytest.mark.parametrize("setting", SETTINGS)
def test_eagle3(setting: str, models: Models, prompts: list[tuple[int, ...]], expected: list[tuple[int, ...]]) -> None:
    """Row i of the head reads token i + 1 and the target's states of position i, then its own output."""
    head = load_eagle3(models.head, models.reference)
    d2t = head.d2t.tolist()
    assert any(d2t), "the draft vocabulary must be a real subset"
    for sequence, drafts in record(models, "eagle3", prompts, expected, **SETTINGS[setting]).drafted:
        with torch.no_grad():
            states = models.reference(torch.tensor([sequence[:-1]]), output_hidden_states=True).hidden_states
            hidden = head.combine(torch.cat([states[layer] for layer in AUX_LAYERS], dim=-1))
            inputs = sequence[1:]
            for draft in drafts:
                normed, following = head(torch.tensor([inputs]), hidden, torch.arange(len(inputs))[None])
                choice = int(head.logits(normed[0, -1]).argmax())
                assert draft == choice + d2t[choice]
                inputs, hidden = [*inputs, draft], torch.cat((hidden, following[:, -1:]), dim=1)


def test_ngram(models: Models, prompts: list[tuple[int, ...]], expected: list[tuple[int, ...]]) -> None:
    same = [prompts[-1]] * 12, [expected[-1]] * 12
    for sequence, drafts in record(models, "ngram", *same, ngram_min=2, ngram_max=3).drafted:
        matches = [
            sequence[end : end + 3]
            for size in (3, 2)
            for end in range(len(sequence) - 1, size - 1, -1)
            if sequence[end - size : end] == sequence[-size:]
        ]
        assert drafts == matches[0][: len(drafts)]


@pytest.mark.parametrize(
    ("sequence", "found"),
    [
        ([7], []),
        ([7, 8], []),
        ([7, 7], []),
        ([7, 8, 7, 8], [7, 8]),
        ([7, 8, 9, 7, 8], [9, 7, 8]),
        ([7, 8, 1, 9, 7, 8, 2, 7, 8], [2, 7, 8]),
        ([5, 7, 8, 1, 2, 7, 8, 3, 5, 7, 8], [1, 2, 7]),
        ([1, 2, 3, 4, 5], []),
        ([256, 512, 256, 1, 2], []),  # the bytes of 1, 2 begin inside of 256
        ([0, 0, 9, 0, 0], [9, 0, 0]),
        ([0xD800, 0x10FFFD, 5, 0xD800, 0x10FFFD], [5, 0xD800, 0x10FFFD]),  # half a character, and the last one
    ],
    ids=str,
)
def test_prompt_lookup(sequence: list[int], found: list[int]) -> None:
    """Suffixes of three tokens, then of two: the longest wins, then the latest place; short sequences have neither."""
    assert lookup(np.array(sequence), 2, 3, 3) == found
