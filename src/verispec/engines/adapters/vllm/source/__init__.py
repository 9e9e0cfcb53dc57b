"""Engines ``vllm@SOURCE[#REV]`` and ``vllm-cpu@SOURCE[#REV]``: kernels of any vLLM tree, which is never installed.

SOURCE is whatever `verispec.static.sources` opens: a folder, a git revision of one, an sdist or
wheel, or ``vllm==0.33.0`` from the package index. ``vllm@`` runs its Triton kernels, on CUDA or in
Triton's interpreter; ``vllm-cpu@`` runs its CPU fallbacks, whose C++ file is compiled alone.
"""

from __future__ import annotations

import os
from importlib.util import find_spec

from verispec.engines import Engine
from verispec.errors import VerispecError


def triton(source: str, device: str | None = None) -> Engine:
    """Return the Triton kernels of a vLLM source tree.

    Args:
        source: name of a tree, as for `verispec.static.sources.open_tree`.
        device: None is "cuda" if there is a GPU, else "cpu": Triton's interpreter in a child process.

    Raises:
        VerispecError: V-ENG-TRITON, V-ENG-INTERPRETER, V-ENG-NO-SPEC-DECODE, and those of `open_tree`.
    """
    name = f"vllm@{source}"
    _require(name, "torch", "triton")
    from verispec.engines.adapters.vllm.source.tree import Kernels

    kernels = Kernels(name, source)
    import torch

    if os.environ.get("TRITON_INTERPRET") == "1":
        from verispec.engines import triton_interpreter

        triton_interpreter.prepare(name)
        where = "cpu"
    elif device != "cpu" and torch.cuda.is_available():
        where = "cuda"
    else:
        from verispec.engines.process.subprocess_ops import Child

        return Child(name, device="cpu", environment={"TRITON_INTERPRET": "1"})
    from verispec.engines.adapters.vllm.source.triton_engine import TritonKernels

    return TritonKernels(kernels, where)


def cpu(source: str, device: str | None = None) -> Engine:
    """Return the CPU fallbacks of a vLLM source tree.

    Args:
        source: name of a tree, as for `verispec.static.sources.open_tree`.
        device: None or "cpu".

    Raises:
        VerispecError: those of `triton`, and V-ENG-COMPILER without a C++ compiler.
    """
    name = f"vllm-cpu@{source}"
    if device == "cuda":
        raise VerispecError(
            "V-ENG-DEVICE",
            "the CPU fallbacks run on the CPU",
            where="--device cuda",
            hint=f"the tree's GPU kernels are the engine 'vllm@{source}'",
        )
    _require(name, "torch")
    from verispec.engines.adapters.vllm.source.cpu_engine import CpuFallbacks
    from verispec.engines.adapters.vllm.source.tree import Kernels

    return CpuFallbacks(Kernels(name, source))


def _require(engine: str, *packages: str) -> None:
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        raise VerispecError(
            "V-ENG-TRITON" if missing == ["triton"] else "V-ENG-TORCH",
            f"{' and '.join(missing)} not installed",
            where=f"--engine {engine}",
            hint="pip install 'verispec[judge,triton]'; without a GPU the kernels run in Triton's interpreter",
        )
