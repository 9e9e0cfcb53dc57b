"""Engines: anything that answers the small `Engine` protocol, found by name.

    reference            the reference engine on the CPU (C++)
    reference:triton     its GPU kernels (CUDA, or Triton's interpreter)
    vllm                 the vLLM installed here
    vllm@SOURCE[#REV]    Triton kernels of a checkout, an archive or a release of vLLM, nothing built
    vllm-cpu@SOURCE      its CPU fallbacks, their C++ file compiled alone
    transformers         generation oracle
    module:attr          anything importable that answers the protocol

Third parties register under the entry-point group ``verispec.engines``.
"""

from __future__ import annotations

from verispec.engines.protocol.engine import Description, Engine, OpFunction, Unsupported, UnsupportedCall

__all__ = ["Description", "Engine", "OpFunction", "Unsupported", "UnsupportedCall"]
