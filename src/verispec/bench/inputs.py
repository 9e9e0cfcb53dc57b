"""Batches of a given shape, entropy and acceptance rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

OPS = ("verify_greedy", "verify_one_hot", "verify_draft_logits")
ROWS = ("peaked", "flat")
LIMITS = ("none", "top_k", "top_p", "both")
DTYPES = ("float32", "bfloat16")
_SPREAD = {"peaked": 3.0, "flat": 1.0}
_K, _P = 50, 0.9


@dataclass(frozen=True, slots=True)
class BenchShape:
    """Inputs to measure.

    Attributes:
        op: one of `OPS`.
        batch: requests.
        drafts: draft tokens per request.
        vocabulary: entries of a row.
        dtype: dtype of target and draft logits, one of `DTYPES`.
        rows: entropy of the rows, one of `ROWS`: standard deviations of 3 and of 1.
        acceptance: probability that a draft token is accepted, from 0 to 1.
        limits: one of `LIMITS`; top-k keeps 50 tokens, top-p a probability of 0.9.
    """

    op: str
    batch: int
    drafts: int
    vocabulary: int
    dtype: str = "float32"
    rows: str = "peaked"
    acceptance: float = 0.7
    limits: str = "none"

    @property
    def name(self) -> str:
        """Return the shape for people: requests x drafts x vocabulary, and the rest."""
        limits = "" if self.limits == "none" else f" {self.limits}"
        return f"{self.batch}x{self.drafts}x{self.vocabulary} {self.dtype} {self.rows} {self.acceptance:g}{limits}"


def make(shape: BenchShape, device: str, seed: int = 7) -> dict[str, Any]:
    """Return the arguments of the op of `shape` by parameter name, outputs included, on `device`."""
    import torch

    generator = torch.Generator(device).manual_seed(seed)
    count, columns = shape.batch, shape.drafts + 1
    rows = count * columns
    dtype = getattr(torch, shape.dtype)
    target = torch.randn(rows, shape.vocabulary, device=device, generator=generator) * _SPREAD[shape.rows]
    drafts = torch.randint(0, shape.vocabulary, (count, shape.drafts), device=device, generator=generator)
    inputs: dict[str, Any] = {}
    near = target.view(count, columns, shape.vocabulary)[:, : shape.drafts]
    if shape.op == "verify_greedy":
        hit = torch.rand(drafts.shape, device=device, generator=generator) < shape.acceptance
        drafts = torch.where(hit, near.argmax(-1), drafts)
    elif shape.op == "verify_one_hot":
        _set_probability(near, drafts, torch.full(drafts.shape, shape.acceptance, device=device))
    else:
        draft = near + 0.5 * torch.randn(near.shape, device=device, generator=generator)
        p = torch.softmax(near, -1).gather(-1, drafts[..., None])[..., 0]
        _set_probability(
            draft, drafts, (p / max(shape.acceptance, 1e-6)).clamp(max=0.99) if shape.acceptance < 1 else p / 2
        )
        inputs["draft_logits"] = draft.to(dtype)
    sampled = torch.zeros(count, columns, dtype=torch.int32, device=device)
    sampled[:, 1:] = drafts
    inputs |= {
        "sampled": torch.full((count, columns), -1, dtype=torch.int64, device=device),
        "target_logits": target.to(dtype),
        "draft_sampled": sampled.view(-1),
        "cu_num_logits": torch.arange(0, rows + 1, columns, dtype=torch.int32, device=device),
        "idx_mapping": torch.arange(count, dtype=torch.int32, device=device),
    }
    for name in ("num_sampled", "num_rejected", "next_token", "next_row"):
        inputs[name] = torch.zeros(count, dtype=torch.int32, device=device)
    if shape.op != "verify_greedy":
        inputs |= {
            "pos": torch.arange(rows, device=device) + 1000,
            "temperature": torch.ones(count, device=device),
            "seed": torch.arange(count, device=device) * 7919 + seed,
        }
        if shape.limits in {"top_k", "both"}:
            inputs["top_k"] = torch.full((count,), _K, dtype=torch.int32, device=device)
        if shape.limits in {"top_p", "both"}:
            inputs["top_p"] = torch.full((count,), _P, device=device)
    return inputs


def _set_probability(logits: torch.Tensor, tokens: torch.Tensor, probability: torch.Tensor) -> None:
    """Give each of `tokens`, [..., k], its probability in the rows `logits`, [..., k, V], in place."""
    import torch

    index = tokens[..., None]
    others = logits.scatter(-1, index, -torch.inf).logsumexp(-1)
    logits.scatter_(-1, index, (torch.logit(probability, eps=1e-9) + others)[..., None])
