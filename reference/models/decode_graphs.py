"""CUDA graphs of decode steps: one launch for a whole pass of a model, or for a chain of passes.

A small model's pass spends its time on launches. In a decode step every request has the same number of tokens, so that
few shapes occur: the number of requests and of keys, both rounded up, and the tokens per request. Each shape that
recurs is recorded once and replayed from then on. Other passes, such as prefills, run as they are.

Padding requests have the null block alone, so that their keys harm no request. Their rows are dropped from the result.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from .attention import PagedBatch
from .auxiliary import AuxiliaryStates
from .eagle3 import Eagle3Head
from .fused import FusedHead, FusedMTPHead
from .kv_cache import NULL_BLOCK, PAD_SLOT
from .mtp import MTPHead

Run = Callable[[Mapping[str, torch.Tensor], PagedBatch], tuple[torch.Tensor, ...]]
Recorder = Callable[[Callable[[], tuple[torch.Tensor, ...]]], tuple[tuple[torch.Tensor, ...], Callable[[], None]]]

RECORD_AT = 4
"""Passes of a shape before it is recorded: a recording costs about as much as ten passes."""
FEWEST_KEYS = 128
MOST_REQUESTS = 512
MOST_TOKENS = 16
"""Tokens per request of the longest pass that is recorded: a step with many drafts, no prefill."""


class Output(NamedTuple):
    """Output of `GraphedModel`: [1, rows, V] logits."""

    logits: torch.Tensor


def record_cuda_graph(
    run: Callable[[], tuple[torch.Tensor, ...]],
) -> tuple[tuple[torch.Tensor, ...], Callable[[], None]]:
    """Record `run` as a CUDA graph.

    Returns:
        The tensors that `run` returned, and a function that computes them again.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run()  # libraries allocate their workspaces in a first run, which a recording forbids
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    # A recording may become invalid if CUDA's objects are freed meanwhile; those of an old runner are cyclic garbage.
    collects = gc.isenabled()
    gc.disable()
    try:
        with torch.cuda.graph(graph):
            outputs = run()
    finally:
        if collects:
            gc.enable()
    return outputs, graph.replay


def recorded(
    record: Recorder, run: Callable[[], tuple[torch.Tensor, ...]]
) -> tuple[tuple[torch.Tensor, ...], Callable[[], None]]:
    """Record `run` by `record`, the passes of models inside as parts of the same graph."""
    DecodeGraphs.recording = True
    try:
        return record(run)
    finally:
        DecodeGraphs.recording = False


Shape = tuple[int | str, ...]


class DecodeGraphs:
    """The recorded passes of one model, or the recorded chains of its passes.

    Args:
        record: records a function of no arguments; None runs every pass as it is.
    """

    recording = False
    """True while a graph is recorded; passes inside become part of it."""

    def __init__(self, record: Recorder | None = record_cuda_graph) -> None:
        self._record = record
        self._seen: dict[Shape, int] = {}
        self._recordings: dict[Shape, _Recording] = {}

    def __call__(self, run: Run, tensors: Mapping[str, torch.Tensor], paged: PagedBatch) -> tuple[torch.Tensor, ...]:
        """Run one pass, replayed where its shape was recorded.

        The next pass of the same shape overwrites the results.

        Args:
            run: computes a pass from `tensors` and `paged`; each result has the same number of rows per request. What
                it reads besides them must stay in place and be the same for all calls with these names of tensors.
            tensors: tensors by name, each with the same number of rows per request. Those of slots, named idx_mapping,
                get -1 for padding.
            paged: batch of the pass.
        """
        shape = None if self._record is None or DecodeGraphs.recording else _shape(tensors, paged)
        if self._record is None or shape is None:
            return run(tensors, paged)
        recording = self._recordings.get(shape)
        if recording is None:
            self._seen[shape] = self._seen.get(shape, 0) + 1
            if self._seen[shape] < RECORD_AT:
                return run(tensors, paged)
            recording = self._recordings[shape] = _Recording(tensors, paged, shape, run, self._record)
        return recording.replay(tensors, paged)


