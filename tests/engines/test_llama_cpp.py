"""Engine ``llama.cpp`` over a server made here: the options that it gets, and the tokens and steps of its answers.

The real server has its own tox environment.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest

from verispec.engines import Unsupported, UnsupportedCall
from verispec.engines.adapters import llama_cpp
from verispec.engines.adapters.llama_text import MARKS, stop_token, stop_words, tokens_of, word
from verispec.engines.protocol.generation import FinishReason, GenerationRequest, SpeculationMetrics, SpeculativeStep
from verispec.engines.registry import resolve
from verispec.errors import VerispecError


class Open(SimpleNamespace):
    """An object with every attribute that is asked for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        setattr(self, name, Open())
        return getattr(self, name)


class Server:
    """Counts up from the prompt: a token without drafts, then rounds of two drafts, of which one is accepted."""

    made: ClassVar[list[Server]] = []

    def __init__(self, parameters: Any) -> None:
        if parameters.model.path == "broken":
            raise RuntimeError("Failed to init server")
        self.parameters, self.bodies, self.aborted = parameters, list[dict[str, Any]](), 0
        self.made.append(self)

    def handle_completions(self, body: dict[str, Any], callback: Callable[[dict[str, Any]], bool]) -> None:
        self.bodies.append(body)
        if body["prompt"] == [13]:
            callback({"error": {"code": 500, "message": "out of memory"}})
            return
        text = ""
        for emitted in range(body["max_tokens"]):
            rounds = (emitted + 1) // 2
            times = {"draft_n": 2 * rounds, "draft_n_accepted": rounds} if self.parameters.speculative.types else {}
            new = word(body["prompt"][-1] + emitted + 1)
            ends = [stop for stop in body["stop"] if new.endswith(stop)]
            new = new.removesuffix(ends[0]) if ends else new
            content = {"logprob": -0.5, "top_logprobs": [{"id": 7, "logprob": -0.25}, {"id": 8, "logprob": -0.5}]}
            choice = {"text": new, "finish_reason": None, "logprobs": {"content": [content]}}
            if callback({"choices": [choice if "logprobs" in body else choice | {"logprobs": None}], "timings": times}):
                self.aborted += 1
                return
            text += new
            if ends:
                break
        last = {"text": "", "finish_reason": "stop" if ends else "length", "logprobs": None}
        callback({"choices": [last], "timings": times})


Load = Callable[..., Any]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Load:
    library = ModuleType("xllamacpp")
    kinds = {f"COMMON_SPECULATIVE_TYPE_{kind}": kind for kind in ("DRAFT_SIMPLE", "NGRAM_SIMPLE", "NGRAM_MOD")}
    for name, value in (
        ("CommonParams", lambda: Open(speculative=Open(types=[]))),
        ("Server", Server),
        ("common_speculative_type", SimpleNamespace(**kinds)),
        ("llama_flash_attn_type", Open()),
        ("ggml_type", Open()),
    ):
        setattr(library, name, value)
    monkeypatch.setitem(sys.modules, "xllamacpp", library)
    monkeypatch.setitem(sys.modules, "gguf", ModuleType("gguf"))
    monkeypatch.setattr(llama_cpp, "version", lambda package: "1")
    monkeypatch.setattr(llama_cpp, "converted", lambda folder: folder)
    config = {"vocab_size": 99, "max_position_embeddings": 64, "eos_token_id": 50}
    (tmp_path / "config.json").write_text(json.dumps(config))
    Server.made.clear()
    return lambda name="llama.cpp", **options: resolve(name).load(tmp_path, **options)


def request(**fields: Any) -> GenerationRequest:
    return GenerationRequest(**{"prompt_token_ids": (3, 4), "max_tokens": 5} | fields)


def test_the_word_of_a_token_ends_no_other_text() -> None:
    assert tokens_of(word(7) + word(17)) == [7, 17]
    stops = frozenset({7, 17, 170})
    for token, stop in zip(sorted(stops), stop_words(stops), strict=True):
        text = word(170 - token) + word(token)
        assert text.endswith(stop)
        assert sum(text.endswith(other) for other in stop_words(stops)) == 1
        assert stop_token(text.removesuffix(stop), stops) == token


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)  # As if it were not installed.
    with pytest.raises(VerispecError, match="V-ENG-LLAMA"):
        resolve("llama.cpp")


def test_a_server_that_does_not_start_is_an_error_in_words(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama_cpp, "converted", lambda folder: "broken")
    with pytest.raises(VerispecError, match=r"llama.cpp refuses the models"):
        load()


def test_an_error_of_the_server_is_raised(load: Load) -> None:
    with pytest.raises(RuntimeError, match="out of memory"):
        load().generate([request(prompt_token_ids=(13,))])


def test_steps_are_those_of_the_counters(load: Load) -> None:
    generator = load(method="ngram", ngram_min=2, num_speculative_tokens=2)
    [result] = generator.generate([request()])
    assert result.token_ids == (5, 6, 7, 8, 9)
    assert result.steps == (SpeculativeStep(0, 0), SpeculativeStep(2, 1), SpeculativeStep(2, 1))
    assert generator.metrics() == SpeculationMetrics(2, 4, 2, (2, 0))


