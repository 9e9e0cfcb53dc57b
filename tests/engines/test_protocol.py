"""The protocol check: every adapter's fault has V-ENG-PROTOCOL before the first case, and a sound engine has none."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_type_hints

import numpy as np
import pytest
import torch
from judging import importable
from oracle_engine import OracleEngine

from verispec import engines, exits
from verispec.cli import main
from verispec.engines import (
    Description,
    FinishReason,
    GenerationRequest,
    GenerationResult,
    LoadKeywords,
    LoadOptions,
    ProcessedTokens,
    SamplerBatch,
    SpeculativeStep,
    TokenKind,
    TokenLogprobs,
    Trace,
    Unsupported,
)
from verispec.engines.protocol.check import check_subjects
from verispec.engines.protocol.results import (
    ProtocolError,
    require_processed,
    require_results,
    require_tokens,
    require_trace,
)
from verispec.engines.registry import resolve
from verispec.errors import VerispecError
from verispec.reference import contracts
from verispec.suites.e2e._guard import GuardedGenerator

OP = "expand_batch_to_tokens"


def engine(**changed: Any) -> Any:
    """An engine with some methods or attributes replaced; `...` leaves one out."""
    left_out = {name for name, value in changed.items() if value is ...}
    members = {n: getattr(OracleEngine, n) for n in ("describe", "op", "sampler", "load", "definitions", "close")}
    members |= {name: value for name, value in changed.items() if name not in left_out}
    return type("Adapter", (), {name: value for name, value in members.items() if name not in left_out})()


def named(**fields: Any) -> Any:
    return lambda self: dataclasses.replace(Description("mine", "1", "cpu"), **fields)


def answering(value: Any) -> Any:
    return lambda self, name="", *args, **kwargs: value


def expand(output, input_ptr, cu_tokens, replace_from, replace_to, MAX_NUM_TOKENS):  # type: ignore[no-untyped-def]
    raise AssertionError("a protocol check calls no op")


class TraceIsData:
    trace = 7

    def __call__(self, batch: SamplerBatch) -> list[list[int]]:
        raise AssertionError("a protocol check calls no sampler")


class TakesNothing:
    def __call__(self) -> None:
        raise AssertionError("a protocol check calls no sampler")


def raising(self: Any, *args: Any) -> Any:
    raise KeyError("no such op")


FAULTS = {
    "a method is missing": (engine(definitions=...), "definitions: expected a method, got no such attribute"),
    "a method is data": (engine(close=7), "close: expected a method, got the attribute int 7"),
    "op takes no name": (engine(op=lambda self: None), "op: expected a method called as op('expand_batch_to_tokens')"),
    "load takes no options": (
        engine(load=lambda self, target: None),
        "load: expected a method called as load('target'",
    ),
    "a dict for a description": (
        engine(describe=lambda self: {"name": "mine"}),
        "describe(): expected a verispec.engines.Description, got dict {'name': 'mine'}",
    ),
    "no description": (
        engine(describe=lambda self: None),
        "describe(): expected a verispec.engines.Description, got None",
    ),
    "an unknown platform": (
        engine(describe=named(platform="tpu")),
        "describe().platform: expected one of cpu, cuda, got str 'tpu'",
    ),
    "an unknown device": (engine(describe=named(device="cuda:0")), "describe().device: expected one of cpu, cuda"),
    "a name of another type": (engine(describe=named(name=None)), "describe().name: expected a string"),
    "details of another type": (engine(describe=named(details={"threads": 2})), "describe().details"),
    "None for an op": (engine(op=answering(None)), f"op('{OP}'): expected a function or Unsupported(reason), got None"),
    "op raises": (engine(op=raising), f"op('{OP}'): expected a function or Unsupported(reason), got KeyError"),
    "other parameter names": (engine(op=answering(expand)), "rename cu_tokens to cu_num_tokens_ptr"),
    "None for a sampler": (engine(sampler=answering(None)), "sampler('flat'): expected a sampler or Unsupported"),
    "a sampler of nothing": (engine(sampler=answering(TakesNothing())), "sampler('flat').__call__: expected a method"),
    "a class for a sampler": (engine(sampler=answering(TraceIsData)), "got the class TraceIsData"),
    "trace is data": (engine(sampler=answering(TraceIsData())), "sampler('flat').trace: expected a method"),
    "a list of definitions": (engine(definitions=answering([])), "definitions(): expected a mapping"),
    "a name for a definition": (engine(definitions=answering({OP: "expand"})), f"definitions()['{OP}']: expected"),
    "sites of another form": (
        engine(kernel_sites=lambda self: {OP: "mine.kernels.expand"}),
        f"kernel_sites()['{OP}']: expected 'module:attr'",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_says_where_what_was_expected_and_what_came(name: str) -> None:
    broken, words = FAULTS[name]
    with pytest.raises(VerispecError) as raised:
        check_subjects(broken, "mine:Mine", {OP, "whole_sampler", "runtime_signature"})
    assert words in raised.value.diagnostic.cause
    assert raised.value.diagnostic.code == "V-ENG-PROTOCOL"
    assert raised.value.diagnostic.hint.startswith("write\n")
    assert raised.value.exit_code == exits.CANNOT_TELL


def test_all_faults_are_listed_at_once() -> None:
    with pytest.raises(VerispecError, match="breaks the engine protocol in 2 places"):
        check_subjects(engine(op=answering(None), describe=named(platform="tpu")), "mine:Mine", {OP})


@pytest.mark.parametrize(
    "sound", [OracleEngine(), resolve("reference"), engine(sampler=answering(Unsupported("none")))]
)
def test_a_sound_engine_has_no_fault(sound: Any) -> None:
    assert check_subjects(sound, "mine:Mine", set(contracts.names())) == sound.describe()


def test_only_what_is_tested_is_checked() -> None:
    """An op that no selected case needs may not cost the others their results."""
    check_subjects(engine(op=answering(None)), "mine:Mine", {"whole_sampler"})


def test_keywords_of_load_are_the_fields_of_its_options() -> None:
    assert get_type_hints(LoadKeywords) == get_type_hints(LoadOptions)


def test_the_protocol_is_typed_and_importable_from_one_place() -> None:
    source = Path(str(engines.protocol.engine.__file__)).read_text(encoding="utf-8")
    assert "Any" not in source.replace("Any other exception", "")
    assert [name for name in engines.__all__ if not hasattr(engines, name)] == []


def batch() -> SamplerBatch:
    return SamplerBatch(torch.zeros(4, 4), [[1, 2], []], torch.ones(2), seeds=[1, 2])


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "expected a list of 2 lists of token ids, got None"),
        ([[1]], "got 1 rows for 2 requests"),
        ([[1], 2], r"sampler(batch)[1]: expected a list of token ids, got int 2"),
        ([[1], [0.5]], "got list [0.5]"),
        ([[1], [True]], "got list [True]"),
    ],
)
def test_an_answer_of_another_type_is_the_adapters_fault(answer: Any, words: str) -> None:
    with pytest.raises(ProtocolError) as raised:
        require_tokens(answer, batch())
    assert words in str(raised.value)
    assert str(raised.value).startswith("V-ENG-PROTOCOL")


@pytest.mark.parametrize("answer", [torch.tensor([[1], [2]]), ([1], (2,)), [torch.tensor([1]), [torch.tensor(2)]]])
def test_tokens_may_come_in_tensors_and_tuples(answer: Any) -> None:
    assert require_tokens(answer, batch()) == [[1], [2]]


def test_rows_padded_to_one_length_are_the_adapters_fault() -> None:
    """vLLM's own output has -1 behind a request's tokens; the length of such rows was taken for a fault of WS-2."""
    with pytest.raises(ProtocolError, match=r"sampler\(batch\)\[1\]: expected .* without padding"):
        require_tokens(torch.tensor([[1, 2, 3], [2, -1, -1]]), batch())
    assert require_tokens([[1, -1], [2]], batch()) == [[1, -1], [2]], "a step may emit -1, which is the sampler's fault"


RESULT = GenerationResult((1, 2), FinishReason.LENGTH, (TokenKind.PLAIN,) * 2, (SpeculativeStep(0, 0),) * 2)
LOGPROBS = TokenLogprobs(-1.0, ((3, -1.0),))


@pytest.mark.parametrize(
    "fields",
    [
        {"token_ids": [1, 2]},
        {"token_ids": torch.tensor([1, 2])},
        {"token_ids": (np.int64(1), np.int32(2))},
        {"kinds": ["plain", "plain"], "steps": list(RESULT.steps), "finish_reason": "length"},
    ],
)
def test_a_result_may_have_lists_arrays_and_plain_words(fields: dict[str, Any]) -> None:
    """A list of tokens never equalled the tuple of those that its caller heard, and was called wrong."""
    asked = GenerationRequest((1,))
    other = replace(RESULT, **fields)
    assert require_results([other]) == [RESULT]
    assert require_results([replace(RESULT, samples=[other])]) == [replace(RESULT, samples=(RESULT,))]
    generator = SimpleNamespace(generate=lambda requests, on_emit: on_emit(0, [1, 2], ["plain"] * 2) or [other])
    assert GuardedGenerator(generator, vocab_size=3).generate([asked]) == [RESULT]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"token_ids": "12"}, "[0].token_ids: expected token ids, got str '12'"),
        ({"kinds": ("draft", "plain")}, "[0].kinds: expected verispec.engines.TokenKind"),
        ({"kinds": None}, "[0].kinds: expected verispec.engines.TokenKind, got None"),
        ({"finish_reason": "eos"}, "[0].finish_reason: expected verispec.engines.FinishReason, got str 'eos'"),
        ({"steps": ((3, 1),)}, "[0].steps[0]: expected verispec.engines.SpeculativeStep, got tuple (3, 1)"),
        ({"logprobs": ({3: -1.0},)}, "[0].logprobs[0]: expected verispec.engines.TokenLogprobs, got dict {3: -1.0}"),
        ({"prompt_logprobs": (None, -1.0)}, "[0].prompt_logprobs[1]: expected verispec.engines.TokenLogprobs"),
        ({"samples": ([1, 2],)}, "[0].samples[0]: expected a GenerationResult, got list [1, 2]"),
    ],
)
def test_a_field_of_another_type_is_named(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ProtocolError) as raised:
        require_results([replace(RESULT, **fields)])
    assert words in str(raised.value)
    assert require_results([replace(RESULT, logprobs=(LOGPROBS,), prompt_logprobs=(None, LOGPROBS))])


def test_counts_of_another_type_are_named() -> None:
    with pytest.raises(ProtocolError, match=r"metrics\(\): expected a SpeculationMetrics, got None"):
        GuardedGenerator(SimpleNamespace(metrics=lambda: None), vocab_size=3).metrics()


def test_a_trace_has_the_shapes_that_draws_ask_for() -> None:
    draws = engines.Draws(torch.zeros(2), torch.ones(3))
    with pytest.raises(ProtocolError, match=r"draws\[0\].noise: expected shape \(4,\), got \(3,\)"):
        require_trace(Trace([[1], [2]], [draws, None]), batch())
    with pytest.raises(ProtocolError, match=r"expected a verispec\.engines\.Trace, got list"):
        require_trace([[1], [2]], batch())
    with pytest.raises(ProtocolError, match=r"trace\(batch\)\.draws: expected a list of Draws and None, got None"):
        require_trace(Trace([[1], [2]], None), batch())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("field", "values", "words"),
    [
        ("uniform", [[0.5, 0.5]], "uniform: expected shape (2,), got (1, 2)"),
        ("uniform", [0.5, float("nan")], "uniform: expected numbers from 0 to 1, got nan at place 1"),
        ("uniform", [-0.25, 0.5], "uniform: expected numbers from 0 to 1, got -0.25 at place 0"),
        ("uniform", [0.5, 1.5], "uniform: expected numbers from 0 to 1, got 1.5 at place 1"),
        ("noise", [1.0, float("nan"), 1.0, -2.0], "noise: expected numbers of at least 0, got nan at place 1"),
        ("noise", [1.0, 1.0, 1.0, -2.0], "noise: expected numbers of at least 0, got -2.0 at place 3"),
        ("noise", [1, 2, 3, 4], "noise: expected numbers of a floating dtype, got torch.int64"),
        ("noise", "none", "noise: expected a tensor of floating-point numbers, got str 'none'"),
    ],
)
def test_random_samples_that_are_none_accuse_the_adapter(field: str, values: Any, words: str) -> None:
    """They would decide tokens by the rule of WS-9, which a right sampler then fails."""
    fields: dict[str, Any] = {"uniform": torch.full((2,), 0.5), "noise": torch.ones(4)}
    draws = engines.Draws(**(fields | {field: values if isinstance(values, str) else torch.tensor(values)}))
    with pytest.raises(ProtocolError) as raised:
        require_trace(Trace([[1], [2]], [draws, None]), batch())
    assert f"trace(batch).draws[0].{words}" in str(raised.value)


@pytest.mark.parametrize("form", [list, np.asarray, torch.tensor])
def test_random_samples_may_be_lists_arrays_and_tensors(form: Any) -> None:
    draws = engines.Draws(form([0.0, 1.0]), form([0.0, 1.0, 2.0, float("inf")]))
    found = require_trace(Trace([[1], [2]], [draws, None]), batch()).draws[0]
    assert found is not None and found.noise.tolist() == [0.0, 1.0, 2.0, float("inf")]


@pytest.mark.parametrize("logprobs", [None, [(), None]])
def test_log_probabilities_are_lists(logprobs: Any) -> None:
    with pytest.raises(ProtocolError, match=r"\.logprobs(\[1\])?: expected a list of TokenLogprobs.*, got None"):
        require_processed(ProcessedTokens([[1], [2]], logprobs), batch(), [None, None])  # type: ignore[list-item]


def test_engines_shows_the_fault(capsys: pytest.CaptureFixture[str]) -> None:
    with importable(), pytest.raises(SystemExit) as stop:
        main(["engines", "broken_engines:AnotherKeyword"])
    assert stop.value.code == exits.CANNOT_TELL
    assert "rename cu_tokens to cu_num_tokens_ptr" in capsys.readouterr().err
