"""One rank of a runner with tensor parallelism: the whole runner, with a part of the target's weights.

Every rank schedules, samples and drafts for itself. After each step the ranks compare what they emitted and drafted: a
difference would soon have them wait for each other in different collectives.
"""

from __future__ import annotations

import importlib
import pickle
import traceback
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from transformers import PreTrainedModel

from verispec.engines.protocol.generation import LoadOptions, OnEmit
from verispec.errors import VerispecError, describe_exception
from verispec.reference.models.attention import ATTENTION
from verispec.reference.models.kv_cache import KVCache
from verispec.reference.models.sharding import shard
from verispec.reference.models.target import load_target
from verispec.run.process_tree import die_with_parent

from .base import BaseRunner
from .scheduler import Scheduled

COLLECTIVE_TIMEOUT = timedelta(minutes=5)
"""Time after which a rank that waits for another gives up, if it has not been ended before."""


Outcome = tuple[int, int, list[int]]
"""A request after a step: its index, its length, and its last tokens with its drafts behind them."""


class RankMixin(BaseRunner):
    """The difference between a rank and a runner of its own."""

    def _load_model(self, folder: Path) -> PreTrainedModel:
        if folder != self._target:  # a draft model is small: each rank has it whole
            return super()._load_model(folder)
        model = load_target(folder, self._dtype, self.device)
        shard(model, dist.get_rank(), dist.get_world_size())
        model.set_attn_implementation(ATTENTION)
        return model

    def _callable(self, model: PreTrainedModel) -> nn.Module:
        return model if model is self._model else super()._callable(model)  # type: ignore[safe-super]

    def _make_cache(self, model: PreTrainedModel, num_blocks: int) -> KVCache:
        ranks = dist.get_world_size() if model is self._model else 1
        slots = num_blocks * self.options.block_size
        return KVCache(model.config, model.config.num_hidden_layers, slots, self._dtype, self.device, ranks)

    def step(self, on_emit: OnEmit | None = None) -> None:
        """Run one step, and require that every rank had the same outcome.

        Raises:
            VerispecError: V-RANK-DISAGREE on every rank.
        """
        super().step(on_emit)
        require_agreement(self.outcome)

    def _advance(self, scheduled: Sequence[Scheduled], *rest: Any) -> None:
        super()._advance(scheduled, *rest)
        self._stepped = [part.request for part in scheduled]

    @property
    def outcome(self) -> list[Outcome]:
        """Return the state of each request after the last step."""
        new = self.options.max_drafts + 1
        return [
            (r.index, r.num_tokens, r.tokens[max(r.num_tokens - new, 0) : r.num_tokens + r.drafts].tolist())
            for r in self._stepped
        ]


def require_agreement(outcome: list[Outcome]) -> None:
    """Raise VerispecError V-RANK-DISAGREE unless every rank passes the same `outcome`."""
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, outcome)
    for rank, other in enumerate(found):
        if other == found[0]:
            continue
        mine = next((pair for pair in zip(found[0], other, strict=False) if pair[0] != pair[1]), (found[0], other))
        raise VerispecError(
            "V-RANK-DISAGREE",
            f"ranks 0 and {rank} differ after a step",
            where="tensor_parallel_size",
            cause=f"request, length, last tokens and drafts on rank 0: {mine[0]}; on rank {rank}: {mine[1]}",
            hint="ranks must have the same logits, the same random numbers and the same drafts",
        )


def run(rank: int, options: LoadOptions, target: Path, runner: str, store: str, connection: Connection) -> None:
    """Serve the calls that come through `connection`, as rank `rank`, until it is closed.

    Args:
        rank: number of the rank, from 0.
        options: options of the runner, with the number of ranks.
        target: checkpoint folder.
        runner: ``module:Class`` of a `BaseRunner`, which becomes a rank.
        store: file through which the ranks find each other.
        connection: pipe that receives (method, arguments) and sends ("emit", ...), ("result", value) or
            ("error", exception).
    """
    die_with_parent()
    try:
        module, _, name = runner.partition(":")
        base: type[BaseRunner] = getattr(importlib.import_module(module), name)
        cuda = base.device.type == "cuda"
        if cuda:
            torch.cuda.set_device(rank)
        else:
            torch.set_num_threads(max(torch.get_num_threads() // options.tensor_parallel_size, 1))
        dist.init_process_group(
            "nccl" if cuda else "gloo",
            init_method=f"file://{store}",
            rank=rank,
            world_size=options.tensor_parallel_size,
            timeout=COLLECTIVE_TIMEOUT,
        )
        ranked: Any = base if issubclass(base, RankMixin) else type(name, (RankMixin, base), {})
        generator = ranked(target, options)
    except Exception as error:
        connection.send(("error", _sendable(error)))
        # Another rank may still be connecting to this one: its own error would hide the cause.
        with suppress(EOFError):
            connection.recv()
        return
    connection.send(("result", None))
    while True:
        try:
            method, arguments = connection.recv()
        except EOFError:
            return
        if method == "close":
            generator.close()
            dist.destroy_process_group()
            return
        if method == "generate" and arguments[1]:
            arguments = (arguments[0], lambda *said: connection.send(("emit", said)))
        elif method == "generate":
            arguments = (arguments[0], None)
        try:
            connection.send(("result", getattr(generator, method)(*arguments)))
        except Exception as error:
            connection.send(("error", _sendable(error)))


def _sendable(error: Exception) -> Exception:
    """Return the error; where it would say nothing in another process, or cannot be sent there, one with its place."""
    if not str(error):
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return RuntimeError(f"{describe_exception(error)} at {Path(frame.filename).name}:{frame.lineno}: {frame.line}")
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(describe_exception(error))
    return error
