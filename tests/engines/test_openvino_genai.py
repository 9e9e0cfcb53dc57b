"""Engine ``openvino-genai`` over a pipeline made here: the options that it gets, and the reading of its outputs.

The real pipeline has its own tox environment.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest

from verispec.engines import Engine, Unsupported, UnsupportedCall
from verispec.engines.adapters import openvino_genai
from verispec.engines.protocol.generation import FinishReason, GenerationRequest
from verispec.engines.registry import resolve
from verispec.errors import VerispecError

REASON = Enum("REASON", "NONE STOP LENGTH")
STATUS = Enum("STATUS", "RUNNING FINISHED IGNORED")


class Handle:
    """A request that emits two tokens per step, which count up from its last prompt token."""

    def __init__(self, pipeline: Pipeline, prompt: list[int], config: SimpleNamespace) -> None:
        self.pipeline, self.config, self.next = pipeline, config, prompt[-1] + 1
        self.done, self.cancelled = 0, False
        self.outputs: list[SimpleNamespace] = []

    @property
    def finished(self) -> bool:
        return self.cancelled or self.done >= self.config.max_new_tokens

    def step(self) -> None:
        new = []
        while len(new) < 2 and not self.finished:
            new.append(self.next)
            self.next, self.done = self.next + 1, self.done + 1
            if new[-1] in getattr(self.config, "stop_token_ids", ()):
                self.config.max_new_tokens = self.done
                self.outputs.append(
                    SimpleNamespace(generated_ids=new, generated_log_probs=[], finish_reason=REASON.STOP)
                )
                return
        scores = [-0.5] * len(new)
        self.outputs.append(SimpleNamespace(generated_ids=new, generated_log_probs=scores, finish_reason=REASON.NONE))

    def can_read(self) -> bool:
        return bool(self.outputs)

    def read(self) -> dict[int, SimpleNamespace]:
        return {0: self.outputs.pop(0)}

    def cancel(self) -> None:
        self.cancelled = True

    def get_status(self) -> Any:
        is_ignored = self.pipeline.ignores and (self.cancelled or not self.finished)
        return STATUS.IGNORED if is_ignored else STATUS.FINISHED


class Pipeline:
    """Stands for ContinuousBatchingPipeline; remembers what it was made from."""

    made: ClassVar[list[Pipeline]]
    refuses = ignores = False

    def __init__(self, folder: str, scheduler: Any, device: str, properties: dict[str, Any]) -> None:
        if self.refuses:
            raise RuntimeError("Check 'are_tokenizers_equal' failed")
        self.folder, self.scheduler, self.properties = folder, scheduler, properties
        self.handles: list[Handle] = []
        self.made.append(self)

    def add_request(self, number: int, prompt: Any, config: SimpleNamespace) -> Handle:
        self.handles.append(Handle(self, prompt[0].tolist(), config))
        return self.handles[-1]

    def has_non_finished_requests(self) -> bool:
        return any(not handle.finished or handle.cancelled for handle in self.handles) and not self.ignores

    def step(self) -> None:
        # The real one finds nothing to schedule then, and takes that for a lack of KV blocks.
        self.ignores = all(handle.finished for handle in self.handles)
        for handle in self.handles:
            if not handle.finished:
                handle.step()


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch) -> type[Pipeline]:
    """Install a stub of OpenVINO GenAI, and convert nothing."""

    class Made(Pipeline):
        made: ClassVar[list[Pipeline]] = []

    genai, openvino = ModuleType("openvino_genai"), ModuleType("openvino")
    for name, value in {
        "ContinuousBatchingPipeline": Made,
        "SchedulerConfig": SimpleNamespace,
        "GenerationConfig": SimpleNamespace,
        "GenerationFinishReason": REASON,
        "GenerationStatus": STATUS,
        "draft_model": lambda folder, device, **options: (folder, options),
    }.items():
        setattr(genai, name, value)
    openvino.Tensor = lambda array: array  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "openvino_genai", genai)
    monkeypatch.setitem(sys.modules, "openvino", openvino)
    monkeypatch.setattr(openvino_genai, "converted", lambda folder: folder)
    return Made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(
        json.dumps({"vocab_size": 100, "max_position_embeddings": 64, "eos_token_id": 90})
    )
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [90, 91]}))
    return tmp_path


Load = Callable[..., Any]


@pytest.fixture
def load(pipeline: type[Pipeline], folder: Path) -> Load:
    engine: Engine = resolve("openvino-genai")
    return lambda **options: engine.load(folder, **options)


def request(**fields: Any) -> GenerationRequest:
    return GenerationRequest(**{"prompt_token_ids": (3, 4), "max_tokens": 5} | fields)


def config_of(pipeline: type[Pipeline]) -> SimpleNamespace:
    return pipeline.made[-1].handles[-1].config


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openvino_genai", None)  # As if it were not installed.
    with pytest.raises(VerispecError, match="V-ENG-OPENVINO"):
        resolve("openvino-genai")


def test_steps_arrive_in_order_and_requests_run_together(load: Load) -> None:
    emitted: list[tuple[int, list[int]]] = []
    requests = [request(), request(prompt_token_ids=(40,), max_tokens=3)]
    results = load().generate(requests, lambda index, tokens, kinds: emitted.append((index, list(tokens))))
    assert [list(result.token_ids) for result in results] == [[5, 6, 7, 8, 9], [41, 42, 43]]
    assert emitted == [(0, [5, 6]), (1, [41, 42]), (0, [7, 8]), (1, [43]), (0, [9])]
    assert results[0].finish_reason is FinishReason.LENGTH


@pytest.mark.parametrize(
    ("fields", "ignore_eos", "stops"),
    [
        ({}, False, {90, 91}),
        ({"ignore_eos": True}, True, None),
        ({"ignore_eos": True, "stop_token_ids": (7,)}, False, {7}),
        ({"stop_token_ids": (7,)}, False, {7, 90, 91}),
    ],
)
def test_stop_tokens_hold_whether_the_end_of_sequence_does_or_not(
    load: Load, pipeline: type[Pipeline], fields: dict[str, Any], ignore_eos: bool, stops: set[int] | None
) -> None:
    [result] = load().generate([request(**fields)])
    config = config_of(pipeline)
    assert (config.ignore_eos, getattr(config, "stop_token_ids", None)) == (ignore_eos, stops)
    if stops:
        assert config.eos_token_id in stops  # Else the pipeline adds the model's own.
    assert result.finish_reason is (FinishReason.STOP if stops and 7 in stops else FinishReason.LENGTH)


def test_greedy_requests_are_not_sampled_and_sampled_ones_have_their_fields(
    load: Load, pipeline: type[Pipeline]
) -> None:
    generator = load()
    generator.generate([request()])
    assert not config_of(pipeline).do_sample
    generator.generate([request(temperature=0.5, top_k=7, top_p=0.9, seed=-1)])
    config = config_of(pipeline)
    assert (config.temperature, config.top_k, config.top_p, config.rng_seed) == (0.5, 7, 0.9, 2**64 - 1)


def test_requests_without_a_seed_draw_differently(load: Load, pipeline: type[Pipeline]) -> None:
    load(seed=5).generate([request(temperature=1.0), request(temperature=1.0)])
    assert [handle.config.rng_seed for handle in pipeline.made[-1].handles] == [5, 6]


def test_drafting_options_reach_the_pipeline(load: Load, pipeline: type[Pipeline], folder: Path) -> None:
    load(method="draft_model", draft=folder, num_speculative_tokens=4).generate([request()])
    assert pipeline.made[-1].properties["draft_model"][0] == str(folder)
    assert config_of(pipeline).num_assistant_tokens == 4
    load(method="ngram", ngram_max=3, num_blocks=9, max_num_batched_tokens=24).generate([request()])
    assert pipeline.made[-1].properties["prompt_lookup"] and config_of(pipeline).max_ngram_size == 3
    scheduler = pipeline.made[-1].scheduler
    assert (scheduler.num_kv_blocks, scheduler.max_num_batched_tokens) == (9, 24)
    assert not scheduler.enable_prefix_caching


def test_prefix_caching_has_a_name_of_its_own(pipeline: type[Pipeline], folder: Path) -> None:
    engine = resolve("openvino-genai:prefix-caching")
    engine.load(folder)
    assert pipeline.made[-1].scheduler.enable_prefix_caching


def test_an_abort_cancels_the_request(load: Load, pipeline: type[Pipeline]) -> None:
    [result] = load().generate([request(max_tokens=40, abort_after=3)])
    assert (len(result.token_ids), result.finish_reason) == (4, FinishReason.ABORT)
    assert pipeline.made[-1].handles[-1].cancelled


def test_log_probabilities_come_one_per_token(load: Load) -> None:
    [result] = load().generate([request(logprobs=0)])
    assert [entry.sampled for entry in result.logprobs] == [-0.5] * 5


def test_the_length_limit_holds(load: Load) -> None:
    [result] = load(max_model_len=4).generate([request()])
    assert len(result.token_ids) == 2
    with pytest.raises(VerispecError, match="V-GEN-PROMPT"):
        load(max_model_len=2).generate([request()])


def test_unknown_tokens_are_refused(load: Load) -> None:
    with pytest.raises(VerispecError, match="token 100"):
        load().generate([request(prompt_token_ids=(100,))])


def test_an_ignored_request_is_an_error(load: Load, pipeline: type[Pipeline]) -> None:
    generator = load()
    pipeline.ignores = True
    with pytest.raises(RuntimeError, match="ignored request 0"):
        generator.generate([request()])


def test_models_that_do_not_fit_are_refused_in_words(load: Load, pipeline: type[Pipeline], folder: Path) -> None:
    pipeline.refuses = True
    with pytest.raises(VerispecError, match="vocabulary has 100 tokens, the draft model's 100") as error:
        load(method="draft_model", draft=folder)
    assert "are_tokenizers_equal" in str(error.value)


def test_blocks_that_hold_less_than_a_sequence_are_refused(load: Load) -> None:
    with pytest.raises(VerispecError, match="num_blocks=1"):
        load(num_blocks=1, max_model_len=33)


@pytest.mark.parametrize(
    "options",
    [
        {"method": "suffix"},
        {"dtype": "bfloat16"},
        {"block_size": 8},
        {"method": "ngram", "ngram_min": 3},
        {"async_scheduling": True},
        {"max_num_seqs": 1},
        {"logprobs_mode": "processed"},
    ],
)
def test_options_that_it_lacks_are_unsupported(load: Load, options: dict[str, Any]) -> None:
    assert isinstance(load(**options), Unsupported)


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 1.0, "min_p": 0.1, "top_p": 0.9},
        {"presence_penalty": 1.0},
        {"frequency_penalty": 1.0},
        {"bad_words": ((1,),)},
        {"logprobs": 2},
        {"n": 2},
        {"stop": ("x",)},
    ],
)
def test_parameters_that_it_lacks_are_unsupported(load: Load, fields: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedCall, match="OpenVINO GenAI has no"):
        load().generate([request(**fields)])
