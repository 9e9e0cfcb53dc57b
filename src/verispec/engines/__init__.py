"""Engines: anything that answers the small `Engine` protocol, found by name.

Everything that an engine of your own needs is importable from here; see docs/reference/engine-protocol.md.

    reference            the reference engine on the CPU (C++)
    reference:triton     its GPU kernels (CUDA, or Triton's interpreter)
    vllm                 the vLLM installed here
    vllm@SOURCE[#REV]    Triton kernels of a checkout, an archive or a release of vLLM, nothing built
    vllm-cpu@SOURCE      its CPU fallbacks, their C++ file compiled alone
    transformers         generation oracle
    vllm-ascend@SOURCE   sampler and PyTorch ops of vllm-ascend, without an NPU (vllm-ascend:triton@SOURCE: in Triton)
    mlx-lm               its generation, plain and with a draft model
    openvino-genai       its generation on the CPU, with a draft model or prompt lookup
    onnxruntime-genai    its generation on the CPU, with a draft model or n-grams
    llama.cpp            its generation on the CPU, with a draft model or n-grams of a kind (llama.cpp:ngram-map-k)
    sglang@SOURCE        its rejection sampler in Triton, interpreted or on a GPU
    flashinfer           sampling of FlashInfer, on a GPU
    tpu-inference        its JAX sampler, on a CPU or a GPU
    http://HOST:PORT     any server of the completions API
    module:attr          anything importable that answers the protocol
    module:attr@SOURCE   the same out of a folder, a git revision, an archive or a release

Third parties register under the entry-point group ``verispec.engines``.
"""

from __future__ import annotations

from verispec.engines.protocol.engine import PLATFORMS, Description, Engine, OpFunction, Unsupported, UnsupportedCall
from verispec.engines.protocol.generation import (
    FinishReason,
    GenerationRequest,
    GenerationResult,
    Generator,
    LoadKeywords,
    LoadOptions,
    OnEmit,
    SpeculationMetrics,
    SpeculativeStep,
    TokenKind,
    TokenLogprobs,
)
from verispec.engines.protocol.grammar import TokenGrammar, TransitionTable
from verispec.engines.protocol.kernel_sites import KernelSites
from verispec.engines.protocol.runtime_signature import CallShape, RuntimeSignature
from verispec.engines.protocol.sampling import (
    DraftedTokens,
    DraftingSampler,
    Draws,
    ProcessedTokens,
    ProcessingSampler,
    RequestContext,
    SamplerBatch,
    Trace,
    TracingSampler,
    WholeSampler,
    replay,
)
from verispec.engines.protocol.standalone import (
    Standalone,
    StandaloneBody,
    StandaloneCall,
    StandaloneGenerator,
    StandaloneSampler,
)

__all__ = [
    "PLATFORMS",
    "CallShape",
    "Description",
    "DraftedTokens",
    "DraftingSampler",
    "Draws",
    "Engine",
    "FinishReason",
    "GenerationRequest",
    "GenerationResult",
    "Generator",
    "KernelSites",
    "LoadKeywords",
    "LoadOptions",
    "OnEmit",
    "OpFunction",
    "ProcessedTokens",
    "ProcessingSampler",
    "RequestContext",
    "RuntimeSignature",
    "SamplerBatch",
    "SpeculationMetrics",
    "SpeculativeStep",
    "Standalone",
    "StandaloneBody",
    "StandaloneCall",
    "StandaloneGenerator",
    "StandaloneSampler",
    "TokenGrammar",
    "TokenKind",
    "TokenLogprobs",
    "Trace",
    "TracingSampler",
    "TransitionTable",
    "Unsupported",
    "UnsupportedCall",
    "WholeSampler",
    "replay",
]
