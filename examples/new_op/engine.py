"""An engine that has one op of its own."""

from __future__ import annotations

from typing import Any

import torch

from verispec.engines import Description, OpFunction, Unsupported


def cap_draft_tokens(capped: Any, num_drafts: Any, seq_lens: Any, max_len: int) -> None:
    """Write the capped numbers of draft tokens, [B], in place."""
    capped.copy_(torch.minimum(num_drafts, max_len - seq_lens - 1).clamp(min=0))


class Engine:
    """Answer verispec's questions; everything but the one op is unsupported."""

    def describe(self) -> Description:
        return Description("my engine", "1.0", platform="cpu")

    def op(self, name: str) -> OpFunction | Unsupported:
        return cap_draft_tokens if name == "cap_draft_tokens" else Unsupported("not written yet")

    def sampler(self, family: str = "flat") -> Unsupported:
        return Unsupported("not written yet")

    def load(self, target: Any, **options: Any) -> Unsupported:
        return Unsupported("not written yet")

    def definitions(self) -> Unsupported:
        return Unsupported("not written yet")

    def close(self) -> None:
        """Release nothing: there are no resources."""
