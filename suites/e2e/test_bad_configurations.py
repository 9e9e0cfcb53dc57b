"""Configurations and requests that cannot work are refused in words, before anything has started (contract GEN)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from verispec import fixtures
from verispec.cases import case
from verispec.engines import UnsupportedCall
from verispec.engines.protocol.generation import GenerationRequest, Generator
from verispec.errors import VerispecError
from verispec.judge import Failure, Kind, Mismatch
from verispec.suites.e2e._reference_model import reference_model
from verispec.suites.e2e._setups import Load, greedy, require

TARGET = fixtures.model("target")


@dataclass(frozen=True)
class Bad:
    """A configuration that no engine can run.

    Attributes:
        draft: name of a drafter in `_setups`.
        options: options of the generator.
        names: words of which the message must have one: the option, as engines call it.
        values: words of which it must have one: what was given.
        folders: function from the folders of the small models to those of target and drafter.
        length: tokens of the prompt with which an engine that accepts the configuration is tried.
        cure: options in place of `options` with which the configuration works.
    """

    draft: str
    options: dict[str, Any]
    names: Sequence[str]
    values: Sequence[str]
    folders: Callable[[dict[str, Path]], dict[str, Path]] = lambda tiny: {}
    length: int = 3
    cure: dict[str, Any] = field(default_factory=dict)


CONFIGURATIONS = {
    "draft model of another vocabulary": Bad(
        "draft_model k=3", {}, ("vocab", "tokens"), ("8",), lambda tiny: {"drafter": tiny["draft"]}
    ),
    "head of another target": Bad(
        "eagle3 k=3",
        {},
        ("hidden", "vocab", "size", "shape", "layer"),
        ("64", "256", "8"),
        lambda tiny: {"target": tiny["target"]},
    ),
    "draft folder without a checkpoint": Bad(
        "draft_model k=3",
        {},
        ("config", "checkpoint", "model"),
        ("empty",),
        lambda tiny: {"drafter": tiny["target"].parent / "empty"},
    ),
    "parallel drafting without a mask token": Bad(
        "draft_model k=3",
        {"parallel_drafting": True},
        ("mask", "parallel"),
        ("pard_token",),
        cure={"parallel_drafting": True, "drafter": fixtures.model("draft_parallel")},
    ),
    "length beyond the model": Bad(
        "draft_model k=3",
        {"max_model_len": 4096},
        ("max_model_len",),
        ("4096",),
        length=1021,
        cure={"max_model_len": 512},
    ),
    "too few blocks": Bad(
        "draft_model k=3",
        {"num_blocks": 2, "block_size": 32, "max_model_len": 256},
        ("num_blocks", "blocks", "num_gpu_blocks", "KV cache"),
        ("2", "256"),
        length=200,
        cure={"num_blocks": 64, "block_size": 32, "max_model_len": 256},
    ),
}


@case("GEN-38", configuration=list(CONFIGURATIONS), reach="a configuration that cannot work")
def test_a_configuration_that_cannot_work_is_refused(load: Load, tiny: dict[str, Path], configuration: str) -> None:
    bad = CONFIGURATIONS[configuration]
    (tiny["target"].parent / "empty").mkdir(exist_ok=True)
    try:
        folders: dict[str, Any] = dict(bad.folders(tiny))
        generator = load(bad.draft, **folders, **bad.options)
    except (UnsupportedCall, VerispecError) as refusal:
        if isinstance(refusal, UnsupportedCall):
            load(bad.draft, **bad.cure)  # An engine that lacks the option as such has said all that it can.
        check_message(str(refusal), bad.names, bad.values)
    except Exception as error:
        said = " ".join(str(error).split())[:200]
        message = f"load raised {type(error).__name__}, where it must raise UnsupportedCall(reason): {said}"
        raise Mismatch(Failure(Kind.RAISED, message)) from error
    else:
        prompt = ((1, 5, 2) * bad.length)[: bad.length]
        check_accepted(generator, bad.folders(tiny).get("target", TARGET), prompt, f"a {configuration} is accepted")


def check_accepted(generator: Generator, target: Path, prompt: tuple[int, ...], what: str) -> None:
    """Generate when the options are accepted after all: a failure in the middle of a text comes too late."""
    try:
        [result] = generator.generate(greedy([prompt], 8))
    except Mismatch as broken:
        raise Mismatch(Failure(Kind.ACCEPTED, f"{what}, and fails in use: {broken.failure.message}")) from broken
    reference_model(target).judge_greedy(prompt, result.token_ids, what)


def check_message(message: str, names: Sequence[str], values: Sequence[str]) -> None:
    """Check that a refusal names the option and the value."""
    for what, words in (("option", names), ("value", values)):
        found = any(word.lower() in message.lower() for word in words)
        require(
            found, f"the refusal does not name the {what} (one of {', '.join(words)}): {message[:200]}", Kind.RAISED
        )


@dataclass(frozen=True)
class BadRequest:
    """A request that no engine can run.

    Attributes:
        fields: fields of the request.
        names: words of which the message must have one: the field, as engines call it.
        values: words of which it must have one: what was given, or the limit.
        cure: fields in place of `fields` with which the request works.
    """

    fields: dict[str, Any]
    names: Sequence[str]
    values: Sequence[str]
    cure: dict[str, Any] = field(default_factory=dict)


REQUESTS = {
    "prompt beyond the limit": BadRequest(
        {"prompt_token_ids": (5,) * 1200}, ("prompt", "max_model_len", "length"), ("1200", "1024")
    ),
    "prompt as long as the limit": BadRequest(
        {"prompt_token_ids": (5,) * 1024}, ("prompt", "max_model_len", "length"), ("1024",)
    ),
    "prompt of unknown tokens": BadRequest({"prompt_token_ids": (5, 9999, 7)}, ("token", "vocab"), ("9999",)),
    "prompt of negative tokens": BadRequest({"prompt_token_ids": (5, -3, 7)}, ("token", "vocab"), ("-3",)),
    "unknown allowed ids": BadRequest(
        {"allowed_token_ids": (4, 9999)},
        ("allowed_token_ids", "token"),
        ("9999", "2048"),
        cure={"allowed_token_ids": (4, 5)},
    ),
    "unknown biased ids": BadRequest(
        {"logit_bias": {9999: 1.0}}, ("logit_bias", "token"), ("9999", "2048"), cure={"logit_bias": {5: 1.0}}
    ),
}


@case("GEN-38", draft=["none", "draft_model k=3"], request_=list(REQUESTS), reach="a request that cannot work")
def test_a_request_that_cannot_work_is_refused(load: Load, prompts: Any, draft: str, request_: str) -> None:
    """The others of its batch do not run half, and the next batch is right."""
    check_refused(load(draft), prompts, REQUESTS[request_], f"a {request_}")


def check_refused(generator: Generator, prompts: Any, bad: BadRequest, what: str) -> None:
    """Check that a batch with a bad request is refused in words, and that the next batch is right."""
    plain = {"prompt_token_ids": prompts[0], "max_tokens": 8, "ignore_eos": True}
    try:
        refused = GenerationRequest(**{**plain, **bad.fields})
        generator.generate([*greedy(prompts[1:2], 8), refused, *greedy(prompts[2:3], 8)])
    except (UnsupportedCall, VerispecError) as refusal:
        if isinstance(refusal, UnsupportedCall):
            generator.generate([GenerationRequest(**{**plain, **bad.cure})])  # As above.
        check_message(str(refusal), bad.names, bad.values)
    except Mismatch as broken:
        raise refused_otherwise(broken, bad) from broken
    else:
        raise Mismatch(Failure(Kind.ACCEPTED, f"{what} is accepted"))
    try:
        results = generator.generate(greedy(prompts[3:5], 16))
    except VerispecError as error:
        raise Mismatch(Failure(Kind.RAISED, f"the batch after {what} is refused too: {error}")) from error
    for n, result in enumerate(results):
        reference_model(TARGET).judge_greedy(prompts[3 + n], result.token_ids, f"request {n} after a refusal")


def refused_otherwise(broken: Mismatch, bad: BadRequest) -> Mismatch:
    """Return `broken`; where it is a refusal in words by an exception of another class, its message says so."""
    failure = broken.failure
    if failure.kind is not Kind.RAISED:
        return broken
    try:
        check_message(failure.message, bad.names, bad.values)
    except Mismatch:
        return broken
    text = "refused, but not by UnsupportedCall, so that callers cannot tell it from a fault"
    return Mismatch(replace(failure, message=f"{text}: {failure.message}"))
