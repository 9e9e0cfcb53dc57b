"""The engine of transformers: what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from verispec import fixtures
from verispec.engines import UnsupportedCall, registry
from verispec.engines.protocol.generation import GenerationRequest
from verispec.suites.e2e._tiny import save_tiny

DRAFTING: list[dict[str, Any]] = [{"method": "ngram"}, {"method": "draft_model", "draft": fixtures.model("draft")}]


@pytest.mark.parametrize("options", DRAFTING, ids=["ngram", "draft_model"])
def test_drafts_for_a_recurrent_model_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedCall, match="does not draft for recurrent models, such as GraniteMoeHybrid"):
        registry.resolve("transformers").load(fixtures.model("hybrid"), **options)


def test_a_recurrent_model_generates_without_drafts() -> None:
    generator = registry.resolve("transformers").load(fixtures.model("hybrid"))
    [result] = generator.generate([GenerationRequest((5, 6, 7), max_tokens=4, ignore_eos=True)])
    assert len(result.token_ids) == 4


def test_a_draft_model_of_another_vocabulary_is_refused(tmp_path: Path) -> None:
    small = save_tiny(tmp_path)["draft"]
    with pytest.raises(UnsupportedCall, match="a draft model with a vocabulary of 8 tokens; the target has 2048"):
        registry.resolve("transformers").load(fixtures.model("target"), method="draft_model", draft=small)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"logit_bias": {9999: 1.0}}, "vocabulary size is 2048, .* being biased: .9999."),
        ({"allowed_token_ids": (4, 9999)}, r"no tokens \[9999\] of allowed_token_ids"),
    ],
    ids=["bias", "allowed ids"],
)
def test_unknown_ids_are_refused_in_words(fields: dict[str, Any], words: str) -> None:
    generator = registry.resolve("transformers").load(fixtures.model("target"))
    with pytest.raises(UnsupportedCall, match=words):
        generator.generate([GenerationRequest((5, 6, 7), max_tokens=2, **fields)])
