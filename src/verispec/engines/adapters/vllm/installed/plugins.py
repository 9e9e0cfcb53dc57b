"""vLLM's plugins: packages that register themselves with vLLM and change it when it starts."""

from __future__ import annotations

import os
from importlib.metadata import entry_points

from verispec.engines.adapters.vllm.installed.fallbacks import import_if_there

GROUPS = ("vllm.platform_plugins", "vllm.general_plugins")
"""Entry points that change the process of the model runner."""


def load() -> None:
    """Load the general plugins, as vLLM's worker does before its platform replaces kernels.

    Source: vllm 0.32.0 ``vllm.v1.worker.worker_base.WorkerWrapperBase.init_worker``. Importing the platform has loaded
    the platform plugin.

    Raises:
        Exception: a plugin fails; vLLM does not start either.
    """
    module = import_if_there("vllm.plugins")
    if module is not None:
        module.load_general_plugins()


def names() -> list[str]:
    """Return the packages whose plugins vLLM loads, with their versions; vLLM's own plugins are omitted."""
    allowed = os.environ.get("VLLM_PLUGINS")
    found = {
        f"{entry.dist.name} {entry.dist.version}"
        for group in GROUPS
        for entry in entry_points(group=group)
        if entry.dist and not entry.value.startswith("vllm.")
        if allowed is None or entry.name in allowed.split(",")
    }
    return sorted(found)
