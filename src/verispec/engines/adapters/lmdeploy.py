"""Engine ``lmdeploy@SOURCE``: the rejection sampler of LMDeploy's PyTorch engine, out of any tree or release.

Its `RejectionSampler` runs as its agent of speculation calls it: processed logits of a rectangular batch, one sampling
policy per token, no draft probabilities. A step without drafts is sampled alone, as after a prompt. The backend is the
portable one in PyTorch.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any, ClassVar

import torch

from verispec.engines import Description, Engine, SamplerBatch, Unsupported, UnsupportedCall
from verispec.engines.accelerator_stubs import bare_packages, import_under_test, install
from verispec.engines.adapters.partial import (
    PartialEngine,
    import_errors,
    refuse,
    require_cpu,
    require_module,
    version_of,
)
from verispec.engines.adapters.rectangular import Group, by_groups

_PYTORCH = "lmdeploy.pytorch"
_SAMPLER, _PROCESSOR = f"{_PYTORCH}.spec_decode.reject_sampler", f"{_PYTORCH}.engine.logits_process"
_BACKENDS = tuple(f"{_PYTORCH}.backends.default.{name}_sampling" for name in ("rejection", "multinomial"))
_PARTS = ("pytorch", *(f"pytorch.{part}" for part in ("backends", "backends.default", "engine", "nn", "spec_decode")))
_REPLACED: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "lmdeploy.messages": {},
        **{
            f"{_PYTORCH}.{name}": {}
            for name in ("backends.cache", "config", "engine.guided_process", "envs", "messages")
        },
    }
)


class LmDeploy(PartialEngine):
    """A tree of LMDeploy."""

    lacks: ClassVar = {
        "op": "its kernels are those of rectangular batches, which have no contract",
        "load": "its model agent needs an accelerator",
        "definitions": "its callers choose their kernels on an accelerator; verispec signatures reads them from source",
    }

    def __init__(self, source: str) -> None:
        from verispec.engines.checkout import unpack

        root = unpack(source)
        self._version = version_of(root, "lmdeploy", source)
        require_module(
            root, _SAMPLER, "V-ENG-LMDEPLOY", source,
            what="rejection sampler of LMDeploy", hint="name a folder or a release of LMDeploy, 0.18.0 or later",
        )  # fmt: skip
        self._stubs = install({}, _REPLACED, (_SAMPLER, _PROCESSOR, *_BACKENDS))
        bare_packages(root, "lmdeploy", _PARTS)
        sys.modules[f"{_PYTORCH}.backends"].get_backend = self._backend  # type: ignore[attr-defined]
        with import_errors(
            "V-ENG-LMDEPLOY",
            "the rejection sampler of this LMDeploy cannot be imported",
            f"lmdeploy@{source}",
            "install the package that is missing beside torch",
        ):
            rejection, multinomial = (import_under_test(name) for name in _BACKENDS)
            self._built = {
                "RejectionSamplingBuildSpec": rejection.DefaultRejectionSamplingImpl(),
                "MultinomialSamplingBuildSpec": multinomial.DefaultMultinomialSamplingImpl(),
            }
            self._processing = import_under_test(_PROCESSOR)
            self._rejection = import_under_test(_SAMPLER).RejectionSampler()

    def describe(self) -> Description:
        """Return the version, and the stubs of missing parts."""
        return Description("lmdeploy", self._version, "cpu", "cpu", {"stubs": " ".join(self._stubs)})

    def sampler(self, family: str = "flat") -> Any | Unsupported:
        """Return the sampler of packed batches, which it gets in groups of equal numbers of drafts."""
        return self._sample if family == "flat" else Unsupported(f"LMDeploy has no {family} sampler")

    def _backend(self, backend_type: str | None = None) -> Any:
        """Return the portable backend, as far as sampling needs it."""
        return SimpleNamespace(build_op=lambda spec: self._built[type(spec).__name__])

    def _sample(self, batch: SamplerBatch) -> list[list[int]]:
        """Return the emitted tokens of one step."""
        refuse(
            batch,
            synthetic_rates="LMDeploy has no synthetic acceptance",
            seeds="its verification draws from one generator for all requests",
            draft_probs="its agent passes no draft probabilities",
        )
        if any(token < 0 for ids in batch.draft_token_ids for token in ids):
            raise UnsupportedCall("its proposers make no padding tokens")
        return by_groups(batch, lambda group: self._verified(batch, group))

    def _verified(self, batch: SamplerBatch, group: Group) -> list[list[int]]:
        temperature = group.of(batch.temperature)
        logits = group.logits / temperature.masked_fill(temperature == 0, 1.0)[:, None, None]
        policies = self._policies(batch, group, temperature == 0)
        if not group.count:
            tokens = self._processing.FusedLogitsProcessor(policies).sampling(logits[:, 0])
            return [[token] for token in tokens.tolist()]
        output, _, _ = self._rejection(logits, group.drafts, policies)
        return [[token for token in row if token >= 0] for row in output.tolist()]

    def _policies(self, batch: SamplerBatch, group: Group, greedy: torch.Tensor) -> Any:
        """Return one sampling policy per token, as its strategy makes them: a greedy request has top-k 1."""
        width, vocab_size = group.count + 1, batch.vocab_size
        top_k = torch.zeros(len(greedy), dtype=torch.int64) if batch.top_k is None else group.of(batch.top_k).long()
        top_k = top_k.masked_fill(top_k >= vocab_size, 0).masked_fill(greedy, 1)
        most = 0 if bool((top_k <= 0).any()) else int(top_k.max())
        if most == 1:
            return self._processing.SamplingInputs(max_top_k=1, has_greedy=True, batch_size=len(greedy) * width)
        limits = {"top_k": None if bool((top_k == most).all()) else top_k}
        for name, off in (("top_p", 1.0), ("min_p", 0.0)):
            values = getattr(batch, name)
            values = None if values is None else group.of(values)
            limits[name] = None if values is None or bool((values == off).all()) else values
        expanded = {n: None if v is None else v.repeat_interleave(width) for n, v in limits.items()}
        size = len(greedy) * width
        return self._processing.SamplingInputs(
            **expanded, max_top_k=most, has_greedy=bool(greedy.any()), batch_size=size
        )


def create(source: str, device: str | None = None) -> Engine:
    """Return the LMDeploy of a source.

    Args:
        source: a folder, ``folder#REV``, an archive or ``name==version``.
        device: None or "cpu".

    Raises:
        VerispecError: V-ENG-LMDEPLOY, the source has no such sampler. V-ENG-DEVICE, for another device.
    """
    require_cpu(device, "lmdeploy")
    return LmDeploy(source)
