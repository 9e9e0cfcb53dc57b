"""Runners that take prompts of K + 1 tokens for steps that verify K drafts: ``--engine length_mutants:<name>``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from hybrid_mutants import Changed, certain
from lora_mutants import Selected, _Changed
from runner_mutants import engine_with

from verispec.engines.protocol.generation import LoadOptions
from verispec.reference.models.kv_cache import PAD_SLOT
from verispec.reference.models.recurrent import RecurrentPart, RecurrentStates
from verispec.reference.runners.cpu import CPURunner


class StateNotKept(Changed):
    """A step in which every request has K + 1 tokens keeps no states of prompts (vllm#53051)."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        self.lost: set[int] = set()

    def change(self, states: RecurrentStates, parts: Sequence[RecurrentPart], before: np.ndarray) -> None:
        for part in certain(states):
            for place, slot in enumerate(part.slots.tolist()):
                if slot in self.lost:
                    part.begins[place] = True
        width = self.options.max_drafts + 1
        is_uniform = width > 1 and all(part.num_tokens == width for part in parts)
        self.lost = {part.slot for part in parts if is_uniform and not part.num_drafts}


class LastKeysAreDrafts(CPURunner):
    """The last K tokens of a prompt of K + 1, alone in its step, are as rejected drafts."""

    def _prepare(self, scheduled: Any) -> Any:
        inputs = super()._prepare(scheduled)
        width = self.options.max_drafts + 1
        if width > 1 and len(scheduled) == 1 and scheduled[0].num_tokens == width and not scheduled[0].num_drafts:
            inputs.paged.slot_mapping[1:width] = PAD_SLOT
        return inputs


class FirstTokenSampled(CPURunner):
    """A prompt of K + 1 tokens beside a step with drafts is sampled from the row of its first token."""

    def _prepare(self, scheduled: Any) -> Any:
        inputs, place = super()._prepare(scheduled), 0
        width = self.options.max_drafts + 1
        is_verified = any(part.num_drafts for part in scheduled)
        for part, start in zip(scheduled, inputs.query_start_loc.tolist(), strict=False):
            if part.samples:
                if is_verified and part.num_tokens == width and not part.num_drafts:
                    inputs.logit_rows[place] = start
                place += part.num_drafts + 1
        return inputs


class PromptWithoutAdapter(_Changed):
    """A step of K + 1 tokens of each request has the adapters of the step before it."""

    last: Selected = ()

    def _select(self, right: Callable[..., None], adapters: Selected, lens: np.ndarray, upload: Any) -> None:
        is_uniform = bool((lens == self.options.max_drafts + 1).all())
        right([*self.last, *adapters][: len(adapters)] if is_uniform else adapters, lens, upload)
        self.last = adapters


state_not_kept = engine_with(StateNotKept)
last_keys_are_drafts = engine_with(LastKeysAreDrafts)
first_token_sampled = engine_with(FirstTokenSampled)
prompt_without_adapter = engine_with(PromptWithoutAdapter)
