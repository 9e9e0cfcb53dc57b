"""Functions of vLLM's sampler as ops: called with their own logits, and with any return value."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from verispec.engines import Unsupported
from verispec.engines.adapters.vllm.installed import sampling_ops


def below_zero(logits: torch.Tensor) -> torch.Tensor:
    return logits < 0


def in_place(logits: torch.Tensor, k: object, p: object) -> torch.Tensor:
    return logits.masked_fill_(below_zero(logits), -torch.inf)


def apart(logits: torch.Tensor, k: object, p: object) -> torch.Tensor:
    return logits.masked_fill(below_zero(logits), -torch.inf)


@pytest.mark.parametrize("function", [in_place, apart])
@pytest.mark.parametrize("columns", [1, 2])
def test_the_logits_stay_and_the_output_is_written(
    monkeypatch: pytest.MonkeyPatch, function: object, columns: int
) -> None:
    caller = SimpleNamespace(apply_top_k_top_p=function)
    monkeypatch.setattr(sampling_ops, "import_if_there", {sampling_ops.REJECTION_SAMPLER: caller}.get)
    op = sampling_ops.find("apply_top_k_top_p")
    assert callable(op)
    logits = torch.tensor([[-1.0, 2.0, -3.0, 4.0]])
    output = torch.zeros(1, 4 * columns)[:, ::columns]
    op(output=output, logits=logits, k=None, p=None)
    assert output.tolist() == [[-torch.inf, 2.0, -torch.inf, 4.0]]
    assert logits.tolist() == [[-1.0, 2.0, -3.0, 4.0]]
    op(output=logits, logits=logits, k=None, p=None)
    assert torch.equal(logits, output)


def test_limits_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    caller = SimpleNamespace(apply_top_k_top_p=lambda logits, k, p: seen.append((k, p)) or logits)
    monkeypatch.setattr(sampling_ops, "import_if_there", lambda name: caller)
    op = sampling_ops.find("apply_top_k_top_p")
    assert callable(op)
    op(torch.zeros(1, 2), torch.ones(1, 2), "k", "p")
    assert seen == [("k", "p")]


@pytest.mark.parametrize("module", [None, SimpleNamespace()])
def test_a_vllm_without_the_function(monkeypatch: pytest.MonkeyPatch, module: object) -> None:
    monkeypatch.setattr(sampling_ops, "import_if_there", lambda name: module)
    assert sampling_ops.find("apply_top_k_top_p") == Unsupported(
        "this vLLM has no vllm.v1.sample.rejection_sampler.apply_top_k_top_p"
    )


def test_kernels_are_not_looked_for_here() -> None:
    assert sampling_ops.find("rejection_greedy_sample") is None
