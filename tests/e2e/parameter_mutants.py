"""Runners that apply a request's parameters wrongly, as engines: ``--engine parameter_mutants:<name>``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from processing_faults import (
    Process,
    bad_word_prefix_off_by_one,
    first_row_of_the_next,
    grammar_of_the_step,
    grammars_mask_neighbours,
    not_at_bonus,
    only_at_bonus,
    prompt_not_counted,
    rejected_drafts_counted,
    special_requests_first,
    without_draft_prefix,
)
from runner_mutants import Mutant, engine_with

from verispec.engines.protocol.generation import GenerationRequest, LoadOptions
from verispec.reference.runners import verification
from verispec.reference.runners.cpu import CPURunner
from verispec.reference.runners.request import RequestState
from verispec.reference.sampler import flat, request_state


def processing(change: Process) -> Callable[[], Mutant]:
    """Return an engine whose rows are processed by `change`."""

    class Runner(CPURunner):
        __doc__ = change.__doc__

        def __init__(self, target: Path, options: LoadOptions) -> None:
            super().__init__(target, options)
            verification.process_logits = change

    Runner.__name__ = change.__name__
    return engine_with(Runner)


def changing(**fields: Callable[[GenerationRequest], Any]) -> Callable[[], Mutant]:
    """Return an engine that takes other values of a request's fields."""

    class Runner(CPURunner):
        def _admit(self, index: int, request: GenerationRequest) -> Any:
            return super()._admit(index, replace(request, **{name: value(request) for name, value in fields.items()}))

    return engine_with(Runner)


class MinPOfBonusOnly(CPURunner):
    """Min-p is applied to the row of the bonus token alone."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        original = flat.FlatSampler._constrain

        def constrain(sampler: Any, logits: torch.Tensor, drafts: Any, params: Any) -> None:
            bonus = drafts.rows(logits.device)[1]
            rows = logits.clone()
            original(sampler, rows, drafts, params)
            original(sampler, logits, drafts, replace(params, min_p=None))
            logits[bonus] = rows[bonus]

        flat.FlatSampler._constrain = constrain


class MinPAfterTopP(CPURunner):
    """Min-p comes after top-k and top-p."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        for module in (flat, request_state):
            mask, cut = module.mask_below_min_p, module.apply_top_k_top_p
            waiting: list[Any] = []
            module.mask_below_min_p = lambda logits, min_p, waiting=waiting: waiting.append(min_p)

            def after(
                logits: torch.Tensor, k: Any, p: Any, *, inplace: bool, cut=cut, mask=mask, waiting=waiting
            ) -> Any:
                cut(logits, k, p, inplace=inplace)
                if waiting:
                    mask(logits, waiting.pop())

            module.apply_top_k_top_p = after


@dataclass(frozen=True)
class Forgiving:
    """A grammar that stays where it is at a token that it does not allow, so that a fault shows in the text."""

    grammar: Any

    def start(self) -> Any:
        return self.grammar.start()

    def allowed(self, state: Any) -> Any:
        return self.grammar.allowed(state)

    def advance(self, state: Any, token_id: int) -> Any:
        return self.grammar.advance(state, token_id) if token_id in self.grammar.allowed(state) else state


class GrammarAtStartOfStep(CPURunner):
    """All rows of a step have the grammar's state before its drafts."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        verification.process_logits = grammar_of_the_step

    def _admit(self, index: int, request: GenerationRequest) -> Any:
        grammar = request.grammar and Forgiving(request.grammar)
        return super()._admit(index, replace(request, grammar=grammar))


class GrammarNotRolledBack(CPURunner):
    """The grammar's state follows the drafts and stays there after a rejection."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        rows, emit = RequestState.grammar_rows, RequestState.emit

        def followed(request: RequestState, drafts: Any, vocab_size: int) -> Any:
            allowed, grammar = rows(request, drafts, vocab_size), request.params.grammar
            ahead = request.grammar_state
            for draft in drafts if grammar else ():
                if draft not in grammar.allowed(ahead):
                    break
                ahead = grammar.advance(ahead, draft)
            request.grammar_state = ahead
            return allowed

        def kept(request: RequestState, sampled: list[int], drafted: int) -> int:
            ahead, request.grammar_state = request.grammar_state, None
            params, request.params = request.params, replace(request.params, grammar=None)
            emitted = emit(request, sampled, drafted)
            request.params, request.grammar_state = params, ahead
            if params.grammar and sampled[-1] in params.grammar.allowed(ahead):
                request.grammar_state = params.grammar.advance(ahead, sampled[-1])
            return emitted

        RequestState.grammar_rows, RequestState.emit = followed, kept


grammar_at_start_of_step = engine_with(GrammarAtStartOfStep)
grammar_not_rolled_back = engine_with(GrammarNotRolledBack)
forgets_drafts = processing(without_draft_prefix)
bonus_unprocessed = processing(not_at_bonus)
next_processed = processing(first_row_of_the_next)
neighbours_masked = processing(grammars_mask_neighbours)
drafts_unprocessed = processing(only_at_bonus)
special_first = processing(special_requests_first)
bad_words_off_by_one = processing(bad_word_prefix_off_by_one)
prompt_forgotten = processing(prompt_not_counted)
all_drafts_counted = processing(rejected_drafts_counted)
min_p_of_bonus_only = engine_with(MinPOfBonusOnly)
min_p_after_top_p = engine_with(MinPAfterTopP)
allowed_ids_ignored = changing(allowed_token_ids=lambda request: ())
top_k_ignored = changing(top_k=lambda request: 0)
top_p_ignored = changing(top_p=lambda request: 1.0)
one_stop_token = changing(stop_token_ids=lambda request: request.stop_token_ids[:1])
