"""Copies of bugs of other engines, as engines: ``--engine copied_mutants:<name>``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from parameter_mutants import processing
from runner_mutants import engine_with

from verispec.engines.protocol.generation import GenerationRequest, LoadOptions
from verispec.reference.models import eagle3
from verispec.reference.runners import base, sampling, tree, verification
from verispec.reference.runners.cpu import CPURunner
from verispec.reference.sampler import flat
from verispec.reference.sampler.processors import TokenHistory, needs_processing, process_logits


class SamplesOfASeedBelowZero(CPURunner):
    """Samples of a request with a seed below 0 share it (unslothai/unsloth#9262)."""

    def _admit_samples(self, index: int, request: GenerationRequest) -> list[Any]:
        if request.seed is None or request.seed >= 0:
            return super()._admit_samples(index, request)
        return [self._admit(index, replace(request)) for _ in range(request.n)]


class StartedBesidePlainOnes(CPURunner):
    """The history of a request lacks its first token if plain ones alone ran when it started (after vllm#27910)."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        history, verify = verification.TokenHistory, base.verify
        before: list[GenerationRequest] = []
        late: list[GenerationRequest] = []

        def shortened(params: Any, output: Any, stops: Any, rows: Any) -> Any:
            return history(params, output[1:] if any(params is own for own in late) else output, stops, rows)

        def tracked(sampler: Any, logits: Any, parts: Any, mode: Any) -> Any:
            if before and not any(map(needs_processing, before)):
                late.extend(part.request.params for part in parts if not len(part.request.output_token_ids))
            before[:] = [part.request.params for part in parts]
            return verify(sampler, logits, parts, mode)

        verification.TokenHistory = shortened  # type: ignore[assignment, misc]
        base.verify = tracked


def top_k_first(logits: torch.Tensor, histories: Sequence[TokenHistory], drafts: Sequence[Sequence[int]]) -> None:
    """Top-k is taken before the grammar, wherever it leaves a token (llama.cpp#12643)."""
    parts = logits.split([len(proposed) + 1 for proposed in drafts])
    for history, rows in zip(histories, parts, strict=True):
        if history.allowed_rows is not None and history.params.top_k:
            out = rows < rows.topk(history.params.top_k, dim=-1).values[:, -1:]
            fits = (history.allowed_rows & ~out).any(dim=-1, keepdim=True)
            rows.masked_fill_(out & fits, float("-inf"))
    process_logits(logits, histories, drafts)


class DraftsOfCutLogits(CPURunner):
    """Drafts are drawn from bfloat16 logits, and verified by float32 ones (deepseek-ai/DeepSpec#31)."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        draw = sampling.sample_drafts

        def drawn(logits: Any, temperatures: Any, generators: Any) -> Any:
            scale = torch.tensor([temperature or 1.0 for temperature in temperatures])
            probs = torch.softmax(logits.float() / scale[:, None], dim=-1)
            return draw(logits.bfloat16(), temperatures, generators)[0], probs

        sampling.sample_drafts = drawn


class RatesByNumbersOfDrafting(CPURunner):
    """Synthetic rates are compared with the numbers that the first draft was drawn by."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        draw, fill = sampling.sample_drafts, flat.fill_with_noise
        states: dict[Any, torch.Tensor] = {}

        def drawn(logits: Any, temperatures: Any, generators: Any) -> Any:
            for generator in generators:
                states.setdefault(generator, generator.get_state())
            return draw(logits, temperatures, generators)

        def filled(rows: Any, generators: Any) -> Any:
            noise = fill(rows, generators)
            for generator in generators:
                if generator in states:
                    generator.set_state(states.pop(generator))
            return noise

        sampling.sample_drafts, flat.fill_with_noise = drawn, filled


class BaseOfTheTarget(CPURunner):
    """An Eagle3 head rotates by the target's base (vllm-ascend#6612)."""

    def _make_proposer(self, num_blocks: int) -> Any:
        load = base.load_eagle3

        def loaded(folder: Any, target: Any) -> Any:
            head = load(folder, target)
            head.config.rope_parameters = target.config.rope_parameters
            head.rotary_emb = type(head.rotary_emb)(head.config)
            return head

        base.load_eagle3 = loaded
        try:
            return super()._make_proposer(num_blocks)
        finally:
            base.load_eagle3 = load


class FieldsOfTheTop(CPURunner):
    """An Eagle3 head's layers are sought at the top of its configuration alone (RBLN-SW/vllm-rbln#831)."""

    def _make_proposer(self, num_blocks: int) -> Any:
        read = eagle3.read_config
        eagle3.read_config = lambda folder: {key: value for key, value in read(folder).items() if key != "eagle_config"}
        try:
            return super()._make_proposer(num_blocks)
        finally:
            eagle3.read_config = read


class WindowOfTheTarget(CPURunner):
    """A draft model has the window of its target, or none (vllm-project/speculators#684)."""

    def _load_model(self, folder: Path) -> Any:
        loaded = super()._load_model(folder)
        if folder == self.options.draft:
            window = getattr(self._model.config, "sliding_window", None)
            has_own = getattr(loaded.config, "sliding_window", None) is not None
            loaded.config.sliding_window = window
            if has_own:
                for layer in loaded.model.layers:
                    layer.self_attn.sliding_window = window
            else:
                loaded.forward = partial(loaded.forward, sliding_window=window)
        return loaded


class TopPFirst(CPURunner):
    """Trees are verified with top-p before top-k (sglang#36173)."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        limit = tree.apply_top_k_top_p

        def exchanged(logits: torch.Tensor, k: Any, p: Any, *, inplace: bool) -> torch.Tensor:
            own = logits.clone()
            limit(logits, None, p, inplace=inplace)
            limit(own, k, None, inplace=True)
            return logits.masked_fill_(own == float("-inf"), float("-inf"))

        tree.apply_top_k_top_p = exchanged


class OneEndIgnored(CPURunner):
    """`ignore_eos` ignores one end of sequence alone; the others are stop tokens (vllm#4589)."""

    def _admit(self, index: int, request: GenerationRequest) -> Any:
        if request.ignore_eos:
            others = sorted(self._eos_token_ids)[1:]
            request = replace(request, stop_token_ids=(*request.stop_token_ids, *others))
        return super()._admit(index, request)


samples_of_a_seed_below_zero = engine_with(SamplesOfASeedBelowZero)
started_beside_plain_ones = engine_with(StartedBesidePlainOnes)
top_k_before_the_grammar = processing(top_k_first)
drafts_of_cut_logits = engine_with(DraftsOfCutLogits)
rates_by_numbers_of_drafting = engine_with(RatesByNumbersOfDrafting)
base_of_the_target = engine_with(BaseOfTheTarget)
fields_of_the_top = engine_with(FieldsOfTheTop)
window_of_the_target = engine_with(WindowOfTheTarget)
top_p_first = engine_with(TopPFirst)
one_end_ignored = engine_with(OneEndIgnored)
