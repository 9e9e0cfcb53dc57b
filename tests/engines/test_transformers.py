"""The engine of transformers: what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from verispec import fixtures
from verispec.engines import UnsupportedCall, registry
from verispec.engines.protocol.generation import GenerationRequest

DRAFTING: list[dict[str, Any]] = [{"method": "ngram"}, {"method": "draft_model", "draft": fixtures.model("draft")}]


@pytest.mark.parametrize("options", DRAFTING, ids=["ngram", "draft_model"])
def test_drafts_for_a_recurrent_model_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedCall, match="does not draft for recurrent models, such as GraniteMoeHybrid"):
        registry.resolve("transformers").load(fixtures.model("hybrid"), **options)


def test_a_recurrent_model_generates_without_drafts() -> None:
    generator = registry.resolve("transformers").load(fixtures.model("hybrid"))
    [result] = generator.generate([GenerationRequest((5, 6, 7), max_tokens=4, ignore_eos=True)])
    assert len(result.token_ids) == 4
