"""Imports that every `vllm.LLM` needs; imported once, and processes that hold one are forked from there.

Half of an engine's start is importing. Modules that this version does not have are omitted. Other
errors are left to the start of the engine.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os

from verispec.engines.adapters.vllm.installed.fallbacks import quiet

ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "NUMBA_THREADING_LAYER": "workqueue",
    "TORCHDYNAMO_DISABLE": "1",
}
"""The engine core in the one process; a GiB of KV cache; threads as OMP_NUM_THREADS says and bound to no core, since
engines that run side by side would be bound to the same ones; an n-gram proposer with threads of its own kind,
which leaves torch's OpenMP alone (else every matrix product is slower by far); no compiling, 9 to 19 s a start."""

MODULES = ("vllm.entrypoints.llm", "vllm.engine.arg_utils", "vllm.v1.engine.llm_engine")
CPU_MODULES = ("vllm.v1.worker.cpu_worker", "vllm.v1.attention.backends.cpu_attn", "vllm.model_executor.models.llama")


def preload() -> None:
    """Import what can be imported without a device: a process that has touched a GPU cannot be forked.

    vLLM collects garbage seven times per start. Objects that are imported here are left out of that, which more than
    halves the time of a start.
    """
    os.environ.update(ENVIRONMENT)
    with contextlib.suppress(Exception), quiet():
        platform = importlib.import_module("vllm.platforms").current_platform
        for name in MODULES + (CPU_MODULES if platform.device_type == "cpu" else ()):
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    gc.collect()
    gc.freeze()


preload()
