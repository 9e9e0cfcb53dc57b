"""Engine ``onnxruntime-genai`` over a generator made here: the options that it gets, and the steps that it reports.

The real generator has its own tox environment.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest

from verispec.engines import Unsupported, UnsupportedCall
from verispec.engines.adapters import onnxruntime_genai
from verispec.engines.protocol.generation import FinishReason, GenerationRequest, SpeculativeStep
from verispec.engines.registry import resolve
from verispec.errors import VerispecError


class Config:
    def __init__(self, folder: str) -> None:
        self.ends: list[int] = [99]

    def overlay(self, text: str) -> None:
        self.ends = [*self.ends, *json.loads(text)["model"]["eos_token_id"]]


class Params:
    made: ClassVar[list[Params]] = []

    def __init__(self, ends: list[int]) -> None:
        self.ends, self.search, self.speculative = ends, dict[str, Any](), dict[str, Any]()
        self.made.append(self)

    def set_search_options(self, **options: Any) -> None:
        self.search |= options

    def set_speculative_options(self, **options: Any) -> None:
        self.speculative |= options


class Generator:
    """Counts up from the prompt: a token without drafts, then rounds of two drafts, of which one is accepted."""

    def __init__(self, ends: list[int], params: Params) -> None:
        self.ends, self.params = ends, params

    def append_tokens(self, prompt: Any) -> None:
        self.tokens, self.emitted = prompt.tolist(), 0

    def is_done(self) -> bool:
        full = len(self.tokens) >= self.params.search["max_length"]
        return full or (self.emitted > 0 and self.tokens[-1] in self.ends)

    def generate_next_token(self) -> None:
        self.tokens.append(self.tokens[-1] + 1)
        self.emitted += 1

    def get_next_tokens(self) -> Any:
        return np.array(self.tokens[-1:])

    def get_speculative_stats(self) -> dict[str, int]:
        rounds = self.emitted // 2 if self.params.speculative else 0
        return {"rounds": rounds, "draft_tokens_proposed": 2 * rounds, "draft_tokens_accepted": rounds}


Load = Callable[..., Any]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Load:
    genai = ModuleType("onnxruntime_genai")
    parts = {"Config": Config, "Model": lambda config: config.ends, "GeneratorParams": Params, "Generator": Generator}
    for name, value in parts.items():
        setattr(genai, name, value)
    monkeypatch.setitem(sys.modules, "onnxruntime_genai", genai)
    monkeypatch.setattr(onnxruntime_genai, "converted", lambda folder: folder)
    config = {"vocab_size": 99, "max_position_embeddings": 64, "eos_token_id": 50}
    (tmp_path / "config.json").write_text(json.dumps(config))
    Params.made.clear()
    return lambda **options: resolve("onnxruntime-genai").load(tmp_path, **options)


def request(**fields: Any) -> GenerationRequest:
    return GenerationRequest(**{"prompt_token_ids": (3, 4), "max_tokens": 5} | fields)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime_genai", None)  # As if it were not installed.
    with pytest.raises(VerispecError, match="V-ENG-ONNX"):
        resolve("onnxruntime-genai")


def test_steps_are_those_of_the_counters(load: Load) -> None:
    [result] = load(method="ngram", ngram_max=3).generate([request()])
    assert result.token_ids == (5, 6, 7, 8, 9)
    assert result.steps == (SpeculativeStep(0, 0), SpeculativeStep(2, 1), SpeculativeStep(2, 1))
    assert Params.made[-1].speculative == {"max_draft_tokens": 3, "ngram_size": 4}


def test_limited_drafts_are_not_reported(load: Load) -> None:
    [result] = load(method="ngram").generate([request(temperature=1.0, top_k=3)])
    assert result.steps == ()


@pytest.mark.parametrize(
    ("fields", "count", "reason"),
    [
        ({"prompt_token_ids": (48,)}, 2, FinishReason.STOP),
        ({"prompt_token_ids": (48,), "ignore_eos": True}, 5, FinishReason.LENGTH),
        ({"prompt_token_ids": (48,), "ignore_eos": True, "stop_token_ids": (51,)}, 3, FinishReason.STOP),
    ],
)
def test_texts_end_at_the_stop_tokens(load: Load, fields: dict[str, Any], count: int, reason: FinishReason) -> None:
    [result] = load().generate([request(**fields)])
    assert (len(result.token_ids), result.finish_reason) == (count, reason)


def test_sampled_requests_have_their_fields(load: Load) -> None:
    load(seed=8).generate([request(temperature=0.5, top_k=7, min_tokens=2), request(temperature=1.0, seed=2**31 + 1)])
    first, second = (made.search for made in Params.made)
    assert (first["temperature"], first["top_k"], first["random_seed"], first["min_length"]) == (0.5, 7, 8, 4)
    assert second["random_seed"] == 1


def test_a_length_beyond_the_model_is_refused(load: Load) -> None:
    with pytest.raises(VerispecError, match="max_model_len=65"):
        load(max_model_len=65)


@pytest.mark.parametrize("options", [{"method": "suffix"}, {"dtype": "float16"}, {"num_blocks": 4}])
def test_options_that_it_lacks_are_unsupported(load: Load, options: dict[str, Any]) -> None:
    assert isinstance(load(**options), Unsupported)


@pytest.mark.parametrize("fields", [{"temperature": 1.0, "top_p": 0.9}, {"logprobs": 0}, {"stop": ("x",)}])
def test_parameters_that_it_lacks_are_unsupported(load: Load, fields: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedCall, match="ONNX Runtime GenAI has no"):
        load().generate([request(**fields)])
