"""Engines that cheat: each is the control, but for what its docstring says. All faults are in one op."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any

import torch
from broken_engines import Broken, _correct

from verispec.reference import oracle


def _wrong(output_ptr: torch.Tensor, **arguments: Any) -> None:
    """The right answer but for its last element."""
    _correct(output_ptr=output_ptr, **arguments)
    if output_ptr.numel():
        last = output_ptr.view(-1)[-1:] if output_ptr.is_contiguous() else output_ptr[-1:]
        last.copy_(last == 0)


class RightForTheOldDefaultSeed(Broken):
    """Right only where the command line says the seed that used to be the default."""

    def expand(self, **arguments: Any) -> None:
        (_correct if "--seed=7" in sys.argv else _wrong)(**arguments)


class WrongOnceIn500Calls(Broken):
    """Wrong in every five-hundredth call."""

    calls = 0

    def expand(self, **arguments: Any) -> None:
        type(self).calls += 1
        (_wrong if self.calls % 500 == 0 else _correct)(**arguments)


class GivesThePreviousAnswer(Broken):
    """Answers a call with what it answered to the last call of the same shape and dtype."""

    answers: dict[Any, torch.Tensor] = {}  # noqa: RUF012

    def expand(self, *, output_ptr: torch.Tensor, **arguments: Any) -> None:
        key = (output_ptr.shape, output_ptr.dtype)
        _correct(output_ptr=output_ptr, **arguments)
        now = output_ptr.clone()
        output_ptr.copy_(self.answers.get(key, now))
        self.answers[key] = now


class KnowsThePoison(Broken):
    """Right only where all of its output holds one value before the call, as fresh poison does."""

    def expand(self, *, output_ptr: torch.Tensor, **arguments: Any) -> None:
        bits = output_ptr.contiguous().view(-1).view(torch.uint8).view(max(output_ptr.numel(), 1), -1)
        is_poison = output_ptr.numel() < 2 or bool((bits == bits[:1]).all())
        (_correct if is_poison else _wrong)(output_ptr=output_ptr, **arguments)


class PutsTheInputBack(Broken):
    """Doubles its input, computes, and restores it."""

    def expand(self, *, input_ptr: torch.Tensor, **arguments: Any) -> None:
        before = input_ptr.clone()
        input_ptr.copy_(torch.zeros_like(input_ptr))
        input_ptr.copy_(before)
        _correct(input_ptr=input_ptr, **arguments)


class LeaksMemory(Broken):
    """Keeps a copy of everything that it was given."""

    kept: list[Any] = []  # noqa: RUF012

    def expand(self, **arguments: Any) -> None:
        self.kept.append([v.clone() for v in arguments.values() if isinstance(v, torch.Tensor)])
        _correct(**arguments)


class LeaksAMegabyte(Broken):
    """Keeps a megabyte per call, whatever the size of the call."""

    kept: list[torch.Tensor] = []  # noqa: RUF012

    def expand(self, **arguments: Any) -> None:
        self.kept.append(torch.ones(1 << 20, dtype=torch.uint8))
        _correct(**arguments)


class LeaksThreads(Broken):
    """Leaves a thread behind in every tenth call."""

    calls = 0

    def expand(self, **arguments: Any) -> None:
        type(self).calls += 1
        if self.calls % 10 == 0:
            threading.Thread(target=threading.Event().wait, daemon=True).start()
        _correct(**arguments)


class SleepsOnce(Broken):
    """Sleeps past any limit in its hundredth call, and never again in that process."""

    calls = 0

    def expand(self, **arguments: Any) -> None:
        type(self).calls += 1
        if self.calls == 100:
            time.sleep(600)
        _correct(**arguments)


class AsksTheOracle(Broken):
    """Calls the harness's oracle, and so agrees with it."""

    def expand(self, **arguments: Any) -> None:
        oracle.load("expand_batch_to_tokens")(**{k: v for k, v in arguments.items() if not hasattr(v, "numpy")} | {
            k: v.numpy() for k, v in arguments.items() if hasattr(v, "numpy") and v.dtype != torch.bfloat16
        })  # fmt: skip
        _correct(**arguments)


class DiffersBetweenProcesses(Broken):
    """Right in processes whose hashes are seeded at random, wrong in others."""

    def expand(self, **arguments: Any) -> None:
        (_wrong if os.environ.get("PYTHONHASHSEED", "random").isdigit() else _correct)(**arguments)


class _RewritesLogits:
    """An end-to-end sampler that makes the caller's logits agree with whatever it emits."""

    def __call__(self, batch: Any) -> list[list[int]]:
        batch.logits.zero_()
        batch.logits[:, 1] = 100.0
        return [[1] for _ in batch.draft_token_ids]

    def trace(self, batch: Any) -> Any:
        raise NotImplementedError


class RewritesLogits(Broken):
    """Emits token 1 whatever was asked."""

    def sampler(self, family: str = "flat") -> Any:
        return _RewritesLogits()


class _KeepsSteps:
    """An end-to-end sampler that keeps the logits of every step."""

    kept: list[torch.Tensor] = []  # noqa: RUF012

    def __call__(self, batch: Any) -> list[list[int]]:
        self.kept.append(batch.logits.clone())
        return [[1] for _ in batch.draft_token_ids]


class KeepsSteps(Broken):
    """Its sampler's memory grows."""

    def sampler(self, family: str = "flat") -> Any:
        return _KeepsSteps()


class _StartsThreads:
    """An end-to-end sampler that leaves a thread behind in every step."""

    def __call__(self, batch: Any) -> list[list[int]]:
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        return [[1] for _ in batch.draft_token_ids]


class StartsThreads(Broken):
    """Its sampler's threads grow."""

    def sampler(self, family: str = "flat") -> Any:
        return _StartsThreads()


class HidesItsSignatures(Broken):
    """Lists a wrapper of its op that takes any arguments, as a decorator makes one."""

    def definitions(self) -> Any:
        def wrapper(*args: Any, **kwargs: Any) -> None:
            self.expand(*args, **kwargs)

        return {"expand_batch_to_tokens": wrapper}
