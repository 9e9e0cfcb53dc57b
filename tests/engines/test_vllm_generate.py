"""Steps from vLLM's statistics, which report verifications only."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from verispec.engines import UnsupportedCall
from verispec.engines.adapters.vllm.installed.generate import PRELOAD, GeneratorServer, _result, refusals, settings
from verispec.engines.protocol.generation import (
    FinishReason,
    GenerationRequest,
    GenerationResult,
    LoadOptions,
    SpeculativeStep,
)


def read(drafted: list[int], accepted: list[int], num_tokens: int, preemptions: int = 0) -> GenerationResult:
    told: Any = SimpleNamespace(per_step_drafted=drafted, per_step_accepted=accepted) if drafted else None
    output = SimpleNamespace(
        token_ids=list(range(num_tokens)), text="", finish_reason="length", logprobs=None, spec_decode_metrics=told
    )
    return _result(output, GenerationRequest((1,)), preemptions)


def test_the_step_after_the_prefill_comes_first() -> None:
    result = read([3, 3], [2, 0], 5)
    assert result.steps == (SpeculativeStep(0, 0), SpeculativeStep(3, 2), SpeculativeStep(3, 0))
    assert (result.finish_reason, result.token_ids) == (FinishReason.LENGTH, (0, 1, 2, 3, 4))


@pytest.mark.parametrize(
    ("drafted", "accepted", "num_tokens", "preemptions"),
    [([], [], 5, 0), ([3, 3], [2, 0], 6, 0), ([3, 3], [2, 0], 5, 1)],
    ids=["nothing told", "tokens of steps that are not told", "a prefill of its own after a preemption"],
)
def test_steps_with_unknown_places_are_not_reported(
    drafted: list[int], accepted: list[int], num_tokens: int, preemptions: int
) -> None:
    result = read(drafted, accepted, num_tokens, preemptions)
    assert (result.steps, result.preemptions) == ((), preemptions)


def test_fresh_memory_is_poisoned_on_every_rank() -> None:
    """Workers are spawned on CPUs: what is set here does not reach them, but they import the extension."""
    given = settings(Path("model"), LoadOptions(method="none", tensor_parallel_size=2))
    assert given["tensor_parallel_size"] == 2
    module, _, name = given["worker_extension_cls"].rpartition(".")
    program = f"from {module} import {name}\nimport torch\nprint(torch.empty(3).tolist())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[nan, nan, nan]\n"
    assert "worker_extension_cls" not in settings(Path("model"), LoadOptions(method="none"))


def test_starts_do_not_search_what_is_imported_for_garbage() -> None:
    program = f"import gc\nimport {PRELOAD}\nprint(gc.get_freeze_count())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 10_000


def test_a_package_that_vllm_asks_for_is_a_rejection() -> None:
    with pytest.raises(UnsupportedCall, match="Arctic Inference is required"), refusals():
        raise ImportError("Arctic Inference is required for suffix decoding.")


def test_a_broken_installation_is_no_rejection() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module"), refusals():
        import no_such_module  # noqa: F401
    with pytest.raises(ImportError, match="no_such_name"), refusals():
        from os import no_such_name  # noqa: F401


class RefusingEngine:
    """vLLM's engine, which refuses its third request."""

    def __init__(self) -> None:
        self.waiting: list[str] = []

    def add_request(self, request_id: str, prompt: object, params: object, lora_request: object) -> None:
        if len(self.waiting) == 2:
            raise ValueError("too long")
        self.waiting.append(request_id)

    def abort_request(self, request_ids: list[str]) -> None:
        self.waiting = [each for each in self.waiting if each not in request_ids]


def test_a_refused_request_leaves_none_of_its_batch_behind() -> None:
    """The next call would get the tokens of those that were added before it."""
    server, engine = object.__new__(GeneratorServer), RefusingEngine()
    server._llm, server._adapters = SimpleNamespace(llm_engine=engine), {}
    server._params = SimpleNamespace
    requests = [GenerationRequest((1,), abort_after=2)] * 4

    with pytest.raises(UnsupportedCall, match="too long"):
        server.generate(requests)
    assert engine.waiting == []
