"""The sampler of vllm-ascend's second generation of workers, over its kernels in Triton: `rejection_sample`.

It finds requests by slots of a table and draws from a seed and a position, as vLLM's own. Its kernels take two more
from the installed vLLM, which has to be the one that the release was made for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from verispec.engines import SamplerBatch
from verispec.engines.adapters.partial import limits_of_triton, refuse

MODULE = "vllm_ascend.worker.v2.spec_decode.rejection_sampler_utils"
LIMITS = "vllm_ascend.worker.v2.sample.apply_top_k_top_p"
"""Its top-k and top-p in PyTorch, which later releases have."""
PARTS = (
    *("worker", "worker.v2", "worker.v2.sample", "worker.v2.spec_decode"),
    *("ops.triton.v2", "ops.triton.v2.spec_decode"),
)
"""Packages of these modules and of their imports, whose ``__init__`` is not run."""


class SlotSampler:
    """Verify the drafts of a step as its model runner does, after temperature, top-k and top-p.

    Slots are given in reverse order, so that a request's slot is not its place. A block starts its sequence: row i
    of a request has position i. A request without a seed gets one from torch's default generator.

    Args:
        rejection_sample: its sampler.
        apply_top_k_top_p: its limits of logits, None in a release that applies them by code for an NPU alone.
    """

    def __init__(
        self,
        rejection_sample: Callable[..., tuple[torch.Tensor, torch.Tensor]],
        apply_top_k_top_p: Callable[..., torch.Tensor] | None = None,
    ) -> None:
        self._sample, self._apply_limits = rejection_sample, apply_top_k_top_p

    def __call__(self, batch: SamplerBatch) -> list[list[int]]:
        """Return the emitted tokens of one step.

        Raises:
            UnsupportedCall: the batch has min_p, synthetic rates, or limits that this release applies on an NPU alone.
        """
        refuse(
            batch,
            min_p="its min-p is another kernel, which this adapter does not drive",
            synthetic_rates="this adapter drives no synthetic acceptance",
        )
        if self._apply_limits is None:
            reason = "this release applies top-k and top-p by code for an NPU"
            refuse(batch, top_k=reason, top_p=reason)
        counts = torch.tensor(batch.counts)
        rows = counts + 1
        slots = torch.arange(len(rows)).flip(0)
        ends = torch.cat((torch.zeros(1, dtype=torch.int64), rows.cumsum(0)))
        place = torch.arange(int(ends[-1])) - ends[:-1].repeat_interleave(rows)
        heat = torch.where(batch.temperature > 0, batch.temperature, 1.0)
        width = max([1, *batch.counts])
        logits = batch.logits.float() / heat.repeat_interleave(rows)[:, None]
        if self._apply_limits is not None:
            limits = (None if given is None else given.repeat_interleave(rows) for given in (batch.top_k, batch.top_p))
            logits = self._apply_limits(logits, *limits)
        arguments = {
            "target_logits": logits,
            "draft_logits": _draft_logits(batch, slots, heat, width),
            # The first row's token is the last one of the text, which is never compared.
            "draft_sampled": torch.tensor([token for ids in batch.draft_token_ids for token in (0, *ids)]),
            "cu_num_logits": ends.int(),
            "pos": place,
            "idx_mapping": slots.int(),
            "expanded_idx_mapping": slots.repeat_interleave(rows).int(),
            "expanded_local_pos": place.int(),
            "temperature": batch.temperature.float().flip(0),
            "seed": torch.tensor(_seeds(batch)).flip(0),
            "num_speculative_steps": width,
        }
        with limits_of_triton():
            tokens, emitted = self._sample(**arguments)
        return [ids[:count] for ids, count in zip(tokens.tolist(), emitted.tolist(), strict=True)]


def _draft_logits(batch: SamplerBatch, slots: torch.Tensor, heat: torch.Tensor, width: int) -> torch.Tensor | None:
    """Return logits [B, K, V] by slot, whose softmax over the temperature is the batch's draft distribution."""
    if batch.draft_probs is None:
        return None
    counts = torch.tensor(batch.counts)
    step = torch.arange(batch.num_drafts) - (counts.cumsum(0) - counts).repeat_interleave(counts)
    logits = torch.zeros(len(counts), width, batch.vocab_size)
    logits[slots.repeat_interleave(counts), step] = batch.draft_probs.log() * heat.repeat_interleave(counts)[:, None]
    return logits


def _seeds(batch: SamplerBatch) -> list[int]:
    fresh = torch.randint(-(2**63), 2**63 - 1, (len(batch.counts),), dtype=torch.int64).tolist()
    given: list[Any] = list(batch.seeds or fresh)
    return [new if seed is None else int(seed) for seed, new in zip(given, fresh, strict=True)]
