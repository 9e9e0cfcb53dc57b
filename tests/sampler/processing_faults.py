"""Faults in how logits processors meet drafts, as replacements of the reference's `process_logits`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from verispec.reference.sampler.processors import TokenHistory, needs_processing, process_logits

Process = Callable[[torch.Tensor, Sequence[TokenHistory], Sequence[Sequence[int]]], None]


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


def process_row(row: torch.Tensor, history: TokenHistory, output: Sequence[int]) -> None:
    """Apply the processors of `history` to one row that follows `output`."""
    process_logits(row[None], [replace(history, output_token_ids=output, allowed_rows=None)], [()])


def without_draft_prefix(logits: torch.Tensor, histories: Any, drafts: Any) -> None:
    """Penalties, bad words and min_tokens look at the output before the step: drafts are forgotten."""
    each_row(
        logits,
        histories,
        drafts,
        lambda row, history, output, offset, count: process_row(row, history, list(history.output_token_ids)),
    )


def not_at_bonus(logits: torch.Tensor, histories: Any, drafts: Any) -> None:
    """The row after the last of several drafts is not processed."""

    def change(row: torch.Tensor, history: TokenHistory, output: list[int], offset: int, count: int) -> None:
        if not count or offset < count:
            process_row(row, history, output)

    each_row(logits, histories, drafts, change)


def only_at_bonus(logits: torch.Tensor, histories: Any, drafts: Any) -> None:
    """Rows of drafts are not processed: accepted and recovered tokens ignore the parameters."""

    def change(row: torch.Tensor, history: TokenHistory, output: list[int], offset: int, count: int) -> None:
        if offset == count:
            process_row(row, history, output)

    each_row(logits, histories, drafts, change)


def special_requests_first(logits: torch.Tensor, histories: Any, drafts: Any) -> None:
    """Requests with parameters are taken to be the first of the batch."""
    order = sorted(range(len(histories)), key=lambda i: not needs_processing(histories[i].params))
    process_logits(logits, [histories[i] for i in order], drafts)


def grammars_mask_neighbours(logits: torch.Tensor, histories: Any, drafts: Any) -> None:
    """Beside a grammar, rows of requests without one are masked whole (vllm#22896)."""
    process_logits(logits, histories, drafts)
    if any(history.allowed_rows is not None for history in histories):
        row = 0
        for history, proposed in zip(histories, drafts, strict=True):
            if history.allowed_rows is None:
                logits[row : row + len(proposed) + 1] = float("-inf")
            row += len(proposed) + 1


def first_row_of_the_next(logits: torch.Tensor, histories: Any, drafts: Any) -> None:
    """The first row of a request is processed as those of the request before it too."""
    row, before = 0, None
    for history, proposed in zip(histories, drafts, strict=True):
        if before is not None and needs_processing(before.params) and not needs_processing(history.params):
            process_row(logits[row], before, before.output_token_ids)
        row, before = row + len(proposed) + 1, history
    process_logits(logits, histories, drafts)


def bad_word_prefix_off_by_one(logits: torch.Tensor, histories: Any, drafts: Any) -> None:
    """Bad words are compared with the tokens one before, where drafts are among them."""

    def change(row: torch.Tensor, history: TokenHistory, output: list[int], offset: int, count: int) -> None:
        process_row(row, history, output[:-1] if offset else output)

    each_row(logits, histories, drafts, change)


def prompt_not_counted(logits: torch.Tensor, histories: Any, drafts: Any) -> None:
    """Repetition penalties do not see the prompt."""

    def change(row: torch.Tensor, history: TokenHistory, output: list[int], offset: int, count: int) -> None:
        params = replace(history.params, prompt_token_ids=tuple(output) or (history.params.prompt_token_ids[0],))
        process_row(row, replace(history, params=params), output)

    each_row(logits, histories, drafts, change)


def rejected_drafts_counted(logits: torch.Tensor, histories: Any, drafts: Any) -> None:
    """Every row of a step counts all of its drafts as output, those after the row too."""
    totals = [[*history.output_token_ids, *proposed] for history, proposed in zip(histories, drafts, strict=True)]
    by_history = {id(history): total for history, total in zip(histories, totals, strict=True)}
    each_row(
        logits,
        histories,
        drafts,
        lambda row, history, output, offset, count: process_row(row, history, by_history[id(history)]),
    )


def limit_of_the_step_at_bonus(logits: torch.Tensor, histories: Any, drafts: Any) -> None:
    """The bonus row sees `min_tokens` as it was before the step (seen in vllm 0.32.0)."""

    def change(row: torch.Tensor, history: TokenHistory, output: list[int], offset: int, count: int) -> None:
        process_row(row, history, output)
        if offset == count and len(history.output_token_ids) < history.params.min_tokens:
            row[list(history.stop_token_ids)] = float("-inf")

    each_row(logits, histories, drafts, change)


def grammar_of_the_next_row(logits: torch.Tensor, histories: Any, drafts: Any) -> None:
    """The grammar is advanced one draft too far."""
    process_logits(logits, [_with_rows(history, lambda rows: rows.roll(-1, 0)) for history in histories], drafts)


def grammar_of_the_step(logits: torch.Tensor, histories: Any, drafts: Any) -> None:
    """The grammar is not advanced along the drafts."""
    process_logits(
        logits, [_with_rows(history, lambda rows: rows[:1].expand_as(rows)) for history in histories], drafts
    )


def _with_rows(history: TokenHistory, change: Callable[[torch.Tensor], torch.Tensor]) -> TokenHistory:
    return history if history.allowed_rows is None else replace(history, allowed_rows=change(history.allowed_rows))
