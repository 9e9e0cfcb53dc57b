"""An engine with a verification rule of its own."""

from __future__ import annotations

from typing import Any

import torch

from verispec.engines import Description, OpFunction, Unsupported


def multi_draft_verify(output: Any, drafts: Any, p: Any, q: Any, uniform: Any, last: Any) -> None:
    """Write the chosen tokens, [B], in place; all requests at once."""
    rows = torch.arange(len(drafts))
    residual, chosen = p.clone(), torch.full((len(drafts),), -1)
    for k, draft in enumerate(drafts.long().unbind(1)):
        accepted = uniform[:, k] * q[rows, draft] < residual[rows, draft]
        chosen = torch.where((chosen < 0) & accepted, draft, chosen)
        residual = (residual - q).clamp(min=0)
        residual /= residual.sum(1, keepdim=True)
    ends = residual.cumsum(1)
    drawn = torch.searchsorted(ends, last[:, None] * ends[:, -1:], right=True)[:, 0]
    output.copy_(torch.where(chosen < 0, drawn, chosen))


class Engine:
    """Answer verispec's questions; everything but the one op is unsupported."""

    def describe(self) -> Description:
        return Description("my engine", "1.0", platform="cpu")

    def op(self, name: str) -> OpFunction | Unsupported:
        return multi_draft_verify if name == "multi_draft_verify" else Unsupported("not written yet")

    def sampler(self, family: str = "flat") -> Unsupported:
        return Unsupported("not written yet")

    def load(self, target: Any, **options: Any) -> Unsupported:
        return Unsupported("not written yet")

    def definitions(self) -> Unsupported:
        return Unsupported("not written yet")

    def close(self) -> None:
        """Release nothing: there are no resources."""
