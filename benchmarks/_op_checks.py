"""The checks of a Triton op on a CUDA device: large cases, and every way in which an engine calls it."""

from __future__ import annotations

import importlib
import time
import traceback
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import torch
from op_cases import Case, Size, make, ops, small_cases, variants, verdict
from op_running import run

from verispec.reference.contracts import load
from verispec.reference.triton import _fused, op

FUSED = ("verify_draft_logits", "verify_greedy", "verify_one_hot")


def large_cases() -> Iterator[Case]:
    """Yield the vocabularies of real models, once each; bfloat16 where a contract has it."""
    for name in ops():
        first, *others = variants(name)
        if any("V" in map(str, t.shape) for t in load(name).tensors):
            yield make(name, first, Size(128256, requests=3))
            yield make(name, (others or [first])[0], Size(151936, requests=3), narrow=_has_bfloat16(name))
            for variant in others[1:] if name == "apply_top_k_top_p" else ():
                yield make(name, variant, Size(128256, requests=4))
        else:
            yield make(name, first, Size(128256, requests=300, drafts=7))


def _has_bfloat16(name: str) -> bool:
    return any("bfloat16" in t.dtypes for t in load(name).tensors)


def check(only: str) -> list[dict[str, str]]:
    results: list[dict[str, str]] = []
    began = time.monotonic()
    for case in chain(small_cases(), large_cases()):
        if not any(part in case.op for part in only.split(",")):
            continue
        print(f"{len(results)} checks, {time.monotonic() - began:.0f} s; next {case.op} {case.name}", flush=True)
        expected = case.expected()
        is_large = max(v.size for v in case.arguments.values() if hasattr(v, "size")) > 10**5
        modes = ["plain", "repeated", "graph"] if is_large else ["plain", "strided", "repeated", "graph"]
        if is_large and any(t.shape[-1:] == ("V",) and len(t.shape) == 2 for t in load(case.op).tensors):
            modes.append("far")
        if case.op in FUSED:
            modes.append("large batch")
        for mode in modes:
            problem = _problem(case, mode, expected)
            results.append({"op": case.op, "case": case.name, "mode": mode, "problem": problem})
            if problem:
                print(f"FAIL {case.op} {case.name} {mode}\n{problem[-1500:]}", flush=True)
    return results


def _problem(case: Case, mode: str, expected: dict[str, Any]) -> str:
    wrap = {"graph": in_graph, "repeated": repeated, "large batch": as_large_batch}.get(mode, without_waiting)
    try:
        layout = mode if mode in {"strided", "far"} else "dense"
        # A checked op repeats the launches of calls before it, which were those of a small batch.
        function = launcher(case.op) if mode == "large batch" else op(case.op)
        outputs, misdeeds = run(case, wrap(function), "cuda", layout=layout)
        return verdict(case, outputs, expected) or misdeeds
    except Exception:
        return traceback.format_exc()


def launcher(name: str) -> Callable[..., None]:
    """Return the function that launches the kernels of an op."""
    function: Callable[..., None] = getattr(importlib.import_module(f"verispec.reference.triton.{name}"), name)
    return function


def without_waiting(function: Callable[..., None]) -> Callable[..., None]:
    """Return the op with every device synchronisation by torch turned into an error."""

    def call(**arguments: Any) -> None:
        torch.cuda.set_sync_debug_mode("error")
        try:
            function(**arguments)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    return call


def repeated(function: Callable[..., None]) -> Callable[..., None]:
    """Call the op twice, so that its layout is known, and once more for other memory of the same values."""

    def call(**arguments: Any) -> None:
        copies = {n: v.clone() if isinstance(v, torch.Tensor) else v for n, v in arguments.items()}
        for _ in range(2):
            function(**copies)
        function(**arguments)

    return call


def as_large_batch(function: Callable[..., None]) -> Callable[..., None]:
    """Run a fused op as a large batch: a scan whose programs read several chunks, and a launch that draws."""

    def call(**arguments: Any) -> None:
        before = _fused.SKIP_BYTES, _fused.PROGRAMS
        _fused.SKIP_BYTES, _fused.PROGRAMS = (0, 0, 0), 1
        try:
            function(**arguments)
        finally:
            _fused.SKIP_BYTES, _fused.PROGRAMS = before

    return call


def in_graph(function: Callable[..., None]) -> Callable[..., None]:
    """Capture and replay the op, with outputs reset before the replay."""

    def call(**arguments: Any) -> None:
        tensors = [value for value in arguments.values() if isinstance(value, torch.Tensor)]
        before = [tensor.clone() for tensor in tensors]
        replay = captured(lambda: function(**arguments), 1)
        for tensor, saved in zip(tensors, before, strict=True):
            tensor.copy_(saved)
        replay()
        torch.cuda.synchronize()

    return call


def captured(function: Callable[[], Any], calls: int) -> Callable[[], None]:
    """Return a replay of `calls` calls, compiled and allocated before the capture."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        function()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            function()
    return graph.replay
