"""Refusals of requests that cannot work: what a report says of an exception of another class."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from verispec.engines import UnsupportedCall
from verispec.engines.protocol.generation import GenerationRequest, GenerationResult
from verispec.judge import Kind, Mismatch
from verispec.suites.e2e._guard import GuardedGenerator
from verispec.suites.e2e._huge_top_k import check_huge_top_k
from verispec.suites.e2e.test_bad_configurations import REQUESTS, check_refused

PROMPTS = [(1, 2)] * 5


class _Raising:
    def __init__(self, error: Exception) -> None:
        self._error = error

    def generate(self, requests: Sequence[GenerationRequest], on_emit: Any = None) -> list[GenerationResult]:
        raise self._error


def failure(error: Exception) -> Any:
    generator: Any = GuardedGenerator(_Raising(error), 2048)  # type: ignore[arg-type]
    with pytest.raises(Mismatch) as caught:
        check_refused(generator, PROMPTS, REQUESTS["prompt beyond the limit"], "a prompt beyond the limit")
    assert caught.value.failure.kind is Kind.RAISED
    return caught.value.failure


def test_a_refusal_in_words_by_another_exception_names_the_one_that_is_wanted() -> None:
    told = failure(ValueError("the prompt has 1200 tokens, the limit is 1024"))
    assert told.message.startswith("refused, but not by UnsupportedCall")
    assert told.message.endswith("ValueError: the prompt has 1200 tokens, the limit is 1024")
    assert "traceback" in told.details


def test_any_other_exception_keeps_its_text() -> None:
    """Reports group failures by it."""
    assert failure(IndexError("index out of range in self")).message == "IndexError: index out of range in self"


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (RuntimeError("Unable to cast Python instance of type <class 'int'> to C++ type '?'"), UnsupportedCall),
        (TypeError("set(): incompatible function arguments. The following types are supported"), UnsupportedCall),
        (OverflowError("Python int too large to convert to C long"), UnsupportedCall),
        (RuntimeError("the sampler ended: illegal memory access"), Mismatch),
    ],
)
def test_a_binding_may_refuse_a_large_top_k(error: Exception, wanted: type[Exception]) -> None:
    """ONNX Runtime GenAI raises the first, which names no parameter."""
    generator: Any = GuardedGenerator(_Raising(error), 2048)  # type: ignore[arg-type]
    with pytest.raises(wanted):
        check_huge_top_k(generator, Path("unread"), PROMPTS, 2.0, 3, 0)
