"""Whole decode steps as graphs: target, verification and drafting in one launch.

A decode step of greedy requests needs three things from the host: its tokens, the lengths and the blocks of its
sequences. One copy takes them to the device, another brings the emitted tokens and the next drafts back, and both are
parts of the graph. Every request has a row of T = K + 1 tokens; after its last draft there are placeholders, which no
verification accepts. So requests with fewer drafts, and steps that end requests, need no graphs of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import nn

from verispec.engines.protocol.generation import LoadOptions
from verispec.engines.protocol.speculation import AUTO
from verispec.reference.models.attention import PagedBatch
from verispec.reference.models.auxiliary import AuxiliaryStates
from verispec.reference.models.decode_graphs import (
    FEWEST_KEYS,
    MOST_REQUESTS,
    MOST_TOKENS,
    RECORD_AT,
    GraphedModel,
    Recorder,
    power_of_two,
    recorded,
)
from verispec.reference.models.kv_cache import NULL_BLOCK, KVCache
from verispec.reference.proposers.chain import ChainProposer
from verispec.reference.proposers.protocol import Proposer, VerifiedStep
from verispec.reference.sampler.fused import verify_greedy_rows
from verispec.reference.sampler.ops import PLACEHOLDER

from .scheduler import Scheduled
from .slots import slot_mapping


class Shape(NamedTuple):
    """The shape that a graph is recorded for: requests and keys are rounded up."""

    requests: int
    tokens: int
    keys: int
    drafts: int


@dataclass(eq=False, slots=True)
class StepGraphs:
    """Recorded decode steps of a runner.

    Args:
        forward: the target.
        cache: its KV cache.
        proposer: proposer whose drafts belong to the step; None for steps without drafting.
        aux: auxiliary states that the proposer reads; None if it reads none.
        record: records a function of no arguments.
        block_size: tokens per block.
    """

    forward: GraphedModel
    cache: KVCache
    proposer: ChainProposer | None
    aux: AuxiliaryStates | None
    record: Recorder
    block_size: int
    _seen: dict[Shape, int] = field(default_factory=dict)
    _steps: dict[Shape, _Step] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        forward: nn.Module,
        cache: KVCache,
        proposer: Proposer | None,
        aux: AuxiliaryStates | None,
        record: Recorder | None,
        options: LoadOptions,
    ) -> Self | None:
        """Return the graphs of a runner; None where models run outside graphs, or a step needs more of the host."""
        if record is None or not isinstance(forward, GraphedModel):
            return None
        if options.num_speculative_tokens == AUTO or options.rejection_sample_method == "synthetic":
            return None
        if proposer is not None and not isinstance(proposer, ChainProposer):
            return None
        return cls(forward, cache, proposer, aux, record, options.block_size)

    def run(self, scheduled: Sequence[Scheduled], drafts: int) -> tuple[list[list[int]], list[list[int]]] | None:
        """Run a step, if its shape recurs.

        Args:
            scheduled: the step.
            drafts: draft tokens that the proposer makes per request; 0 lets it read alone.

        Returns:
            Emitted tokens and next drafts of each request. None if nothing was run: the step has a prompt, or another
            request that is not plain, or its shape is new.
        """
        tokens = max(drafts, *(part.num_drafts for part in scheduled)) + 1
        if len(scheduled) > MOST_REQUESTS or tokens > MOST_TOKENS or not all(map(_is_plain_decode, scheduled)):
            return None
        # Behind the longest sequence stand its drafts, the token after them, and the next drafts.
        keys = max(part.request.num_computed for part in scheduled) + tokens + 1 + drafts
        shape = Shape(power_of_two(len(scheduled)), tokens, max(FEWEST_KEYS, power_of_two(keys)), drafts)
        step = self._steps.get(shape)
        if step is None:
            self._seen[shape] = self._seen.get(shape, 0) + 1
            if self._seen[shape] < RECORD_AT:
                return None
            step = self._steps[shape] = _Step(self, shape)
        return step.run(scheduled)


def _is_plain_decode(part: Scheduled) -> bool:
    """Return True if the request verifies drafts or decodes one token, and wants the most likely tokens alone."""
    return part.samples and part.num_tokens == part.num_drafts + 1 and part.request.plain


class _Step:
    """One graph with the memory of its inputs and outputs."""

    def __init__(self, graphs: StepGraphs, shape: Shape) -> None:
        self._graphs = graphs
        self._shape = shape
        self._device = graphs.cache.layers[0].device
        blocks = -(-shape.keys // graphs.block_size)
        self._given = self._host((shape.requests, 1 + shape.tokens + blocks))
        self._results = self._host((shape.requests, shape.tokens + shape.drafts))
        self._rows, self._read = self._given.numpy(), self._results.numpy()
        self._compute: Callable[[], None] | None = None

    def _host(self, shape: tuple[int, int]) -> torch.Tensor:
        """Return int32 memory of the host that a graph can copy from and to."""
        return torch.zeros(shape, dtype=torch.int32, pin_memory=self._device.type == "cuda")

    def run(self, scheduled: Sequence[Scheduled]) -> tuple[list[list[int]], list[list[int]]]:
        self._fill(scheduled)
        if self._compute is None:
            _, self._compute = recorded(self._graphs.record, self._step)
        self._compute()
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()
        read, tokens = self._read[: len(scheduled)], self._shape.tokens
        counts = (read[:, :tokens] != PLACEHOLDER).sum(axis=1).tolist()
        emitted = [row[:count] for row, count in zip(read[:, :tokens].tolist(), counts, strict=True)]
        return emitted, read[:, tokens:].tolist()

    def _fill(self, scheduled: Sequence[Scheduled]) -> None:
        """Write each request's length, tokens and blocks; padding requests have placeholders and the null block."""
        rows, first_block = self._rows, 1 + self._shape.tokens
        columns = rows.shape[1] - first_block
        rows[:, 1:first_block] = PLACEHOLDER
        rows[:, first_block:] = NULL_BLOCK
        rows[len(scheduled) :, 0] = 0
        for row, part in zip(rows, scheduled, strict=False):
            request, start = part.request, part.request.num_computed
            row[0] = start
            row[1 : 1 + part.num_tokens] = request.tokens[start : start + part.num_tokens]
            blocks = request.blocks[:columns]  # those behind are for drafts that this step does not make
            row[first_block : first_block + len(blocks)] = blocks

    def _step(self) -> tuple[torch.Tensor, ...]:
        """Run target, verification and drafting on the device, from and to the memory of the host."""
        graphs, (requests, tokens, keys, drafts) = self._graphs, self._shape
        given = self._given.to(self._device, non_blocking=True)
        token_ids, block_table = given[:, 1 : 1 + tokens].reshape(-1), given[:, 1 + tokens :].contiguous()
        starts = torch.arange(requests + 1, dtype=torch.int32, device=self._device) * tokens
        computed = given[:, :1].to(torch.int64)
        positions = (computed + torch.arange(tokens, device=self._device)).view(-1)
        # The keys of placeholders are written over before anything reads them, as those of rejected drafts are.
        slots = slot_mapping(starts, positions, block_table, graphs.block_size)
        query_lens = np.full(requests, tokens)
        # Placeholders count as tokens, so that each row's last token sees them all; nothing reads what they see.
        seq_lens = (computed[:, 0] + tokens).to(torch.int32)
        paged = PagedBatch(
            graphs.cache,
            slots,
            positions,
            block_table,
            query_lens,
            starts,
            seq_lens,
            np.full(requests, keys),
            graphs.block_size,
        )
        input_ids = token_ids.clamp(min=0)
        output = graphs.forward(
            input_ids=input_ids[None], position_ids=positions[None], logits_to_keep=0, use_cache=False, paged=paged
        )
        sampled = verify_greedy_rows(output.logits[0], token_ids, starts, tokens)
        results = [sampled]
        if graphs.proposer is not None:
            index = torch.arange(1, requests + 1, dtype=torch.int32, device=self._device)
            step = VerifiedStep(
                token_ids=input_ids,
                positions=positions,
                query_lens=query_lens,
                query_start_loc=starts,
                block_table=block_table,
                aux_hidden_states=None if graphs.aux is None else graphs.aux.take()[0],
                cu_num_draft_tokens=index * (tokens - 1),
                sampled_token_ids=sampled,
                discarded=torch.zeros(requests, dtype=torch.bool, device=self._device),
                backup_token_ids=torch.zeros_like(index),
                numbers=(),
                prompt_lens=(),
                sequences=(),
                context_lens=np.full(requests, keys - drafts),
                num_drafts=[drafts] * requests,
                draw=None,
            )
            results.append(graphs.proposer.draft(step)[0].to(torch.int32))
        self._results.copy_(torch.cat(results, dim=1), non_blocking=True)
        return ()