def test_steps_without_drafts_have_a_token_each(load: Load) -> None:
    [result] = load().generate([request(max_tokens=2)])
    assert result.steps == (SpeculativeStep(0, 0),) * 2


@pytest.mark.parametrize(
    ("name", "part", "sizes"),
    [
        ("llama.cpp", "ngram_simple", {"size_n": 3, "size_m": 5}),
        ("llama.cpp:ngram-mod", "ngram_mod", {"n_match": 3, "n_min": 1, "n_max": 5}),
    ],
)
def test_the_name_of_the_engine_chooses_its_ngrams(load: Load, name: str, part: str, sizes: dict[str, int]) -> None:
    load(name, method="ngram", ngram_min=3, num_speculative_tokens=5)
    chosen = Server.made[-1].parameters.speculative
    assert chosen.types == [part.upper()]
    assert vars(getattr(chosen, part)) == sizes


def test_draft_models_draw_as_they_are_asked(load: Load, tmp_path: Path) -> None:
    for method, draws in (("probabilistic", True), ("greedy", False)):
        load(method="draft_model", draft=tmp_path, num_speculative_tokens=6, draft_sample_method=method)
        chosen = Server.made[-1].parameters.speculative
        assert (chosen.types, chosen.draft.n_max, chosen.draft.probabilistic) == (["DRAFT_SIMPLE"], 6, draws)
        assert chosen.draft.mparams.path == str(tmp_path)


@pytest.mark.parametrize(
    ("draws", "temperature", "count"), [("probabilistic", 1.0, 0), ("probabilistic", 0.0, 2), ("greedy", 1.0, 2)]
)
def test_steps_are_not_told_where_drafts_are_drawn_among_ten_tokens(
    load: Load, tmp_path: Path, draws: str, temperature: float, count: int
) -> None:
    generator = load(method="draft_model", draft=tmp_path, draft_sample_method=draws)
    [result] = generator.generate([request(temperature=temperature, max_tokens=2)])
    assert len(result.steps) == count
    assert generator.metrics().num_draft_tokens == 2


@pytest.mark.parametrize(
    ("fields", "tokens", "reason"),
    [
        ({"prompt_token_ids": (48,)}, (49, 50), FinishReason.STOP),
        ({"prompt_token_ids": (48,), "stop_token_ids": (49, 52)}, (49,), FinishReason.STOP),
        ({"prompt_token_ids": (48,), "ignore_eos": True, "max_tokens": 3}, (49, 50, 51), FinishReason.LENGTH),
        ({"abort_after": 2}, (5, 6), FinishReason.ABORT),
    ],
)
def test_texts_end_where_they_are_asked_to(
    load: Load, fields: dict[str, Any], tokens: tuple[int, ...], reason: FinishReason
) -> None:
    [result] = load().generate([request(**fields)])
    assert (result.token_ids, result.finish_reason) == (tokens, reason)
    assert Server.made[-1].aborted == (reason is FinishReason.ABORT)


def test_tokens_are_emitted_as_they_come(load: Load) -> None:
    seen: list[tuple[int, tuple[int, ...]]] = []
    emit = lambda index, tokens, kinds: seen.append((index, tuple(tokens)))  # noqa: E731
    load(max_num_seqs=1).generate([request(max_tokens=2), request(max_tokens=1)], emit)
    assert seen == [(0, (5,)), (0, (6,)), (1, (5,))]


@pytest.mark.parametrize("top", [0, 1, 2])
def test_logprobs_are_those_asked_for(load: Load, top: int) -> None:
    [result] = load().generate([request(logprobs=top, max_tokens=1)])
    assert [(entry.sampled, len(entry.top)) for entry in result.logprobs] == [(-0.5, top)]


def test_sampled_requests_have_their_fields(load: Load) -> None:
    load(seed=8, max_num_seqs=1).generate(
        [request(temperature=0.5, top_k=7, logit_bias={3: -2.0}), request(temperature=1.0, seed=2**32 - 1)]
    )
    first, second = Server.made[-1].bodies
    assert (first["temperature"], first["top_k"], first["seed"], first["logit_bias"]) == (0.5, 7, 8, [[3, -2.0]])
    assert second["seed"] == 0


def test_a_length_beyond_the_model_is_refused(load: Load) -> None:
    with pytest.raises(VerispecError, match="max_model_len=65"):
        load(max_model_len=65)


@pytest.mark.parametrize(
    "options", [{"method": "suffix"}, {"dtype": "float16"}, {"num_blocks": 4}, {"max_num_seqs": 257}]
)
def test_options_that_it_lacks_are_unsupported(load: Load, options: dict[str, Any]) -> None:
    assert isinstance(load(**options), Unsupported)


@pytest.mark.parametrize(
    "fields", [{"min_tokens": 2}, {"presence_penalty": 1.0}, {"stop": ("x",)}, {"stop_token_ids": range(MARKS + 1)}]
)
def test_parameters_that_it_lacks_are_unsupported(load: Load, fields: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedCall, match=r"llama.cpp has no"):
        load().generate([request(**fields)])
