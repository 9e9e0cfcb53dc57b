"""The tokens of a step as one flat batch, and the log-probabilities of prompts that pass through it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from verispec.reference.models.attention import PagedBatch, TreeQueries
from verispec.reference.models.kv_cache import NULL_BLOCK, KVCache
from verispec.reference.proposers.protocol import DrawDrafts, VerifiedStep
from verispec.reference.proposers.tree import DraftTree
from verispec.reference.sampler.logprobs import row_logprobs, token_logprobs
from verispec.reference.sampler.ops import PADDING_TOKEN

from .request import RequestState
from .scheduler import Scheduled
from .slots import slot_mapping
from .verification import Verified


@dataclass(frozen=True, slots=True)
class StepInputs:
    """The flattened tokens of a step; see `VerifiedStep` for the fields of the same name.

    `position_ids` are `positions`, but for nodes of a draft tree, which have places of their own after the sequence and
    the position of their depth.

    `logit_rows` are the rows that the target's logits are wanted of: `num_sample_rows` to sample from, then those of
    prompts whose log-probabilities are wanted.
    """

    token_ids: torch.Tensor
    positions: torch.Tensor
    position_ids: torch.Tensor
    query_lens: np.ndarray
    query_start_loc: torch.Tensor
    block_table: torch.Tensor
    paged: PagedBatch
    logit_rows: torch.Tensor
    num_sample_rows: int


def flatten_step(
    scheduled: Sequence[Scheduled],
    cache: KVCache,
    block_size: int,
    upload: Callable[[np.ndarray], torch.Tensor],
    tree: DraftTree | None = None,
) -> StepInputs:
    """Return the inputs of a step: chunks of prompts, single tokens, and tokens with drafts after them.

    Args:
        scheduled: the step.
        cache: KV cache of the target.
        block_size: tokens per block.
        upload: function that returns a tensor of an array on the runner's device.
        tree: shape of the drafts; None for chains.
    """
    requests = [part.request for part in scheduled]
    lens = np.array([part.num_tokens for part in scheduled])
    computed = np.array([request.num_computed for request in requests])
    ends = np.cumsum(lens)
    positions = np.arange(ends[-1]) + np.repeat(computed - (ends - lens), lens)
    token_ids = np.concatenate(
        [part.request.tokens[part.request.num_computed :][: part.num_tokens] for part in scheduled]
    )
    samples = [
        np.arange(end - part.num_drafts - 1, end)
        for part, end in zip(scheduled, ends.tolist(), strict=True)
        if part.samples
    ]
    prompts = [
        end - part.num_tokens - part.request.num_computed + np.array(prompt_positions(part), dtype=np.int64)
        for part, end in zip(scheduled, ends.tolist(), strict=True)
    ]
    query_start_loc = upload(np.concatenate(([0], ends)).astype(np.int32))
    table = upload(block_table(requests))
    device_positions = position_ids = upload(positions)
    queries = None
    if tree is not None:
        depths = positions.copy()
        roots = np.array([part.request.num_tokens - 1 if part.num_drafts else -1 for part in scheduled])
        for part, end in zip(scheduled, ends.tolist(), strict=True):
            nodes = np.arange(part.num_drafts + 1)
            depths[end - len(nodes) : end] += tree.depths[nodes] - nodes
        position_ids = upload(depths)
        queries = TreeQueries(upload(roots), upload(tree.sees), position_ids)
    seq_lens = computed + lens
    return StepInputs(
        token_ids=upload(token_ids.astype(np.int32)),
        positions=device_positions,
        position_ids=position_ids,
        query_lens=lens,
        query_start_loc=query_start_loc,
        block_table=table,
        paged=PagedBatch(
            cache,
            slot_mapping(query_start_loc, device_positions, table, block_size),
            device_positions,
            table,
            lens,
            query_start_loc,
            upload(seq_lens.astype(np.int32)),
            seq_lens,
            block_size,
            queries,
        ),
        logit_rows=upload(np.concatenate([*samples, *prompts, np.zeros(0, dtype=np.int64)])),
        num_sample_rows=sum(map(len, samples)),
    )


def block_table(requests: Sequence[RequestState]) -> np.ndarray:
    """Return the blocks of each request, [B, blocks] int32; after its last one, the null block."""
    table = np.full((len(requests), max(len(request.blocks) for request in requests)), NULL_BLOCK, dtype=np.int32)
    for row, request in enumerate(requests):
        table[row, : len(request.blocks)] = request.blocks
    return table


def verified_step(
    scheduled: Sequence[Scheduled],
    inputs: StepInputs,
    verified: Verified | None,
    states: torch.Tensor | None,
    num_drafts: Sequence[int],
    draw: DrawDrafts | None,
    upload: Callable[[np.ndarray], torch.Tensor],
) -> VerifiedStep:
    """Return a step for the proposer: all of its rows, those of rejected drafts included.

    Args:
        scheduled: the step, after its tokens were emitted.
        inputs: its inputs.
        verified: its verification; None if nothing was sampled.
        states: [T, .] auxiliary states of the target; None for proposers that read none.
        num_drafts: drafts that each request can use.
        draw: function that draws the drafts.
        upload: function that returns a tensor of an array on the runner's device.
    """
    requests = [part.request for part in scheduled]
    samples = np.array([part.samples for part in scheduled])
    discarded = upload(~samples)
    if verified is None:
        sampled = torch.full((len(requests), 1), PADDING_TOKEN, dtype=torch.int32, device=discarded.device)
    elif samples.all():
        sampled = verified.token_ids
    else:
        sampled = verified.token_ids.new_full((len(requests), verified.token_ids.shape[1]), PADDING_TOKEN)
        sampled[~discarded] = verified.token_ids
    context_lens = [
        r.num_tokens if part.samples else r.num_computed + 1 for r, part in zip(requests, scheduled, strict=True)
    ]
    return VerifiedStep(
        token_ids=inputs.token_ids,
        positions=inputs.positions,
        query_lens=inputs.query_lens,
        query_start_loc=inputs.query_start_loc,
        block_table=inputs.block_table,
        aux_hidden_states=states,
        cu_num_draft_tokens=upload(np.cumsum([part.num_drafts for part in scheduled], dtype=np.int32)),
        sampled_token_ids=sampled,
        discarded=discarded,
        backup_token_ids=upload(np.array([r.tokens[r.num_computed] for r in requests], dtype=np.int32)),
        numbers=[r.number for r in requests],
        prompt_lens=[r.num_prompt_tokens for r in requests],
        sequences=[r.tokens[: r.num_tokens] for r in requests],
        context_lens=np.array(context_lens),
        num_drafts=num_drafts,
        draw=draw,
    )


def prompt_positions(part: Scheduled) -> range:
    """Return the positions of this step whose next prompt token wants a log-probability and has none yet."""
    request = part.request
    if request.params.prompt_logprobs is None:
        return range(0)
    start = max(request.num_computed, len(request.prompt_logprobs) - 1)
    return range(start, min(request.num_computed + part.num_tokens, request.num_prompt_tokens - 1))


def record_prompt_logprobs(scheduled: Sequence[Scheduled], logits: torch.Tensor) -> None:
    """Append the log-probabilities of prompt tokens to their requests; the first token of a prompt has none.

    Args:
        scheduled: the step, before its tokens count as computed.
        logits: [rows of `prompt_positions`, V] of the target.
    """
    start = 0
    for part in scheduled:
        positions, request = prompt_positions(part), part.request
        if positions:
            following = torch.from_numpy(request.tokens[positions.start + 1 : positions.stop + 1]).to(logits.device)
            rows = row_logprobs(logits[start : start + len(positions)], following, request.params.prompt_logprobs or 0)
            request.prompt_logprobs.extend(token_logprobs(*rows))
        start += len(positions)
