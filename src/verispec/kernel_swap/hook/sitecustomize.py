"""Python imports this at its start when this folder is on PYTHONPATH: it arms the transplant, then makes way.

A sitecustomize of the environment's own, hidden by this one, is run afterwards in its place.
"""

import importlib.util
import sys
from importlib.machinery import PathFinder
from pathlib import Path

from verispec.kernel_swap.patch_vllm import arm

arm()

_here = Path(__file__).resolve().parent
_hidden = PathFinder.find_spec("sitecustomize", [p for p in sys.path if Path(p or ".").resolve() != _here])
if _hidden is not None and _hidden.loader is not None:
    sys.modules["sitecustomize"] = importlib.util.module_from_spec(_hidden)
    _hidden.loader.exec_module(sys.modules["sitecustomize"])
