"""Runners that apply a request's parameters wrongly, as engines: ``--engine parameter_mutants:<name>``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from runner_mutants import Mutant, engine_with

from verispec.engines.protocol.generation import GenerationRequest, LoadOptions
from verispec.reference.runners import verification
from verispec.reference.runners.cpu import CPURunner
from verispec.reference.sampler import flat, processors, request_state
from verispec.reference.sampler.processors import TokenHistory, needs_processing, process_logits

Process = Callable[[torch.Tensor, Sequence[TokenHistory], Sequence[Sequence[int]]], None]


def processing(change: Process) -> Callable[[], Mutant]:
    """Return an engine whose rows are processed by `change`."""

    class Runner(CPURunner):
        __doc__ = change.__doc__

        def __init__(self, target: Path, options: LoadOptions) -> None:
            super().__init__(target, options)
            verification.process_logits = change

    Runner.__name__ = change.__name__
    return engine_with(Runner)


def each_row(
    logits: torch.Tensor,
    histories: Sequence[TokenHistory],
    drafts: Sequence[Sequence[int]],
    change: Callable[[torch.Tensor, TokenHistory, list[int], int, int], None],
) -> None:
    """Call `change` with each row, its request, the output with its draft prefix, its offset and its draft count."""
    row = 0
    for history, proposed in zip(histories, drafts, strict=True):
        for offset in range(len(proposed) + 1):
            output = [*history.output_token_ids, *proposed[:offset]]
            if needs_processing(history.params):
                change(logits[row + offset], history, output, offset, len(proposed))
        row += len(proposed) + 1


def without_draft_prefix(logits: torch.Tensor, histories: Any, drafts: Any) -> None:
    """Penalties, bad words and min_tokens look at the output before the step: drafts are forgotten."""
    each_row(
        logits,
        histories,
        drafts,
        lambda row, history, output, offset, count: processors._process_row(
            row, history, list(history.output_token_ids)
        ),
    )


def not_at_bonus(logits: torch.Tensor, histories: Any, drafts: Any) -> None:
    """The row after the last of several drafts is not processed."""

    def change(row: torch.Tensor, history: TokenHistory, output: list[int], offset: int, count: int) -> None:
        if not count or offset < count:
            processors._process_row(row, history, output)

    each_row(logits, histories, drafts, change)


def only_at_bonus(logits: torch.Tensor, histories: Any, drafts: Any) -> None:
    """Rows of drafts are not processed: accepted and recovered tokens ignore the parameters."""

    def change(row: torch.Tensor, history: TokenHistory, output: list[int], offset: int, count: int) -> None:
        if offset == count:
            processors._process_row(row, history, output)

    each_row(logits, histories, drafts, change)


def special_requests_first(logits: torch.Tensor, histories: Any, drafts: Any) -> None:
    """Requests with parameters are taken to be the first of the batch."""
    order = sorted(range(len(histories)), key=lambda i: not needs_processing(histories[i].params))
    process_logits(logits, [histories[i] for i in order], drafts)


def bad_word_prefix_off_by_one(logits: torch.Tensor, histories: Any, drafts: Any) -> None:
    """Bad words are compared with the tokens one before, where drafts are among them."""

    def change(row: torch.Tensor, history: TokenHistory, output: list[int], offset: int, count: int) -> None:
        processors._process_row(row, history, output[:-1] if offset else output)

    each_row(logits, histories, drafts, change)


def prompt_not_counted(logits: torch.Tensor, histories: Any, drafts: Any) -> None:
    """Repetition penalties do not see the prompt."""

    def change(row: torch.Tensor, history: TokenHistory, output: list[int], offset: int, count: int) -> None:
        params = replace(history.params, prompt_token_ids=tuple(output) or (history.params.prompt_token_ids[0],))
        processors._process_row(row, replace(history, params=params), output)

    each_row(logits, histories, drafts, change)


def rejected_drafts_counted(logits: torch.Tensor, histories: Any, drafts: Any) -> None:
    """Every row of a step counts all of its drafts as output, those after the row too."""
    totals = [[*history.output_token_ids, *proposed] for history, proposed in zip(histories, drafts, strict=True)]
    by_history = {id(history): total for history, total in zip(histories, totals, strict=True)}
    each_row(
        logits,
        histories,
        drafts,
        lambda row, history, output, offset, count: processors._process_row(row, history, by_history[id(history)]),
    )


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


forgets_drafts = processing(without_draft_prefix)
bonus_unprocessed = processing(not_at_bonus)
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
