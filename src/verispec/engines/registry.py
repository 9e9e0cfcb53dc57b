"""From a name on the command line to an engine."""

from __future__ import annotations

import difflib
import importlib
from dataclasses import dataclass
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Any

from verispec.engines import Engine
from verispec.errors import VerispecError

GROUP = "verispec.engines"
"""Entry-point group of third parties: the name of an entry is the engine's name, its value a class or function."""


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A built-in engine.

    Args:
        module: module of its adapter.
        factory: function of the module that makes the engine.
        summary: its description.
        needs: packages that it needs.
        finds_gpu: True if it finds a GPU itself, so that torch may be a build for CPUs.
    """

    module: str
    factory: str
    summary: str
    needs: tuple[str, ...] = ()
    finds_gpu: bool = False

    @property
    def missing(self) -> tuple[str, ...]:
        """The needed packages that are not installed."""
        return tuple(package for package in self.needs if find_spec(package) is None)


_SOURCE = "verispec.engines.adapters.vllm.source"
_OPENVINO = "verispec.engines.adapters.openvino_genai"
_OPENVINO_NEEDS = ("torch", "transformers", "openvino_genai")
_LLAMA = "verispec.engines.adapters.llama_cpp"
_LLAMA_NEEDS = ("torch", "transformers", "xllamacpp", "gguf")
HTTP = "http://HOST:PORT[?NAME=VALUE&...]"
"""Stands in lists for every server; its engine has the server's address as its name."""

BUILT_IN: dict[str, BuiltIn] = {
    "reference": BuiltIn(
        "verispec.engines.adapters.reference", "cpu", "the reference engine on the CPU (C++)", ("torch",)
    ),
    "reference:triton": BuiltIn(
        "verispec.engines.adapters.reference", "triton", "its GPU kernels, or Triton's interpreter", ("torch", "triton")
    ),
    "vllm": BuiltIn("verispec.engines.adapters.vllm.installed", "create", "the vLLM installed here", ("torch", "vllm")),
    "vllm@SOURCE[#REV]": BuiltIn(
        _SOURCE, "triton", "Triton kernels of any vLLM tree, nothing built", ("torch", "triton")
    ),
    "vllm-cpu@SOURCE[#REV]": BuiltIn(_SOURCE, "cpu", "CPU fallbacks of any vLLM tree, their C++ alone", ("torch",)),
    "transformers": BuiltIn(
        "verispec.engines.adapters.transformers", "create", "generation oracle", ("torch", "transformers")
    ),
    "vllm-ascend@SOURCE[#REV]": BuiltIn(
        "verispec.engines.adapters.vllm_ascend",
        "create",
        "PyTorch ops and sampler of any vllm-ascend tree",
        ("torch", "vllm"),
    ),
    "vllm-ascend:triton@SOURCE[#REV]": BuiltIn(
        "verispec.engines.adapters.vllm_ascend_triton",
        "create",
        "Triton kernels of any vllm-ascend tree, interpreted, and its sampler over them",
        ("torch", "triton", "vllm"),
    ),
    "vllm-rbln@SOURCE[#REV]": BuiltIn(
        "verispec.engines.adapters.vllm_rbln",
        "create",
        "PyTorch ops and sampler of any vllm-rbln tree",
        ("torch", "vllm"),
    ),
    "mlx-lm": BuiltIn(
        "verispec.engines.adapters.mlx", "create", "generation of mlx-lm, plain and with a draft model", ("mlx_lm",)
    ),
    "openvino-genai": BuiltIn(
        _OPENVINO, "create", "generation of OpenVINO GenAI, with a draft model or prompt lookup", _OPENVINO_NEEDS
    ),
    "openvino-genai:prefix-caching": BuiltIn(
        _OPENVINO, "prefix_caching", "the same with prefix caching, the default of its LLMPipeline", _OPENVINO_NEEDS
    ),
    "onnxruntime-genai": BuiltIn(
        "verispec.engines.adapters.onnxruntime_genai",
        "create",
        "generation of ONNX Runtime GenAI, with a draft model or n-grams",
        ("torch", "transformers", "onnxruntime_genai"),
    ),
    "llama.cpp": BuiltIn(
        _LLAMA, "create", "generation of llama.cpp, with a draft model or n-grams of one length", _LLAMA_NEEDS
    ),
    "llama.cpp:ngram-cache": BuiltIn(_LLAMA, "ngram_cache", "the same with its cache of n-grams", _LLAMA_NEEDS),
    "llama.cpp:ngram-map-k": BuiltIn(_LLAMA, "ngram_map_k", "the same with its map from n-grams", _LLAMA_NEEDS),
    "llama.cpp:ngram-map-k4v": BuiltIn(
        _LLAMA, "ngram_map_k4v", "the same with its map from n-grams to four continuations", _LLAMA_NEEDS
    ),
    "llama.cpp:ngram-mod": BuiltIn(_LLAMA, "ngram_mod", "the same with its shared hashes of n-grams", _LLAMA_NEEDS),
    "sglang@SOURCE[#REV]": BuiltIn(
        "verispec.engines.adapters.sglang",
        "create",
        "rejection sampler and trees in Triton of any SGLang tree, interpreted or on a GPU",
        ("torch", "triton"),
    ),
    "lmdeploy@SOURCE[#REV]": BuiltIn(
        "verispec.engines.adapters.lmdeploy",
        "create",
        "rejection sampler in PyTorch of any LMDeploy tree",
        ("torch",),
    ),
    "flashinfer": BuiltIn(
        "verispec.engines.adapters.flashinfer",
        "create",
        "sampling of FlashInfer: drafts in a chain, top-k, top-p and min-p, on a GPU",
        ("torch", "flashinfer"),
    ),
    "tpu-inference": BuiltIn(
        "verispec.engines.adapters.tpu_inference",
        "create",
        "the sampler of tpu-inference, by JAX on a CPU or a GPU",
        ("torch", "jax", "flax", "vllm", "tpu_inference"),
        finds_gpu=True,
    ),
    HTTP: BuiltIn("verispec.engines.adapters.http", "create", "any server of the completions API, by its address"),
}
"""By the name that is shown to people. Modules are imported when an engine is asked for."""


