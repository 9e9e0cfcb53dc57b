"""The classes of an engine's exceptions, and the reported part of their text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
import torch

from verispec.engines import UnsupportedCall
from verispec.engines.adapters.http.client import ServerFault
from verispec.engines.protocol.generation import FinishReason, GenerationRequest, GenerationResult
from verispec.judge import DeviceLost, Inconclusive, Kind, Mismatch, lost_device
from verispec.judge._failure import call_engine
from verispec.run.outcome import decisive, result_of
from verispec.suites.e2e._guard import GuardedGenerator, GuardedServer


class CompilationError(Exception):
    """Triton's has this name and this form of text."""


def verdict_on(error: Exception) -> Exception:
    """Return the outcome of a call that raises `error`."""

    def call() -> None:
        raise error

    with pytest.raises((Mismatch, DeviceLost, Inconclusive, UnsupportedCall)) as caught:
        call_engine(call)
    return caught.value


def test_what_an_engine_does_not_claim_stays_that() -> None:
    refusal = UnsupportedCall("no synthetic mode")
    assert verdict_on(refusal) is refusal


def test_an_exception_is_a_failure_that_says_what_was_raised() -> None:
    verdict = verdict_on(KeyError("cu_num_tokens"))

    assert isinstance(verdict, Mismatch)
    assert (verdict.failure.kind, verdict.failure.message) == (Kind.RAISED, "KeyError: 'cu_num_tokens'")


def test_a_text_of_many_lines_is_one_line_and_whole_in_the_traceback() -> None:
    verdict = verdict_on(ValueError("expected\n\n  3 rows, got 4" + "!" * 500))

    assert isinstance(verdict, Mismatch)
    assert verdict.failure.message.startswith("ValueError: expected 3 rows, got 4!")
    assert len(verdict.failure.message) == 300
    assert verdict.failure.details["traceback"].endswith("!" * 500)


def allocation(size: int) -> Exception:
    """Return torch's own exception where so many bytes are not there."""
    with pytest.raises(RuntimeError) as caught:
        torch.empty(size, dtype=torch.int8)
    return caught.value


def test_too_little_memory_decides_nothing_unless_no_machine_has_it() -> None:
    text = str(allocation(2**55))
    assert str(2**55) in text
    verdict = verdict_on(RuntimeError(text.replace(str(2**55), str(24 * 2**30))))
    assert isinstance(verdict, Inconclusive)
    assert str(verdict) == "the engine asked for 24.0 GiB, and memory ran out; run this case where more is free"
    assert isinstance(verdict_on(RuntimeError(text)), Mismatch)


NOT_COMPILED = CompilationError("at 13:4:\n    a kernel's source\n    ^\nint32 here and int64 there")


def test_of_a_kernel_that_does_not_compile_the_reason_is_told_and_not_its_source() -> None:
    verdict = verdict_on(NOT_COMPILED)

    assert isinstance(verdict, Mismatch)
    assert verdict.failure.message == "CompilationError: int32 here and int64 there"


class Raising:
    """A generator and a server whose calls raise."""

    def generate(self, requests: object, on_emit: object) -> list[GenerationResult]:
        raise NOT_COMPILED

    def post(self, body: object) -> tuple[int, str]:
        raise NOT_COMPILED


@pytest.mark.parametrize(
    "call",
    [
        lambda: GuardedGenerator(cast(Any, Raising()), 8).generate([]),
        lambda: GuardedServer(cast(Any, Raising())).post(b""),
    ],
)
def test_generation_reports_exceptions_as_ops_do(call: Callable[[], object]) -> None:
    with pytest.raises(Mismatch) as caught:
        call()
    failure = caught.value.failure

    assert (failure.kind, failure.message) == (Kind.RAISED, "CompilationError: int32 here and int64 there")
    assert "raise NOT_COMPILED" in failure.details["traceback"]


@pytest.mark.parametrize("token", [-1, 8])
def test_an_unknown_token_of_any_sample_is_named(token: int) -> None:
    class Emitting(Raising):
        def generate(self, requests: object, on_emit: object) -> list[GenerationResult]:
            sample = GenerationResult((3, token), FinishReason.LENGTH)
            return [GenerationResult((1, 7), FinishReason.LENGTH, samples=(sample,))]

    generator = GuardedGenerator(cast(Any, Emitting()), 8)
    with pytest.raises(Mismatch, match=f"request 0 emitted {token} at position 1; there are 8 tokens"):
        generator.generate([GenerationRequest((1,), n=2)])
    assert not generator.broken


@pytest.mark.parametrize("told", [(), (0, 1)])
def test_callers_of_all_requests_hear_tokens_or_none_does(told: tuple[int, ...]) -> None:
    class Streaming(Raising):
        told: tuple[int, ...] = ()

        def generate(self, requests: Any, on_emit: Any) -> list[GenerationResult]:
            for index in self.told:
                on_emit(index, (1,), ())
            return [GenerationResult((1,), FinishReason.LENGTH) for _ in requests]

    engine = Streaming()
    generator = GuardedGenerator(cast(Any, engine), 8)
    requests = [GenerationRequest((2,), max_tokens=1)] * 2
    engine.told = told
    generator.generate(requests)
    engine.told = (0,)
    with pytest.raises(Mismatch, match=r"request 1 has the tokens \[1\], its caller was told nothing"):
        generator.generate(requests)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA error: an illegal memory access was encountered\nCompile with TORCH_USE_CUDA_DSA"),
        RuntimeError("Triton Error [CUDA]: an illegal memory access was encountered"),
    ],
)
def test_a_broken_context_is_no_ordinary_failure(error: Exception) -> None:
    verdict = verdict_on(error)

    assert isinstance(verdict, DeviceLost)
    assert "\n" not in str(verdict)
    assert lost_device(verdict) is verdict, "told once, whoever asks again"


def test_the_cuda_error_that_a_server_quotes_breaks_no_context_here() -> None:
    fault = ServerFault("V-HTTP-STATUS", "the server answers 500", cause="CUDA error: out of memory")
    verdict = verdict_on(fault)

    assert isinstance(verdict, Mismatch)
    assert "the server answers 500 cause: CUDA error: out of memory" in verdict.failure.message
    assert result_of(decisive(verdict))["outcome"] == "fail", "whoever asks again"
