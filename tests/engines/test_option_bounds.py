"""Bounds of every option and request parameter: the last good value on each side, and the first bad one.

All checks run thirty times, so that one which changes with the calls before it is seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from verispec.engines import GenerationRequest, LoadOptions
from verispec.engines.protocol.generation import FinishReason, GenerationResult, SpeculationMetrics
from verispec.engines.protocol.grammar import TransitionTable
from verispec.errors import VerispecError

NAN = math.nan
WHOLE_FROM_1 = (1, 7, 2**40, np.int64(1)), (0, -1, 1.5, True, "1", None, np.int64(0))
WHOLE_FROM_0 = (0, 1, 7, np.int32(0)), (-1, 0.5, False, "0", None, np.int32(-1))
FLAGS = (True, False), (0, 1, None, "yes")
NUMBERS = (0.0, -3, 2.5, 1e30), (NAN, "1", None)
DRAFTED: dict[str, Any] = {"method": "ngram"}
SYNTHETIC = {**DRAFTED, "rejection_sample_method": "synthetic"}
SCHEDULED = {**DRAFTED, "num_speculative_tokens": 4}
TREE = {
    "method": "draft_model", "draft": Path("x"), "draft_sample_method": "greedy",
    "speculative_token_tree": ((0,), (1,), (0, 0)),
}  # fmt: skip
FROM_1 = "an integer of at least 1"
FROM_0 = "an integer of at least 0"

OPTIONS: list[tuple[str, dict[str, Any], tuple[Any, ...], tuple[Any, ...], str]] = [
    ("method", {}, ("none", "ngram"), ("greedy", "", "NGRAM"), "one of none"),
    ("draft_sample_method", {}, ("greedy", "probabilistic"), ("x", ""), "one of "),
    ("rejection_sample_method", DRAFTED, ("standard", "block"), ("x", ""), "one of standard"),
    ("rejection_sample_method", {}, ("standard",), ("block",), "standard with method none"),
    ("sampler", {}, ("flat", "request_state"), ("packed", ""), "one of flat"),
    ("logprobs_mode", {}, ("raw", "processed"), ("all", ""), "one of raw"),
    ("dtype", {}, ("float32", "bfloat16"), ("float33", ""), "one of "),
    *((name, {}, *WHOLE_FROM_1, FROM_1) for name in (
        "num_speculative_tokens", "suffix_decoding_max_tree_depth", "max_num_seqs", "max_num_batched_tokens",
        "block_size", "tensor_parallel_size",
    )),
    *(("num_speculative_tokens", others, (1, "auto"), (0, "3", "Auto", None), f"{FROM_1} or auto") for others in (
        DRAFTED, {"method": "suffix"},
    )),
    *(("num_speculative_tokens", others, (3,), ("auto",), f"an integer with {other}") for other, others in (
        ("method none", {}),
        ("num_speculative_tokens_per_batch_size", {**DRAFTED, "num_speculative_tokens_per_batch_size": ((1, 9, 2),)}),
        ("speculative_token_tree", TREE),
        ("rejection_sample_method synthetic", {**SYNTHETIC, "synthetic_acceptance_length": 2}),
    )),
    ("ngram_min", {"ngram_max": 2**41}, *WHOLE_FROM_1, FROM_1),
    *((name, {}, *WHOLE_FROM_0, FROM_0) for name in (
        "max_model_len", "num_blocks", "suffix_decoding_max_cached_requests",
    )),
    ("ngram_max", {"ngram_min": 3}, (3, 4, 90), (2, 0, 3.5, None), "an integer of at least ngram_min = 3"),
    ("seed", {}, (0, -5, 2**63), (0.5, "1", None), "an integer"),
    ("async_scheduling", {}, *FLAGS, "True or False"),
    ("parallel_drafting", {"method": "draft_model", "draft": Path("x")}, *FLAGS, "True or False"),
    ("parallel_drafting", DRAFTED, (False,), (True,), "False with a method without a draft model"),
    ("suffix_decoding_max_spec_factor", {}, (0, 0.5, 9), (-0.1, NAN, "1", None), "a number of at least 0"),
    ("suffix_decoding_min_token_prob", {}, (0, 0.1, 1), (-0.1, 1.01, NAN, None), "a number from 0 to 1"),
    ("lora_adapters", {}, ((), (Path("a"),)), ("a", ("a",), [Path("a")], None), "a tuple of folders"),
    *(("draft", {"method": m}, (Path("x"),), (None,), "a folder") for m in ("draft_model", "eagle3", "mtp")),
    *(("draft", {"method": m}, (None,), (Path("x"),), f"none with method {m}") for m in ("none", "ngram", "suffix")),
    (
        "num_speculative_tokens_per_batch_size",
        SCHEDULED,
        (None, ((1, 1, 4),), ((1, 3, 4), (4, 4, 0)), ((1, 2, 4), (3, 9, 2), (10, 10, 1)), [[1, 5, 3]]),
        (
            (), ((2, 3, 1),), ((0, 3, 1),), ((1, 0, 2),), ((1, 3, 5),), ((1, 3, -1),), ((1, 3),), ((1, 3, 4, 1),), 3,
            ((1, 3, 4), (5, 6, 1)), ((1, 3, 4), (3, 6, 1)), ((1, 3, 4), (4, 6, 5)), ((1, 3, 4), 2), ((1, 3, 1.5),),
        ),
        "ranges (first, last, K) one after another from 1, each K from 0 to 4, and None with method none",
    ),
    (
        "speculative_token_tree",
        {"method": "draft_model", "draft": Path("x"), "draft_sample_method": "greedy"},
        (None, ((0,), (1,), (2,)), ((0,), (0, 0), (0, 0, 0)), ((1,), (4,), (1, 3))),
        (
            (), 3, [(0,), (1,), (2,)], ((0,), (1,), [2]), ((0,), (1,), (1,)), ((1,), (0,), (2,)), ((0,), (1, 0), (2,)),
            ((0,), (1, 0), (2, 0)), ((0,), (1,), (2, 0)), ((0,), (1,), ()), ((0,), (1,), (-1,)), ((0,), (1,), (1.0,)),
            ((0,), (1,), (2.5,)), ((0,), (1,), (0, 1, 0)),
        ),
        "paths of ranks, shorter ones first, each below another path or of one rank",
    ),
    (
        "speculative_token_tree",
        {"method": "draft_model", "draft": Path("x"), "draft_sample_method": "greedy"},
        (((0,), (1,), (0, 0)),),
        (((0,), (1,)), ((0,), (1,), (2,), (3,))),
        "as many paths as num_speculative_tokens = 3",
    ),
    *((name, TREE, (good,), (bad,), f"{good} with speculative_token_tree") for name, good, bad in (
        ("draft_sample_method", "greedy", "probabilistic"), ("rejection_sample_method", "standard", "block"),
        ("sampler", "flat", "request_state"), ("num_speculative_tokens_per_batch_size", None, ((1, 9, 3),)),
        ("tensor_parallel_size", 1, 2), ("lora_adapters", (), (Path("a"),)), ("parallel_drafting", False, True),
    )),
    ("num_speculative_tokens_per_batch_size", {}, (None,), (((1, 1, 1),),), "ranges (first, last, K)"),
    (
        "synthetic_acceptance_rates",
        SYNTHETIC,
        ((1.0, 0.5, 0.0), (0.3, 0.3, 0.3), (1, 1, 1)),
        ((0.5, 0.5), (0.5,) * 4, (0.5, 0.6, 0.1), (0.1, 0.1, 0.2), (1.01, 0.5, 0.5), (0.5, 0.4, -0.1), (0.5, NAN, 0)),
        "3 numbers from 0 to 1, none above the one before it",
    ),
    ("synthetic_acceptance_length", SYNTHETIC, (1, 1.5, 4), (0.99, 4.01, NAN, "2"), "a number from 1 to 4"),
    *(
        (name, {**DRAFTED, "rejection_sample_method": m}, (None,), ((0.5,) * 3, 2.0), f"None with {how} {m}")
        for name in ("synthetic_acceptance_rates", "synthetic_acceptance_length")
        for m, how in (("standard", "rejection_sample_method"), ("block", "rejection_sample_method"))
    ),
    ("synthetic_acceptance_rates", SYNTHETIC, (), (None,), "given without synthetic_acceptance_length, or the other"),
]  # fmt: skip

REQUESTS: list[tuple[str, dict[str, Any], tuple[Any, ...], tuple[Any, ...], str]] = [
    ("prompt_token_ids", {}, ((1,), (0, 2)), ((),), "at least one token"),
    *((name, {}, *WHOLE_FROM_1, FROM_1) for name in ("max_tokens", "n")),
    *((name, {}, *WHOLE_FROM_0, FROM_0) for name in ("top_k", "min_tokens")),
    ("temperature", {}, (0, 1e-9, 50), (-1e-9, NAN, "1", None), "a number of at least 0"),
    ("top_p", {}, (1e-9, 0.5, 1), (0, -0.1, 1.01, NAN, None), "a number above 0 and at most 1"),
    ("min_p", {}, (0, 0.5, 1), (-0.01, 1.01, NAN, None), "a number from 0 to 1"),
    ("seed", {}, (None, 0, -1, 2**63), (0.5, "1"), "None or an integer"),
    ("repetition_penalty", {}, (1e-9, 1, 9), (0, -1, NAN, None), "above 0"),
    *((name, {}, *NUMBERS, "a number") for name in ("presence_penalty", "frequency_penalty")),
    ("grammar", {}, (None, TransitionTable(({1: 0},))), (3, "a"), "None or a TokenGrammar"),
    ("bad_words", {}, ((), ((1,),), ((1, 2), (3,))), (((),), ((1,), ())), "sequences of at least one token"),
    ("logit_bias", {}, ({}, {3: -100.0}, {1: 5}), ({1: NAN}, {1: "x"}, {1: 0.5, 2: None}), "numbers by token id"),
    *((name, {}, (None, 0, 5), (-1, 0.5, True), f"None or {FROM_0}") for name in ("logprobs", "prompt_logprobs")),
    ("stop", {}, ((), ("a",), ("ab", "c")), (("",), ("a", "")), "strings of at least one character"),
    ("abort_after", {}, (None, 1, 9), (0, -1, 1.5), f"None or {FROM_1}"),
    ("lora_adapter", {}, (None, 0, 3), (-1, 0.5, "a"), f"None or {FROM_0}"),
]

TABLES: dict[type, tuple[list[Any], str]] = {
    LoadOptions: (OPTIONS, "V-GEN-OPTION"),
    GenerationRequest: (REQUESTS, "V-GEN-REQUEST"),
}


def rules() -> Iterator[Any]:
    for table, (lines, code) in TABLES.items():
        for name, others, good, bad, wanted in lines:
            yield pytest.param(
                table, code, name, others, good, bad, wanted, id=f"{table.__name__}-{name}-{wanted[:30]}"
            )


@pytest.mark.parametrize(("table", "code", "name", "others", "good", "bad", "wanted"), [*rules()])
def test_the_bounds_of_a_value(
    table: type, code: str, name: str, others: Any, good: Any, bad: Any, wanted: str
) -> None:
    given = {**({"prompt_token_ids": (5,)} if table is GenerationRequest else {}), **others}
    for _ in range(30):
        for value in good:
            assert getattr(table(**{**given, name: value}), name) == value
        for value in bad:
            with pytest.raises(VerispecError) as refused:
                table(**{**given, name: value})
            diagnostic = refused.value.diagnostic
            assert (diagnostic.code, diagnostic.where) == (code, name)
            assert diagnostic.message.startswith(f"{name} must be {wanted}")
            assert diagnostic.message.endswith(f", got {value!r}")


def test_every_field_has_a_line() -> None:
    free = {"ignore_eos", "stop_token_ids", "allowed_token_ids"}
    for table, (lines, _) in TABLES.items():
        assert {line[0] for line in lines} == {field.name for field in fields(table)} - free


def test_rates_and_a_length_exclude_each_other() -> None:
    both = {"synthetic_acceptance_rates": (0.5, 0.5, 0.5), "synthetic_acceptance_length": 2.0}
    with pytest.raises(VerispecError, match="synthetic_acceptance_rates"):
        LoadOptions(**SYNTHETIC, **both)  # type: ignore[arg-type]


def test_drafts_by_the_size_of_the_batch() -> None:
    schedule = LoadOptions(
        method="ngram", num_speculative_tokens=4,
        num_speculative_tokens_per_batch_size=((1, 2, 4), (3, 5, 1), (6, 6, 0)),
    )  # fmt: skip
    for _ in range(30):
        assert [schedule.num_drafts(b) for b in (1, 2, 3, 5, 6, 7, 90)] == [4, 4, 1, 1, 0, 0, 0]
        assert [LoadOptions(num_speculative_tokens=5).num_drafts(b) for b in (1, 64)] == [5, 5]
        assert LoadOptions(method="ngram", num_speculative_tokens="auto").max_drafts == 8


def test_only_a_temperature_of_zero_is_greedy() -> None:
    assert GenerationRequest((1,)).greedy
    assert not GenerationRequest((1,), temperature=1e-9).greedy


def test_the_metrics_of_a_run_and_of_its_second_part() -> None:
    before = SpeculationMetrics(4, 12, 6, (3, 2, 1))
    after = SpeculationMetrics(10, 28, 18, (8, 6, 4))
    for _ in range(30):
        assert after.since(before) == SpeculationMetrics(6, 16, 12, (5, 4, 3))
        assert after.since(SpeculationMetrics()) == after
        assert after.mean_length == 2.8
        assert after.acceptance_per_position == (0.8, 0.6, 0.4)
        assert SpeculationMetrics().mean_length == 1.0
        assert SpeculationMetrics(0, 0, 0, (0, 0)).acceptance_per_position == ()
        with pytest.raises(ValueError, match="zip"):
            after.since(SpeculationMetrics(1, 1, 1, (1,)))


def test_the_defaults() -> None:
    """Users and documentation rely on them."""
    options, request = LoadOptions(), GenerationRequest((1,))
    assert (options.method, options.num_speculative_tokens, options.ngram_min, options.ngram_max) == ("none", 3, 2, 4)
    assert (options.max_num_seqs, options.max_num_batched_tokens, options.block_size) == (16, 2048, 16)
    assert (options.max_model_len, options.num_blocks, options.seed, options.tensor_parallel_size) == (0, 0, 0, 1)
    assert (options.sampler, options.dtype, options.logprobs_mode) == ("flat", "float32", "raw")
    assert (options.draft_sample_method, options.rejection_sample_method) == ("probabilistic", "standard")
    assert (request.max_tokens, request.top_k, request.top_p, request.min_p, request.n) == (16, 0, 1.0, 0.0, 1)
    assert (request.temperature, request.min_tokens, request.repetition_penalty) == (0.0, 0, 1.0)
    assert (request.presence_penalty, request.frequency_penalty, request.ignore_eos) == (0.0, 0.0, False)


def test_suffix_decoding_has_the_defaults_of_vllm() -> None:
    """Source: vLLM 0.32.0, SpeculativeConfig."""
    options = LoadOptions()
    limits = options.suffix_decoding_max_tree_depth, options.suffix_decoding_max_cached_requests
    shares = options.suffix_decoding_max_spec_factor, options.suffix_decoding_min_token_prob
    assert (limits, shares) == ((24, 10_000), (1.0, 0.1))


def test_a_result_has_only_what_it_was_given() -> None:
    result = GenerationResult((5,), FinishReason.LENGTH)
    assert (result.preemptions, result.text) == (0, "")
    assert not any((result.kinds, result.steps, result.logprobs, result.prompt_logprobs, result.samples))
