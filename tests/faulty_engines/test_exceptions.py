"""The classes of an engine's exceptions, and the reported part of their text."""

from __future__ import annotations

import pytest

from verispec.engines import UnsupportedCall
from verispec.judge import DeviceLost, Kind, Mismatch, lost_device
from verispec.judge._failure import call_engine


class CompilationError(Exception):
    """Triton's has this name and this form of text."""


def verdict_on(error: Exception) -> Exception:
    """Return the outcome of a call that raises `error`."""

    def call() -> None:
        raise error

    with pytest.raises((Mismatch, DeviceLost, UnsupportedCall)) as caught:
        call_engine(call)
    return caught.value


def test_what_an_engine_does_not_claim_stays_that() -> None:
    refusal = UnsupportedCall("no synthetic mode")
    assert verdict_on(refusal) is refusal


def test_an_exception_is_a_failure_that_says_what_was_raised() -> None:
    verdict = verdict_on(KeyError("cu_num_tokens"))

    assert isinstance(verdict, Mismatch)
    assert (verdict.failure.kind, verdict.failure.message) == (Kind.RAISED, "KeyError: 'cu_num_tokens'")


def test_of_a_kernel_that_does_not_compile_the_reason_is_told_and_not_its_source() -> None:
    verdict = verdict_on(CompilationError("at 13:4:\n    a kernel's source\n    ^\nint32 here and int64 there"))

    assert isinstance(verdict, Mismatch)
    assert verdict.failure.message == "CompilationError: int32 here and int64 there"


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
