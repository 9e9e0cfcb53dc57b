"""examples/grammar_library: a matcher of xgrammar, which vLLM brings along, steers speculative generation."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from verispec.engines import GenerationRequest
from verispec.engines.adapters.reference import cpu
from verispec.suites.e2e._tiny import EOS, save_tiny

pytestmark = pytest.mark.vllm

EXAMPLE = Path(__file__).parents[2] / "examples/grammar_library"
VOCABULARY = ["<end>", *"abcdefg"]
PATTERN = "(ab|cde)*f"


@pytest.fixture
def grammar(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    yield importlib.import_module("regex_grammar").RegexGrammar(PATTERN, VOCABULARY, EOS)
    sys.modules.pop("regex_grammar", None)


def test_the_matcher_allows_what_continues_a_match(grammar: Any) -> None:
    following = {"": "acf", "a": "b", "ab": "acf", "cd": "e", "abf": ""}
    for text, expected in following.items():
        state = tuple(VOCABULARY.index(letter) for letter in text)
        allowed = {VOCABULARY[token] for token in grammar.allowed(state)}
        assert allowed == (set(expected) or {"<end>"})


@pytest.mark.parametrize("drafter", ["target", "draft"])
def test_texts_match_under_speculation(grammar: Any, drafter: str, tmp_path: Path) -> None:
    """Texts that end match as a whole, the others could go on; drafts are accepted and rejected."""
    folders = save_tiny(tmp_path)
    generator = cpu().load(
        folders["target"], method="draft_model", draft=folders[drafter], num_speculative_tokens=3, max_model_len=64
    )
    asked = [
        GenerationRequest((first, 5), max_tokens=24, temperature=heat, seed=first, grammar=grammar)
        for first in range(1, 8)
        for heat in (0.0, 1.5)
    ]
    ended = 0
    for result in generator.generate(asked):
        text = "".join(VOCABULARY[token] for token in result.token_ids if token != EOS)
        if EOS in result.token_ids:
            ended += 1
            assert re.fullmatch(PATTERN, text)
        else:
            assert re.fullmatch(f"{PATTERN[:-1]}(a|c|cd|f)?", text)
    metrics = generator.metrics()
    generator.close()
    assert ended
    assert 0 < metrics.num_accepted_tokens < metrics.num_draft_tokens
