"""Imported by each worker process of a vLLM with several ranks: on CPUs it is spawned, without settings of ours."""

from __future__ import annotations

from verispec.engines.adapters.vllm.installed.fallbacks import poison_fresh_memory


class Poisoned:
    """An addition to vLLM's worker, without anything of its own: what counts is that this module is imported.

    Uninitialised memory then holds the same on every rank as in the process of a vLLM of one rank.
    """


poison_fresh_memory()