def resolve(name: str, device: str | None = None) -> Engine:
    """Return the engine called `name`.

    Args:
        name: a name of `names()` with its SOURCE filled in, ``module:attr`` or ``module:attr@SOURCE``.
        device: "cpu", "cuda" or None for the engine's own choice.

    Raises:
        VerispecError: V-ENG-UNKNOWN, V-ENG-DEVICE, V-ENG-PROTOCOL, or the error of the engine's own module.
    """
    if device == "cuda":
        if not (name in BUILT_IN and BUILT_IN[name].finds_gpu):
            require_cuda()
    elif device not in (None, "cpu"):
        raise VerispecError(
            "V-ENG-DEVICE", f"unknown device {device!r}", where="--device", hint="devices are cpu and cuda"
        )
    if is_address(name):
        return _make(BUILT_IN[HTTP], name, device=device)
    kind, at, source = name.partition("@")
    if at and source and f"{kind}@SOURCE[#REV]" in BUILT_IN:
        return _make(BUILT_IN[f"{kind}@SOURCE[#REV]"], source, device=device)
    if name in BUILT_IN:
        return _make(BUILT_IN[name], device=device)
    if path := _import_path(name):
        from verispec.engines import import_path

        return import_path.load(path, device)
    raise unknown(name)


def is_address(name: str) -> bool:
    """Return True if the engine's name `name` is the address of a server."""
    return name.startswith(("http://", "https://")) and name != HTTP


def import_modules(name: str) -> None:
    """Import the modules that `resolve(name)` needs, and start nothing.

    A process that has done this is forked once per worker, so that workers need not import the modules again.
    The modules of ``@SOURCE`` engines are left out: they are unpacked and compiled by the engine's start. A server
    is asked for its models, and an engine whose package is missing is asked for its error.

    Args:
        name: name of an engine, as `resolve` takes it.

    Raises:
        VerispecError: the engine's own error.
        Exception: whatever the import of a module raises.
    """
    if is_address(name) or (name in BUILT_IN and BUILT_IN[name].missing):
        resolve(name).close()
    elif built_in := BUILT_IN.get(name):
        module = importlib.import_module(built_in.module)
        if preload := getattr(module, "preload", None):
            preload()
    elif (path := _import_path(name)) and "@" not in path:
        from verispec.engines import import_path

        import_path.import_attribute(path)


