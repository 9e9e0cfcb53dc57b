"""Whole decode steps as graphs: target, verification and drafting in one launch.

A decode step of greedy requests needs three things: its tokens, the lengths and the blocks of its sequences. Every
request has a row of T = K + 1 tokens; after its last draft there are padding tokens, which no verification accepts. So
requests with fewer drafts, and steps that end requests, need no graphs of their own. A step that reads prompts to their
ends has padding tokens after each prompt, and yields one token of each request. Its drafter takes them for rejected
drafts.

Sampled requests, and synthetic verification, need the slot-indexed sampler, whose random numbers follow from seed and
position. The host sends the state of each request, where the device finds its temperature, limits and seed. The
numbers of packed batches come from generators, which no graph can take back after a step that is dropped.

The device does not wait for the host between steps. A graph leaves the tokens and lengths of the next step where it
read its own. So the next step is launched before this one is read, if all requests have room for it. It counts if the
host schedules what it computed. The rows of a request that has ended are dropped. They write to blocks that it had: the
next owner's tokens are launched later, and are written over them. Distributions of drawn drafts go to two states in
turn (`RequestStateSampling`), so that a dropped step writes over none that is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import torch
from torch import nn

from verispec.engines.protocol.generation import LoadOptions
from verispec.engines.protocol.speculation import AUTO
from verispec.reference.models.attention import PagedBatch
from verispec.reference.models.auxiliary import AuxiliaryStates
from verispec.reference.models.decode_graphs import RECORD_AT, GraphedModel, Recorder, recorded
from verispec.reference.models.kv_cache import NULL_BLOCK, KVCache
from verispec.reference.proposers.chain import ChainProposer
from verispec.reference.proposers.protocol import Proposer, VerifiedStep
from verispec.reference.sampler import ops
from verispec.reference.sampler.drafting import SeededDraw
from verispec.reference.sampler.fused import verify_greedy_rows
from verispec.reference.sampler.ops import PADDING_TOKEN
from verispec.reference.sampler.request_state import RequestRows, RequestStates

from .request import RequestState
from .sampling import RequestStateSampling, Sampling
from .scheduler import Scheduled
from .slots import slot_mapping
from .step_shapes import Shape, shape_of

SPARE_SLOTS = 64
"""Slots of the steps that are launched before the host has read the last one.

The device learns of new blocks only where no step is ahead. A step of K = 3 takes 2 to 3 of them, so that 20 follow.
"""


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
        vocab_size: number of tokens of the target's vocabulary.
        sampling: slot-indexed sampler of the runner; None for others, with which greedy steps alone are graphs.
        by_argmax: True if greedy requests are verified by argmax; synthetic verification needs the sampler for them.
    """

    forward: GraphedModel
    cache: KVCache
    proposer: ChainProposer | None
    aux: AuxiliaryStates | None
    record: Recorder
    block_size: int
    vocab_size: int
    sampling: RequestStateSampling | None = None
    by_argmax: bool = True
    _seen: dict[Shape, int] = field(default_factory=dict)
    _steps: dict[Shape, _Step] = field(default_factory=dict)
    _ahead: _Launched | None = None

    @classmethod
    def of(
        cls,
        forward: nn.Module,
        cache: KVCache,
        proposer: Proposer | None,
        aux: AuxiliaryStates | None,
        record: Recorder | None,
        options: LoadOptions,
        sampling: Sampling,
        vocab_size: int,
    ) -> Self | None:
        """Return the graphs of a runner; None where models run outside graphs, or a step needs more of the host."""
        if record is None or not isinstance(forward, GraphedModel):
            return None
        by_slots = sampling if isinstance(sampling, RequestStateSampling) else None
        by_argmax = options.rejection_sample_method != "synthetic"
        if options.num_speculative_tokens == AUTO or not (by_argmax or by_slots):
            return None
        if proposer is not None and not isinstance(proposer, ChainProposer):
            return None
        return cls(forward, cache, proposer, aux, record, options.block_size, vocab_size, by_slots, by_argmax)

    def run(self, scheduled: Sequence[Scheduled], drafts: int) -> tuple[list[list[int]], list[list[int]]] | None:
        """Run a step, if its shape recurs.

        Args:
            scheduled: the step.
            drafts: draft tokens that the proposer makes per request; 0 lets it read alone.

        Returns:
            Emitted tokens and next drafts of each request. None if nothing was run: the step has both prompts and
            drafts, or a part of a prompt, or a request that needs more than temperature and limits, or its shape is
            new.
        """
        ahead, self._ahead = self._ahead, None
        shape = shape_of(scheduled, drafts)
        if shape is None:
            return None
        states, requests = None, [part.request for part in scheduled]
        if not self.by_argmax or not all(request.plain for request in requests):
            if self.sampling is None:
                return None
            states = self.sampling.states(requests)
            limits = tuple(name for name in ("top_k", "top_p", "min_p") if getattr(states, name) is not None)
            draws = drafts > 0 and self.sampling.draws and not all(request.params.greedy for request in requests)
            shape = shape._replace(limits=limits, draws=draws)
        step = self._steps.get(shape)
        if step is None:
            self._seen[shape] = self._seen.get(shape, 0) + 1
            if self._seen[shape] < RECORD_AT:
                return None
            step = self._steps[shape] = _Step(self, shape, states)
        step.fill(scheduled)
        rows = None if ahead is None or ahead.step is not step else step.rows_of(ahead, scheduled)
        if ahead is None or rows is None:
            launched, rows = step.start(scheduled), list(range(len(scheduled)))
        else:
            launched = ahead
        if step.has_room(launched):
            self._ahead = step.launch(launched.requests, launched.blocks)
        emitted, following = step.read(launched, self._ahead)
        if shape.draws and self.sampling is not None:
            self.sampling.turn(requests)
        return [emitted[row] for row in rows], [following[row] for row in rows]

    def settle(self) -> None:
        """Drop the step that was launched ahead, and wait until the device has left it."""
        if self._ahead is not None:
            self._ahead.wait()
            self._ahead = None


