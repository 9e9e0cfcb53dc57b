"""A generator over several ranks, each a process: `load(target, tensor_parallel_size=2)`."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, cast

from verispec import exits
from verispec.engines.protocol.generation import (
    GenerationRequest,
    GenerationResult,
    LoadOptions,
    OnEmit,
    SpeculationMetrics,
)
from verispec.errors import VerispecError

from . import rank as rank_module

CPU, GPU = "verispec.reference.runners.cpu:CPURunner", "verispec.reference.runners.gpu:GPURunner"
GRACE = 10.0
"""Seconds from one rank's error to that of the others, after which they count as stuck."""


@dataclass(frozen=True, slots=True)
class _Rank:
    process: BaseProcess
    connection: Connection


class RankedRunner:
    """Runs the same requests on every rank and returns their common result.

    Args:
        target: checkpoint folder.
        options: options of generation, `tensor_parallel_size` among them.
        runner: ``module:Class`` of the runner that each rank is.

    Raises:
        VerispecError: those of the runner; V-RANK-LOST if a rank ends.
    """

    def __init__(self, target: Path, options: LoadOptions, runner: str = CPU) -> None:
        # Importing torch and transformers takes seconds: one process does it, and every rank is a fork of it.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([rank_module.__name__, runner.partition(":")[0]])
        self._folder = tempfile.TemporaryDirectory(prefix="verispec-ranks-")
        self._ranks: list[_Rank] = []
        self._broken: VerispecError | None = None
        store = str(Path(self._folder.name, "store"))
        for rank in range(options.tensor_parallel_size):
            mine, theirs = context.Pipe()
            process = context.Process(
                target=rank_module.run, args=(rank, options, target, runner, store, theirs), daemon=True
            )
            process.start()
            theirs.close()
            self._ranks.append(_Rank(process, mine))
        try:
            self._answers(None)
        except Exception:
            self._end()
            raise

    def generate(self, requests: Sequence[GenerationRequest], on_emit: OnEmit | None = None) -> list[GenerationResult]:
        """Run all requests to their end on every rank; see `Generator.generate`.

        Raises:
            VerispecError: V-RANK-LOST if a rank ends, V-RANK-DISAGREE if ranks differ; those of the runner.
        """
        for number in range(len(self._ranks)):
            self._send(number, "generate", list(requests), on_emit is not None and number == 0)
        first, *others = self._answers(on_emit)
        for number, other in enumerate(others, 1):
            if other != first:
                raise self._break(f"ranks 0 and {number} returned other results", "V-RANK-DISAGREE")
        results: list[GenerationResult] = first
        return results

    def metrics(self) -> SpeculationMetrics:
        """Return the counts of speculation, which every rank must have alike."""
        return self.metrics_by_rank()[0]

    def metrics_by_rank(self) -> list[SpeculationMetrics]:
        """Return the counts of speculation of each rank."""
        for number in range(len(self._ranks)):
            self._send(number, "metrics")
        return self._answers(None)

    @property
    def processes(self) -> list[int]:
        """The process of each rank."""
        return [rank.process.pid or 0 for rank in self._ranks]

    def close(self) -> None:
        """End every rank."""
        if self._broken is None:
            for rank in self._ranks:
                try:
                    rank.connection.send(("close", ()))
                except OSError:
                    break
            for rank in self._ranks:
                rank.process.join(GRACE)
        self._end()

    def _send(self, number: int, method: str, *arguments: Any) -> None:
        if self._broken is not None:
            raise self._broken
        try:
            self._ranks[number].connection.send((method, arguments))
        except OSError as error:
            raise self._lost(number) from error

    def _answers(self, on_emit: Callable[..., None] | None) -> list[Any]:
        """Return the answer of each rank.

        Raises:
            VerispecError: a rank ended (the others are ended too), or ranks had errors.
        """
        waiting: dict[Any, int] = {rank.connection: number for number, rank in enumerate(self._ranks)}
        answers: list[Any] = [None] * len(self._ranks)
        errors: dict[int, Exception] = {}
        first_error = 0.0
        while waiting:
            ready = wait(list(waiting), 1.0)
            if errors and time.monotonic() - first_error > GRACE:
                break
            for connection in cast("list[Any]", ready):
                number = waiting[connection]
                try:
                    kind, value = connection.recv()
                except (EOFError, OSError) as lost:
                    raise self._lost(number) from lost
                if kind == "emit":
                    assert on_emit is not None
                    on_emit(*value)
                    continue
                del waiting[connection]
                if kind == "error":
                    errors[number] = value
                    first_error = first_error or time.monotonic()
                else:
                    answers[number] = value
        if errors:
            number, error = min(errors.items())
            same = len({str(each) for each in errors.values()}) == 1 and len(errors) == len(self._ranks)
            if same and not str(error).startswith("V-RANK"):  # all refused alike, and nothing has begun
                raise error
            if isinstance(error, VerispecError):
                self._broken = error
                self._end()
                raise error
            raise self._break(f"rank {number} failed: {error}", "V-RANK-FAILED")
        return answers

    def _lost(self, number: int) -> VerispecError:
        process = self._ranks[number].process
        process.join(GRACE)
        code = process.exitcode
        how = f"was ended by {signal.Signals(-code).name}" if code and code < 0 else f"ended with {code}"
        return self._break(f"rank {number} of {len(self._ranks)} {how}", "V-RANK-LOST")

    def _break(self, message: str, code: str) -> VerispecError:
        """End every rank, and return the error that each later call raises too."""
        self._end()
        self._broken = VerispecError(
            code,
            message,
            where="tensor_parallel_size",
            cause="the other ranks were ended: they would wait for it for ever",
            hint="load the model again",
            exit_code=exits.CANNOT_TELL,
        )
        return self._broken

    def _end(self) -> None:
        for rank in self._ranks:
            if rank.process.is_alive():
                os.kill(rank.process.pid or 0, signal.SIGKILL)
            rank.process.join()
            rank.connection.close()
        self._folder.cleanup()
