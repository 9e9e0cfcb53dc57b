"""Engine ``flashinfer``: the sampling kernels of FlashInfer, called as the engines that build on it call them.

Drafts with probabilities are verified by `chain_speculative_sampling`, against probabilities that are renormalised for
top-k and top-p, as in TensorRT-LLM. Without draft probabilities a token is sampled at every row, by the function for
the limits of the batch. Drafts are kept while they are the sampled tokens. Greedy requests are certain of the argmax.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from typing import Any, ClassVar

import torch

from verispec.engines import Description, DraftedTokens, Engine, OpFunction, SamplerBatch, Unsupported, UnsupportedCall
from verispec.engines.adapters.partial import PartialEngine, imported, refuse
from verispec.engines.adapters.rectangular import Group, by_groups
from verispec.engines.registry import require_cuda
from verispec.errors import VerispecError

HINT = "pip install flashinfer-python==0.7.4 on a machine with a GPU, the CUDA toolkit and ninja"


class FlashInfer(PartialEngine):
    """The FlashInfer installed here, its kernels built for this GPU."""

    lacks: ClassVar = {
        "load": "FlashInfer is a library of kernels, and generates nothing",
        "definitions": "its functions are no ops with callers of their own",
    }

    def __init__(self) -> None:
        require_cuda("--engine flashinfer", HINT)
        [self._kernels] = imported("V-ENG-FLASHINFER", "flashinfer", ("flashinfer.sampling",), HINT)
        try:
            self._kernels.get_sampling_module()
        except (RuntimeError, OSError) as error:
            where, message = "--engine flashinfer", "the sampling kernels of FlashInfer cannot be built"
            raise VerispecError("V-ENG-FLASHINFER", message, where=where, cause=str(error), hint=HINT) from error

    def describe(self) -> Description:
        """Return the version, and the GPU."""
        details = {"gpu": torch.cuda.get_device_name(), "cuda": str(torch.version.cuda)}
        return Description("flashinfer", version("flashinfer-python"), "cuda", "cuda", details)

    def op(self, name: str) -> OpFunction | Unsupported:
        """Return top-k and top-p, the only function with a contract."""
        return self._mask if name == "apply_top_k_top_p" else Unsupported(f"FlashInfer has no {name}")

    def sampler(self, family: str = "flat") -> Any | Unsupported:
        """Return the sampler of packed batches."""
        if family != "flat":
            return Unsupported(f"FlashInfer has no {family} sampler")
        return FlashInferSampler(self._kernels, self.describe().device)

    def _mask(
        self, *, output: torch.Tensor, logits: torch.Tensor, k: torch.Tensor | None, p: torch.Tensor | None
    ) -> None:
        """Mask logits by top-k, then the tokens that get no probability under top-p."""
        if not all(given.is_contiguous() for given in (logits, k, p) if given is not None):
            raise UnsupportedCall("its kernels take dense tensors")
        if not len(logits):
            raise UnsupportedCall("its kernels take at least one row, and no caller is known that has none")
        kept = logits if k is None else self._kernels.top_k_mask_logits(logits, k)
        if p is not None:
            probs = torch.softmax(kept.float(), dim=-1)
            dropped = self._kernels.top_p_renorm_probs(probs, p) == 0
            # A probability may be 0 in float32; with a p of 1 this says nothing about top-p.
            kept = kept.masked_fill(dropped & ((probs > 0) | (p < 1)[:, None]), float("-inf"))
        output.copy_(kept)


class FlashInferSampler:
    """Steps over the functions of `flashinfer.sampling`.

    Args:
        kernels: the module with these functions.
        device: device of its tensors, "cuda" outside of tests.
    """

    def __init__(self, kernels: Any, device: str) -> None:
        self._kernels, self._device = kernels, device

    def __call__(self, batch: SamplerBatch) -> list[list[int]]:
        """Return the emitted tokens of one step."""
        refuse(
            batch,
            synthetic_rates="FlashInfer has no synthetic acceptance",
            seeds="seeded rows depend on their place in the batch, as its documentation says",
        )
        if any(token < 0 for ids in batch.draft_token_ids for token in ids):
            raise UnsupportedCall("its kernels read the probability of any draft id, without a check")
        if batch.draft_probs is None:
            return self._matched(batch)
        if batch.min_p is not None:
            raise UnsupportedCall("FlashInfer renormalises for top-k and top-p alone, so that min-p cannot verify")
        return by_groups(batch, lambda group: self._chained(batch, group))

    def draft_and_verify(self, batch: SamplerBatch, draft_logits: torch.Tensor) -> DraftedTokens:
        """Draw drafts position by position, then verify them by the same generator."""
        place = torch.tensor([(b, j) for b, count in enumerate(batch.counts) for j in range(count)]).reshape(-1, 2)
        probs = self._probabilities(replace(batch, top_k=None, top_p=None), draft_logits, place[:, 0].tolist())
        drawn = torch.zeros(len(place), dtype=torch.int32)
        for j in range(max(batch.counts, default=0)):
            drawn[place[:, 1] == j] = self._kernels.sampling_from_probs(probs[place[:, 1] == j]).cpu()
        tokens = iter(drawn.tolist())
        drafts = [list(itertools.islice(tokens, count)) for count in batch.counts]
        return DraftedTokens(drafts, self(replace(batch, draft_token_ids=drafts, draft_probs=probs.cpu())))

    def _chained(self, batch: SamplerBatch, group: Group) -> list[list[int]]:
        """Verify a group of requests with draft probabilities."""
        requests, logits = [b for b in group.requests for _ in range(group.count + 1)], group.logits.flatten(0, 1)
        if group.draft_probs is None or not group.count:
            return [[token] for token in self._drawn(batch, logits, requests).tolist()]
        target = self._probabilities(batch, logits, requests).view(group.logits.shape)
        output, _, _ = self._kernels.chain_speculative_sampling(
            group.draft_probs.to(self._device), group.drafts.int().to(self._device), target
        )
        return [[token for token in row if token >= 0] for row in output.tolist()]

    def _matched(self, batch: SamplerBatch) -> list[list[int]]:
        """Sample a token at every row, and keep drafts while they are the sampled tokens."""
        requests = [b for b, count in enumerate(batch.counts) for _ in range(count + 1)]
        sampled = iter(self._drawn(batch, batch.logits, requests).tolist())
        emitted = []
        for drafts in batch.draft_token_ids:
            rows = list(itertools.islice(sampled, len(drafts) + 1))
            wrong = (j for j, draft in enumerate(drafts) if rows[j] != draft)
            emitted.append(rows[: next(wrong, len(drafts)) + 1])
        return emitted

    def _drawn(self, batch: SamplerBatch, logits: torch.Tensor, requests: list[int]) -> torch.Tensor:
        """Return one sampled token per row, by the function for the limits that the batch has."""
        limits = [name for name in ("top_k", "top_p") if getattr(batch, name) is not None]
        within = replace(batch, top_k=None, top_p=None)
        if batch.min_p is not None:  # It has no function for all three.
            limits, within = ["min_p"], batch
        values = [self._per_row(getattr(batch, name), requests) for name in limits]
        sample: Callable[..., torch.Tensor] = getattr(self._kernels, "_".join([*limits, "sampling_from_probs"]))
        return sample(self._probabilities(within, logits, requests), *values)

    def _probabilities(self, batch: SamplerBatch, logits: torch.Tensor, requests: list[int]) -> torch.Tensor:
        """Return the probabilities of rows under the temperature, top-k and top-p of their requests."""
        logits, temperature = logits.to(self._device), self._per_row(batch.temperature, requests)
        greedy = temperature == 0
        probs: torch.Tensor = self._kernels.softmax(logits, temperature.masked_fill(greedy, 1.0))
        if batch.top_k is not None:
            probs = self._kernels.top_k_renorm_probs(probs, self._per_row(batch.top_k, requests))
        if batch.top_p is not None:
            probs = self._kernels.top_p_renorm_probs(probs, self._per_row(batch.top_p, requests))
        certain = torch.nn.functional.one_hot(logits.argmax(dim=-1), logits.shape[-1]).float()
        return torch.where(greedy[:, None], certain, probs)

    def _per_row(self, values: torch.Tensor, requests: list[int]) -> torch.Tensor:
        return values[requests].to(self._device)


def create(device: str | None = None) -> Engine:
    """Return the FlashInfer installed here.

    Args:
        device: None or "cuda".

    Raises:
        VerispecError: V-ENG-DEVICE, for the CPU, or without a usable GPU. V-ENG-FLASHINFER, the package is missing or
            its kernels cannot be built.
    """
    if device == "cpu":
        raise VerispecError(
            "V-ENG-DEVICE", "FlashInfer has no kernels for the CPU", where="--device cpu", hint=f"omit --device; {HINT}"
        )
    return FlashInfer()