@dataclass(eq=False, slots=True)
class _Launched:
    """A step on its way.

    Attributes:
        requests: requests of its first rows.
        blocks: [requests, blocks] int32 blocks of each request, and null blocks behind them.
        results: [padded requests, width + K] int32 in memory of the host.
        done: event behind the step; None where a launch waits for its end.
        inputs: [requests, 1 + T] int32 lengths and tokens; None until the step before it is read.
    """

    step: _Step
    requests: list[RequestState]
    blocks: np.ndarray
    results: torch.Tensor
    done: torch.cuda.Event | None
    inputs: np.ndarray | None = None

    def wait(self) -> None:
        """Wait for the results."""
        if self.done is not None:
            self.done.synchronize()


class _Step:
    """One graph with the memory of its inputs and outputs.

    Args:
        graphs: the runner's graphs.
        shape: shape of the step.
        states: sampling parameters of all slots, with the limits of the shape; None for greedy steps.
    """

    def __init__(self, graphs: StepGraphs, shape: Shape, states: RequestStates | None) -> None:
        self._graphs = graphs
        self._shape = shape
        self._states = states
        self._device = graphs.cache.layers[0].device
        blocks = -(-shape.keys // graphs.block_size)
        self._state = 1 + shape.tokens  # behind length and tokens
        self._first_block = self._state + (0 if states is None else 1)
        self._given = self._host((shape.requests, self._first_block + blocks))
        self._inputs = torch.zeros_like(self._given, device=self._device)
        # The host reads the results of one step while the device writes those of the next.
        results = (shape.requests, shape.width + shape.drafts)
        self._results = [self._host(results), self._host(results)]
        self._rows = self._given.numpy()
        self._outputs: tuple[torch.Tensor, ...] = ()
        self._compute: Callable[[], None] | None = None

    def _host(self, shape: tuple[int, int]) -> torch.Tensor:
        """Return int32 memory of the host that is copied without waiting."""
        return torch.zeros(shape, dtype=torch.int32, pin_memory=self._device.type == "cuda")

    def rows_of(self, ahead: _Launched, scheduled: Sequence[Scheduled]) -> list[int] | None:
        """Return the rows of the requests in a step launched ahead; None if it computed anything else."""
        places = {id(request): row for row, request in enumerate(ahead.requests)}
        rows = [places.get(id(part.request), -1) for part in scheduled]
        if -1 in rows or ahead.inputs is None:
            return None
        given = self._rows[: len(rows), : self._first_block]
        return rows if (given == ahead.inputs[rows]).all() else None

    def start(self, scheduled: Sequence[Scheduled]) -> _Launched:
        """Launch the step that `fill` wrote."""
        if self._compute is None:
            self._inputs.copy_(self._given)
            self._outputs, self._compute = recorded(self._graphs.record, self._step)
        self._inputs.copy_(self._given, non_blocking=True)
        given = self._rows[: len(scheduled)].copy()
        launched = self.launch([part.request for part in scheduled], given[:, self._first_block :])
        launched.inputs = given[:, : self._first_block]
        return launched

    def launch(self, requests: list[RequestState], blocks: np.ndarray) -> _Launched:
        """Launch a step from the inputs on the device: the host's rows, or those that the step before left."""
        assert self._compute is not None
        self._compute()
        self._results.reverse()
        self._results[0].copy_(self._outputs[0], non_blocking=True)
        done = None
        if self._device.type == "cuda":
            done = torch.cuda.Event()
            done.record()
        return _Launched(self, requests, blocks, self._results[0], done)

    def has_room(self, launched: _Launched) -> bool:
        """Return True if a further step can follow a launched one, whatever that accepts.

        No request may reach its maximum length, and the slots of both steps must be in blocks that the device knows.
        Steps after prompts have another shape.
        """
        assert launched.inputs is not None
        tokens, drafts = self._shape.tokens, self._shape.drafts
        if self._shape.width < tokens:
            return False
        if any(r.max_tokens - r.num_tokens <= tokens + drafts for r in launched.requests):
            return False
        slots = (launched.blocks != NULL_BLOCK).sum(axis=1) * self._graphs.block_size
        return bool((launched.inputs[:, 0] + 2 * tokens + 1 + drafts <= np.minimum(slots, self._shape.keys)).all())

    def read(self, launched: _Launched, ahead: _Launched | None) -> tuple[list[list[int]], list[list[int]]]:
        """Return emitted tokens and next drafts of each request, and note what a step launched ahead has read."""
        assert launched.inputs is not None
        launched.wait()
        results, width = launched.results.numpy()[: len(launched.requests)].copy(), self._shape.width
        counts = (results[:, :width] != PADDING_TOKEN).sum(axis=1)
        if ahead is not None:
            inputs = launched.inputs.copy()
            inputs[:, 1 : self._state] = PADDING_TOKEN
            inputs[:, 0] = launched.inputs[:, 0] + counts
            inputs[:, 1] = results[np.arange(len(results)), counts - 1]
            inputs[:, 2 : 2 + self._shape.drafts] = results[:, width:]
            if self._shape.draws:
                assert self._graphs.sampling is not None
                states = torch.from_numpy(inputs[:, self._state])
                inputs[:, self._state] = self._graphs.sampling.other(states).numpy()
            ahead.inputs = inputs
        emitted = [row[:count] for row, count in zip(results[:, :width].tolist(), counts.tolist(), strict=True)]
        return emitted, results[:, width:].tolist()

    def fill(self, scheduled: Sequence[Scheduled]) -> None:
        """Write each request's length, tokens, state and blocks; padding requests have only -1 and null blocks."""
        rows, first_block = self._rows, self._first_block
        columns = rows.shape[1] - first_block
        rows[:, 1:first_block] = PADDING_TOKEN  # the state of a padding request is -1 too
        rows[:, first_block:] = NULL_BLOCK
        rows[len(scheduled) :, 0] = 0
        for row, part in zip(rows, scheduled, strict=False):
            request, start = part.request, part.request.num_computed
            row[0] = start
            row[1 : 1 + part.num_tokens] = request.tokens[start : start + part.num_tokens]
            if self._graphs.sampling is not None and self._states is not None:
                row[self._state] = self._graphs.sampling.state_of(request)
            blocks = request.blocks[:columns]  # those behind are for drafts that this step does not make
            row[first_block : first_block + len(blocks)] = blocks

    def _step(self) -> tuple[torch.Tensor, ...]:
        """Run target, verification and drafting on the device; return the results and leave the next step's inputs."""
        graphs, (requests, tokens, width, keys, drafts, _, draws) = self._graphs, self._shape
        given, is_prompt = self._inputs, width < tokens
        token_rows, block_table = given[:, 1 : 1 + tokens], given[:, self._first_block :].contiguous()
        starts = torch.arange(requests + 1, dtype=torch.int32, device=self._device) * tokens
        computed = given[:, :1].to(torch.int64)
        positions = (computed + torch.arange(tokens, device=self._device)).view(-1)
        # The keys of padding tokens are written over before anything reads them, as those of rejected drafts are.
        slots = slot_mapping(starts, positions, block_table, graphs.block_size)
        query_lens = np.full(requests, tokens)
        known = torch.arange(1, requests + 1, dtype=torch.int32, device=self._device)
        if is_prompt:
            lengths = (token_rows != PADDING_TOKEN).sum(dim=1).clamp(min=1)
            known = lengths.cumsum(0).to(torch.int32)
        # Padding tokens count as tokens, so that each row's last token sees them all; nothing reads their results.
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
        token_ids = token_rows.reshape(-1)
        input_ids = token_ids.clamp(min=0)
        rows = (starts[:-1] + lengths - 1) if is_prompt else 0
        output = graphs.forward(
            input_ids=input_ids[None], position_ids=positions[None], logits_to_keep=rows, use_cache=False, paged=paged
        )
        verified, last = (token_ids[rows], positions[rows]) if is_prompt else (token_ids, positions)
        cu_num_logits = starts // tokens * width
        if self._states is None:
            sampled = verify_greedy_rows(output.logits[0], verified, cu_num_logits, width)
        else:
            sampled = self._sample(output.logits[0], verified, last, cu_num_logits)
        results = [sampled]
        if graphs.proposer is not None:
            step = VerifiedStep(
                token_ids=input_ids,
                positions=positions,
                query_lens=query_lens,
                query_start_loc=starts,
                block_table=block_table,
                aux_hidden_states=None if graphs.aux is None else graphs.aux.take()[0],
                cu_num_draft_tokens=starts[1:] - known,
                sampled_token_ids=sampled,
                discarded=torch.zeros(requests, dtype=torch.bool, device=self._device),
                backup_token_ids=torch.zeros_like(known),
                numbers=(),
                prompt_lens=(),
                sequences=(),
                context_lens=np.full(requests, keys - drafts),
                num_drafts=[drafts] * requests,
                draw=self._draw() if draws else None,
            )
            results.append(graphs.proposer.draft(step)[0].to(torch.int32))
        if not is_prompt:
            self._leave_next(results)
        return (torch.cat(results, dim=1),)

    def _sample(
        self, logits: torch.Tensor, token_ids: torch.Tensor, positions: torch.Tensor, cu_num_logits: torch.Tensor
    ) -> torch.Tensor:
        """Verify by the slots of the requests; return [requests, width] int32 as `verify_greedy_rows` does."""
        assert self._graphs.sampling is not None and self._states is not None
        requests, width, owners = self._shape.requests, self._shape.width, self._owners()
        rows = RequestRows(
            draft_sampled=token_ids,
            cu_num_logits=cu_num_logits,
            pos=positions,
            idx_mapping=owners,
            expanded_idx_mapping=owners.repeat_interleave(width),
            expanded_local_pos=torch.arange(width, dtype=torch.int32, device=self._device).repeat(requests),
            max_rows=width,
        )
        sampled = self._graphs.sampling.sample_rows(logits.float(), rows, self._states)
        sampled[:, 0].clamp_(min=0)  # the drafter needs a token of each request, and padding has none
        return sampled

    def _draw(self) -> SeededDraw:
        """Return the sampler of the next drafts."""
        sampling = self._graphs.sampling
        assert sampling is not None and self._states is not None
        return sampling.draft_rows(sampling.other(self._owners()), self._states)

    def _owners(self) -> torch.Tensor:
        """Return the state of each request, [requests] int32; -1 for padding."""
        return self._inputs[:, self._state].contiguous()

    def _leave_next(self, results: list[torch.Tensor]) -> None:
        """Overwrite lengths and tokens with those of the next step; padding requests stay empty."""
        requests, tokens, drafts = self._shape.requests, self._shape.tokens, self._shape.drafts
        sampled, given = results[0], self._inputs
        last = torch.empty(requests, dtype=torch.int32, device=self._device)
        counts = torch.empty_like(last)
        ops.run(
            "eagle_prepare_next_token_padded",
            self._device,
            sampled_token_ids_ptr=sampled,
            discard_request_mask_ptr=given[:, self._first_block] == NULL_BLOCK,
            backup_next_token_ids_ptr=torch.full_like(last, PADDING_TOKEN),
            next_token_ids_ptr=last,
            valid_sampled_tokens_count_ptr=counts,
            vocab_size=self._graphs.vocab_size,
            num_sampled_tokens_per_req=tokens,
            num_reqs=requests,
            stride_sampled_token_ids=sampled.stride(0),
            BLOCK_SIZE_TOKENS=1 << (tokens - 1).bit_length(),
        )
        unused = torch.full((requests, tokens - 1 - drafts), PADDING_TOKEN, dtype=torch.int32, device=self._device)
        following = [(given[:, 0] + counts)[:, None], last[:, None], *results[1:], unused]
        given[:, : self._state].copy_(torch.cat(following, dim=1))
        if self._shape.draws:
            assert self._graphs.sampling is not None
            given[:, self._state] = self._graphs.sampling.other(self._owners())
