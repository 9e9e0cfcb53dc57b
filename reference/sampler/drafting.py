"""Sampling of draft tokens: greedy requests take the argmax, others sample the drafter's distribution.

`sample_drafts` serves packed batches with generators, `sample_drafts_by_seed` slot-indexed batches with a counter-based
RNG.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from . import ops

_BLOCK = 1 << 15
"""Random numbers that become noise together: float64 numbers that stay in a fast cache."""


def noise_dtype(device: torch.device) -> torch.dtype:
    """Return the type that exponential noise is kept in: float64, as it is drawn, on CUDA; float32 on the CPU.

    It has 53 bits on both. Of 24 bits, as torch's float32 noise on CUDA, no number is below 2^-24, so that tokens less
    likely than 1e-8 are never drawn (vllm#43150).
    """
    return torch.float64 if device.type == "cuda" else torch.float32


def exponential_noise(size: int, generator: torch.Generator, device: torch.device) -> torch.Tensor:
    """Return [size] samples of Exp(1) in `noise_dtype`, above 0; argmax of p / noise is a sample from p."""
    return fill_with_noise(torch.empty(1, size, dtype=noise_dtype(device), device=device), [generator])[0]


def fill_with_noise(rows: torch.Tensor, generators: Sequence[torch.Generator | None]) -> torch.Tensor:
    """Fill `rows` [n, V] in place with samples of Exp(1) above 0, each row from its own generator, and return them.

    A row without a generator is filled with ones. On the CPU the samples are -log(u) of 53-bit u below 1, in a third of
    the time of torch's `exponential_`, which takes logarithms one by one there.
    """
    if rows.device.type == "cuda":
        for row, generator in zip(rows, generators, strict=True):
            if generator is not None:
                row.exponential_(generator=generator).clamp_(min=torch.finfo(row.dtype).tiny)
    else:
        size = max(_BLOCK // rows.shape[1], 1)
        for start in range(0, len(rows), size):
            part = rows[start : start + size]
            wide = part if part.dtype == torch.float64 else torch.zeros_like(part, dtype=torch.float64)
            for row, generator in zip(wide.unbind(), generators[start : start + size], strict=True):
                if generator is not None:
                    row.uniform_(generator=generator)
            wide.log_().neg_()
            if wide is not part:
                part.copy_(wide)
    if without := [n for n, generator in enumerate(generators) if generator is None]:
        rows[without] = 1
    return rows


def sample_drafts(
    logits: torch.Tensor, temperatures: Sequence[float], generators: Sequence[torch.Generator]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sample one draft token per request.

    The draft distribution is softmax(logits / temperature). Top-k and similar limits shape only the target, which is
    lossless for any draft distribution (Leviathan et al. 2023, theorem 3.5).

    Args:
        logits: [B, V] over the target's vocabulary.
        temperatures: one per request; 0 takes the argmax.
        generators: one per request; those of sampled requests advance by V samples.

    Returns:
        Token ids [B] int64, and the probabilities that they were sampled from, [B, V] float32. Rows of greedy requests
        are undefined.
    """
    scale = torch.tensor([temperature or 1.0 for temperature in temperatures], device=logits.device)
    probs = torch.softmax(logits.float() / scale[:, None], dim=-1)
    drawn = [generator if t else None for t, generator in zip(temperatures, generators, strict=True)]
    noise = fill_with_noise(torch.empty_like(probs, dtype=noise_dtype(probs.device)), drawn)
    return (probs / noise).argmax(dim=-1), probs  # a row of ones takes the most likely token


def sample_drafts_by_seed(
    logits: torch.Tensor,
    *,
    idx_mapping: torch.Tensor,
    temperature: torch.Tensor,
    seed: torch.Tensor,
    pos: torch.Tensor,
    step: int,
    draft_logits: torch.Tensor,
) -> torch.Tensor:
    """Sample the draft token of one step for every request, and store its logits for verification.

    The random samples differ from those of a verification at the same position and step.

    Args:
        logits: [B, V] over the target's vocabulary, before temperature.
        idx_mapping: [B] int32 state of each request; -1 is padding.
        temperature: [R] float32; 0 takes the argmax.
        seed: [R] int64.
        pos: [B] int64 position of the token before the draft token.
        step: number of draft tokens of the block before this one.
        draft_logits: [R, K, V] float32; [state, step] receives the request's logits.

    Returns:
        Token ids [B] int64; 0 for padding.
    """
    token_ids = torch.zeros(logits.shape[0], dtype=torch.int64, device=logits.device)
    ops.run(
        "gumbel_sample",
        logits.device,
        sampled=token_ids,
        logits=logits,
        expanded_idx_mapping=idx_mapping,
        temperature=temperature,
        seed=seed,
        pos=pos,
        apply_temperature=True,
        is_drafting=True,
        logits_cache=draft_logits,
        logits_cache_col=torch.full_like(idx_mapping, step),
    )
    return token_ids


@dataclass(frozen=True, slots=True)
class SeededDraw:
    """Draws a draft token per request by `sample_drafts_by_seed`; see there for the tensors.

    All of its numbers come from these tensors, so that a recorded graph can draw.
    """

    idx_mapping: torch.Tensor
    temperature: torch.Tensor
    seed: torch.Tensor
    draft_logits: torch.Tensor

    def __call__(self, logits: torch.Tensor, pos: torch.Tensor, step: int) -> tuple[torch.Tensor, None]:
        """Return the ids of draft token number `step`, [B], and keep the logits for verification."""
        token_ids = sample_drafts_by_seed(
            logits.float(),
            idx_mapping=self.idx_mapping,
            temperature=self.temperature,
            seed=self.seed,
            pos=pos,
            step=step,
            draft_logits=self.draft_logits,
        )
        return token_ids, None
