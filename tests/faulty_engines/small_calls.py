"""Engines whose users call ops as plain functions, for files of cases and exported tests."""

from __future__ import annotations

import ctypes
import os
import shutil
import time
from typing import Any

import torch
from oracle_engine import OracleEngine, from_oracle

from verispec.engines import OpFunction, StandaloneBody, Unsupported
from verispec.engines.protocol.sampling import SamplerBatch


def rejection_random_sample(
    *, draft_token_ids_ptr: torch.Tensor, target_probs_ptr: torch.Tensor, **arguments: Any
) -> None:
    """Uses a negative draft token as an index, which reads the previous row."""
    ids, p = draft_token_ids_ptr.clone(), target_probs_ptr.clone()
    for n in range(1, len(ids)):
        if ids[n] == -1:
            ids[n] = 0
            p[n, 0] = target_probs_ptr[n - 1, -1]
    from_oracle("rejection_random_sample")(draft_token_ids_ptr=ids, target_probs_ptr=p, **arguments)


def expand_batch_to_tokens(*, output_ptr: torch.Tensor, **arguments: Any) -> None:
    """Reads address 0 for boolean values, and loses the last token of batches of three requests or more."""
    if output_ptr.dtype == torch.bool:
        ctypes.string_at(0)
    from_oracle("expand_batch_to_tokens")(output_ptr=output_ptr, **arguments)
    if len(arguments["input_ptr"]) >= 3 and output_ptr.numel():
        output_ptr[-1] = 0


class Plain(OracleEngine):
    """The two functions above, and the oracle for everything else."""

    def op(self, name: str) -> OpFunction | Unsupported:
        faulty = {
            "rejection_random_sample": rejection_random_sample,
            "expand_batch_to_tokens": expand_batch_to_tokens,
        }
        return faulty.get(name) or super().op(name)


class RemovesTheFolder(OracleEngine):
    """Removes a folder after its first case, so that files cannot be written there any more."""

    def __init__(self) -> None:
        self._calls = 0

    def op(self, name: str) -> OpFunction | Unsupported:
        correct = super().op(name)
        self._calls += 1
        if self._calls == 3:  # checking the engine asks once, and each case once
            shutil.rmtree(os.environ["VERISPEC_TEST_FOLDER"])
        return correct


class FailsWithoutAnError(OracleEngine):
    """Its op ends or hangs its process; how is in the environment: see `_ends`."""

    def op(self, name: str) -> OpFunction | Unsupported:
        correct = from_oracle(name)
        calls = 0

        def function(**arguments: Any) -> None:
            nonlocal calls
            calls += 1
            _ends(os.environ["VERISPEC_TEST_ENDING"], calls, len(arguments["input_ptr"]))
            correct(**arguments)

        return function


def _ends(how: str, calls: int, requests: int) -> None:
    if how == "hangs for three requests" and requests >= 3:
        time.sleep(3600)
    if how == "crashes for three requests" and requests >= 3:
        ctypes.string_at(0)
    if how == "loses the device for three requests" and requests >= 3:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    if how == "crashes at its fifth call" and calls == 5:
        ctypes.string_at(0)


class Slow(Plain):
    """Takes 0.3 s per call."""

    def op(self, name: str) -> OpFunction | Unsupported:
        function = super().op(name)
        assert not isinstance(function, Unsupported)

        def slow(**arguments: Any) -> Any:
            time.sleep(0.3)
            return function(**arguments)

        return slow


def verify(logits: torch.Tensor, drafts: list[list[int]], temperature: torch.Tensor) -> list[list[int]]:
    """Emit the argmax of each row, as at a low temperature; beside a hot request a greedy one emits token 0."""
    tokens, row = [], 0
    for ids in drafts:
        best = logits[row : row + len(ids) + 1].argmax(dim=1).tolist()
        row += len(best)
        kept = next((n for n, (a, b) in enumerate(zip(ids, best, strict=False)) if a != b), len(ids))
        tokens.append(best[: kept + 1])
    if (temperature > 0).any():
        tokens = [[0] if heat == 0 else own for heat, own in zip(temperature.tolist(), tokens, strict=True)]
    return tokens


class Stepwise(OracleEngine):
    """A faulty sampler, whose users call a function."""

    def sampler(self, family: str = "flat") -> Any:
        return lambda batch: verify(batch.logits, [list(ids) for ids in batch.draft_token_ids], batch.temperature)

    def standalone_step(self, batch: SamplerBatch, family: str = "flat") -> StandaloneBody:
        drafts = [list(ids) for ids in batch.draft_token_ids]
        call = f"tokens = verify(logits, {drafts}, torch.tensor({batch.temperature.tolist()}))"
        return StandaloneBody(("import torch", "from small_calls import verify"), (call,))


class WithoutTorch(Stepwise):
    """The same sampler, whose users import torch nowhere."""

    def standalone_step(self, batch: SamplerBatch, family: str = "flat") -> StandaloneBody:
        drafts = [list(ids) for ids in batch.draft_token_ids]
        call = f"tokens = verify(logits, {drafts}, logits.new_tensor({batch.temperature.tolist()}))"
        return StandaloneBody(("from small_calls import verify",), (call,))


class Silent(Stepwise):
    """The same sampler, whose engine has no source to give."""

    standalone_step = None  # type: ignore[assignment]
