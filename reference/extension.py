"""The extension module with the CPU kernels, loaded once."""

from __future__ import annotations

import importlib
import os
import sys
from functools import cache
from types import ModuleType


@cache
def extension() -> ModuleType:
    """Import the extension module, with OpenMP threads that sleep while they wait if torch has threads of its own.

    An OpenMP runtime reads its settings when it is loaded. If torch loaded a runtime of the same name, the module
    shares it and the setting has no effect. Otherwise a second runtime is loaded now, with the setting. Without torch
    the setting stays unchanged, since torch may share the runtime later.
    """
    policy = {"OMP_WAIT_POLICY": "passive"} if "torch" in sys.modules and "OMP_WAIT_POLICY" not in os.environ else {}
    os.environ.update(policy)
    try:
        return importlib.import_module("verispec.reference._csrc")
    finally:
        for name in policy:
            del os.environ[name]