def require_known(name: str) -> None:
    """Raise an error if `name` cannot name an engine; import nothing to find out.

    Raises:
        VerispecError: V-ENG-UNKNOWN, with the nearest names.
    """
    if is_address(name):
        return
    kind, at, source = name.partition("@")
    if name not in BUILT_IN and not (at and source and f"{kind}@SOURCE[#REV]" in BUILT_IN) and not _import_path(name):
        raise unknown(name)


def require_place(name: str) -> None:
    """Raise an error if the engine `name` has an address that cannot be used, or a SOURCE that is not there.

    Raises:
        VerispecError: V-HTTP-URL or V-SRC-NOT-FOUND.
    """
    if is_address(name):
        from verispec.engines.adapters.http.address import Address

        Address.parse(name)
    elif source := name.partition("@")[2]:
        from verispec.engines.checkout import require_source

        require_source(source)


def _import_path(name: str) -> str:
    """Return ``module:attr[@SOURCE]`` for a name that leads to one; "" for any other."""
    kind, at, source = name.partition("@")
    path = next((entry.value for entry in entry_points(group=GROUP, name=kind)), kind)
    return f"{path}{at}{source}" if ":" in path and path not in BUILT_IN and not (at and not source) else ""


def unknown(name: str) -> VerispecError:
    """Return the error V-ENG-UNKNOWN for the engine `name`, with the nearest names."""
    near = difflib.get_close_matches(name.partition("@")[0], [n.partition("@")[0] for n in names()], n=3)
    known = [n for n in names() if n.partition("@")[0] in near]
    meant = f"did you mean {' or '.join(known)}? " if known else ""
    return VerispecError(
        "V-ENG-UNKNOWN",
        f"there is no engine {name!r}",
        where="--engine",
        hint=f"{meant}engines are {', '.join(names())}, or module:attr[@SOURCE]; see verispec engines",
    )


def names() -> list[str]:
    """Return the names of all engines, third parties' included; a listed engine need not work here."""
    return [*BUILT_IN, *sorted(entry.name for entry in entry_points(group=GROUP))]


def require_cuda(where: str = "--device cuda", hint: str = "omit --device, or use --device cpu") -> None:
    """Raise an error if no CUDA device can be used.

    Args:
        where: part of the command that asks for it.
        hint: hint of the error.

    Raises:
        VerispecError: V-ENG-DEVICE, torch is missing or built without CUDA, CUDA does not start, or it
            shows no device.
    """
    try:
        import torch
    except ImportError as error:
        raise VerispecError(
            "V-ENG-DEVICE", "CUDA needs torch, which is not installed", where=where, hint=hint
        ) from error
    if torch.version.cuda is None:
        raise VerispecError(
            "V-ENG-DEVICE",
            f"torch {torch.__version__} is built without CUDA",
            where=where,
            hint=f"install a CUDA build of torch, or {hint}",
        )
    try:
        torch.cuda.init()
    except RuntimeError as error:
        raise VerispecError(
            "V-ENG-DEVICE",
            _cuda_reason(str(error), torch.version.cuda),
            where=where,
            cause=str(error).splitlines()[0],
            hint=hint,
        ) from error
    if torch.cuda.device_count() == 0:
        raise VerispecError("V-ENG-DEVICE", "no CUDA device is visible", where=where, hint=hint)


def _cuda_reason(message: str, built_for: str) -> str:
    if "too old" in message:
        return f"the NVIDIA driver is too old for torch's CUDA {built_for}"
    if "no NVIDIA driver" in message:
        return "there is no NVIDIA driver here"
    return "CUDA cannot be started"


def _make(built_in: BuiltIn, *args: Any, **options: Any) -> Engine:
    factory = getattr(importlib.import_module(built_in.module), built_in.factory)
    engine: Engine = factory(*args, **options)
    return engine