def _shape(tensors: Mapping[str, torch.Tensor], paged: PagedBatch) -> Shape | None:
    """Return padded requests, tokens per request, padded keys, and names and rows per request of the tensors.

    None if the pass is not a decode step: the requests differ in their number of tokens or rows.
    """
    requests, tokens = len(paged.query_lens), int(paged.query_lens[0])
    uneven = any(tensor.shape[0] % requests for tensor in tensors.values())
    if uneven or requests > MOST_REQUESTS or tokens > MOST_TOKENS or (paged.query_lens != tokens).any():
        return None
    rows = [part for name, tensor in tensors.items() for part in (name, tensor.shape[0] // requests)]
    return power_of_two(requests), tokens, max(FEWEST_KEYS, power_of_two(int(paged.max_seq_lens.max()))), *rows


def power_of_two(count: int) -> int:
    """Return the least power of two that is at least `count`."""
    return 1 << (count - 1).bit_length()


class _Recording:
    """One recorded shape with the memory of its inputs."""

    def __init__(
        self,
        tensors: Mapping[str, torch.Tensor],
        paged: PagedBatch,
        shape: Shape,
        run: Run,
        record: Recorder,
    ) -> None:
        self._requests, tokens, keys = (int(part) for part in shape[:3])
        device, requests = paged.positions.device, len(paged.query_lens)
        self._tensors = {
            name: tensor.new_zeros((self._requests * tensor.shape[0] // requests, *tensor.shape[1:]))
            for name, tensor in tensors.items()
        }
        self._slots = torch.full((self._requests * tokens,), PAD_SLOT, dtype=torch.int64, device=device)
        self._positions = torch.zeros_like(self._slots)
        self._seq_lens = torch.zeros(self._requests, dtype=torch.int32, device=device)
        blocks = -(-keys // paged.block_size)
        self._block_table = torch.zeros((self._requests, blocks), dtype=torch.int32, device=device)
        # A graph reads addresses and keeps no tensor alive, so that all that it reads are attributes.
        self._starts = torch.arange(self._requests + 1, dtype=torch.int32, device=device) * tokens

        def run_padded() -> tuple[torch.Tensor, ...]:
            # A batch keeps what it computes, so that each run needs a new one.
            batch = PagedBatch(
                paged.cache,
                self._slots,
                self._positions,
                self._block_table,
                np.full(self._requests, tokens),
                self._starts,
                self._seq_lens,
                np.full(self._requests, keys),
                paged.block_size,
            )
            return run(self._tensors, batch)

        self._fill(tensors, paged)
        self._outputs, self._compute = recorded(record, run_padded)

    def replay(self, tensors: Mapping[str, torch.Tensor], paged: PagedBatch) -> tuple[torch.Tensor, ...]:
        """Compute the pass of these inputs and return the rows of its requests."""
        self._fill(tensors, paged)
        self._compute()
        requests = len(paged.query_lens)
        return tuple(output[: len(output) // self._requests * requests] for output in self._outputs)

    def _fill(self, tensors: Mapping[str, torch.Tensor], paged: PagedBatch) -> None:
        """Copy the inputs; of padding only the fields that decide its writes matter."""
        for name, tensor in tensors.items():
            self._tensors[name][: len(tensor)].copy_(tensor)
            if name == "idx_mapping":
                self._tensors[name][len(tensor) :].fill_(-1)
        tokens = len(paged.slot_mapping)
        self._slots[:tokens].copy_(paged.slot_mapping)
        self._slots[tokens:].fill_(PAD_SLOT)
        self._positions[:tokens].copy_(paged.positions)
        self._seq_lens[: len(paged.seq_lens)].copy_(paged.seq_lens)
        requests, blocks = paged.block_table.shape
        blocks = min(blocks, self._block_table.shape[1])
        self._block_table.fill_(NULL_BLOCK)
        self._block_table[:requests, :blocks].copy_(paged.block_table[:, :blocks])


class GraphedModel(nn.Module):
    """A model whose decode passes are replayed.

    Args:
        model: model with ``verispec_paged`` attention, or its fused form.
        record: argument of `DecodeGraphs`.
    """

    def __init__(self, model: nn.Module, record: Recorder = record_cuda_graph) -> None:
        super().__init__()
        self._wrapped = model
        self._aux: AuxiliaryStates | None = None
        self._graphs = DecodeGraphs(record)

    @property
    def model(self) -> Any:
        """The decoder, whose layers `AuxiliaryStates` watches."""
        return self._wrapped.model

    def watch(self, aux: AuxiliaryStates) -> None:
        """Hand the auxiliary states of replayed passes to `aux`; no Python code sees them there."""
        self._aux = aux

    def forward(
        self,
        *,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        logits_to_keep: int | torch.Tensor,
        use_cache: bool,
        paged: PagedBatch,
    ) -> Output:
        """Run one pass of [1, T] tokens; see `paged_attention`."""
        tensors = {"input_ids": input_ids[0], "position_ids": position_ids[0]}
        if isinstance(logits_to_keep, torch.Tensor):
            tensors["logits_to_keep"] = logits_to_keep
        logits, *states = self._graphs(self._pass, tensors, paged)
        if self._aux is not None:
            self._aux.put(states)
        return Output(logits[None])

    def _pass(self, tensors: Mapping[str, torch.Tensor], paged: PagedBatch) -> tuple[torch.Tensor, ...]:
        output = self._wrapped(
            input_ids=tensors["input_ids"][None],
            position_ids=tensors["position_ids"][None],
            logits_to_keep=tensors.get("logits_to_keep", 0),
            use_cache=False,
            paged=paged,
        )
        return output.logits[0], *(() if self._aux is None else self._aux.latest())


class GraphedHead:
    """A head whose decode passes are replayed; the other methods are the head's own.

    Args:
        head: head with ``verispec_paged`` attention, or its fused form.
        record: argument of `DecodeGraphs`.
    """

    def __init__(
        self, head: Eagle3Head | MTPHead | FusedHead | FusedMTPHead, record: Recorder = record_cuda_graph
    ) -> None:
        self._head = head
        self.combine = head.combine
        self.logits = head.logits
        self.to_target = head.to_target
        self.target_logits = head.target_logits
        self._graphs = DecodeGraphs(record)

    def __call__(
        self, input_ids: torch.Tensor, hidden: torch.Tensor, position_ids: torch.Tensor, *, paged: PagedBatch
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run the layer over [1, T] rows."""
        tensors = {"input_ids": input_ids[0], "hidden": hidden[0], "position_ids": position_ids[0]}
        normed, following = self._graphs(self._pass, tensors, paged)
        return normed[None], following[None]

    def _pass(self, tensors: Mapping[str, torch.Tensor], paged: PagedBatch) -> tuple[torch.Tensor, ...]:
        ids, hidden, positions = (tensors[name][None] for name in ("input_ids", "hidden", "position_ids"))
        return tuple(states[0] for states in self._head(ids, hidden, positions, paged=paged))
