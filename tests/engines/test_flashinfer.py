"""Engine ``flashinfer``: its refusals without a GPU, and steps over kernels that are made here in PyTorch."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from verispec.cases.sampling import greedy_tokens, random_sampler_batch, rows_of
from verispec.engines import UnsupportedCall
from verispec.engines.adapters.flashinfer import FlashInfer, FlashInferSampler
from verispec.engines.registry import resolve
from verispec.errors import VerispecError
from verispec.judge import SamplerUnderTest

COUNTS = (3, 0, 2, 5, 1)
HEAT = np.array([0.7, 0.0, 0.7, 1.3, 0.0])


def top_k(values: torch.Tensor, k: torch.Tensor, off: float) -> torch.Tensor:
    edge = values.sort(dim=-1, descending=True).values.gather(1, k.long()[:, None] - 1)
    return values.masked_fill(values < edge, off)


def renormalised(probs: torch.Tensor) -> torch.Tensor:
    return probs / probs.sum(-1, keepdim=True)


def top_p(probs: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    ordered, ids = probs.double().sort(dim=-1, descending=True)
    kept = torch.zeros_like(probs, dtype=torch.bool).scatter(1, ids, ordered.cumsum(-1) - ordered < p[:, None])
    return renormalised(probs * kept)


def draw(probs: torch.Tensor) -> torch.Tensor:
    return torch.multinomial(probs, 1)[:, 0].int()


def chain(draft: torch.Tensor, ids: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, None, None]:
    output = torch.full((len(ids), ids.shape[1] + 1), -1, dtype=torch.int32)
    for row, drafts in enumerate(ids.tolist()):
        at = 0
        while at < len(drafts) and torch.rand(()) * draft[row, at, drafts[at]] < target[row, at, drafts[at]]:
            output[row, at] = drafts[at]
            at += 1
        residual = target[row, at] - (draft[row, at] if at < len(drafts) else 0.0)
        output[row, at] = torch.multinomial(residual.clamp(min=0), 1)[0]
    return output, None, None


KERNELS = SimpleNamespace(
    softmax=lambda logits, temperature: torch.softmax(logits / temperature[:, None], dim=-1),
    top_k_mask_logits=lambda logits, k: top_k(logits, k, float("-inf")),
    top_k_renorm_probs=lambda probs, k: renormalised(top_k(probs, k, 0.0)),
    top_p_renorm_probs=top_p,
    sampling_from_probs=draw,
    top_k_sampling_from_probs=lambda probs, k: draw(renormalised(top_k(probs, k, 0.0))),
    top_p_sampling_from_probs=lambda probs, p: draw(top_p(probs, p)),
    top_k_top_p_sampling_from_probs=lambda probs, k, p: draw(top_p(renormalised(top_k(probs, k, 0.0)), p)),
    min_p_sampling_from_probs=lambda probs, m: draw(probs * (probs >= m[:, None] * probs.amax(-1, keepdim=True))),
    chain_speculative_sampling=chain,
)


@pytest.fixture
def sampler() -> SamplerUnderTest:
    torch.manual_seed(5)
    return SamplerUnderTest(FlashInferSampler(KERNELS, "cpu"))


def batch(draft: bool, **limits: Any) -> Any:
    return random_sampler_batch(np.random.default_rng(5), COUNTS, temperature=HEAT, draft=draft, **limits)


@pytest.mark.parametrize("draft", [True, False])
@pytest.mark.parametrize("limits", [{}, {"top_k": 2}, {"top_p": 0.4}, {"top_k": 5, "top_p": 0.4}])
def test_steps_keep_limits_and_greedy_requests(sampler: SamplerUnderTest, draft: bool, limits: dict[str, Any]) -> None:
    step = batch(draft, **limits)
    for _ in range(20):
        for b, tokens in enumerate(sampler(step)):
            if HEAT[b] == 0:
                assert tokens == greedy_tokens(step, b)
            assert tokens[:-1] == step.draft_token_ids[b][: len(tokens) - 1]
            rows = torch.softmax(step.logits[rows_of(step, b)][: len(tokens)] / max(HEAT[b], 0.01), dim=-1)
            for row, token in zip(rows, tokens, strict=True):
                above = row[row > row[token]]
                assert len(above) < limits.get("top_k", 50)
                assert above.sum() <= limits.get("top_p", 1.0) + 1e-4


def test_min_p_limits_tokens_that_are_sampled(sampler: SamplerUnderTest) -> None:
    step = batch(False, min_p=torch.ones(len(COUNTS)))
    assert [tokens for _ in range(5) for tokens in sampler(step)] == [
        greedy_tokens(step, b) for _ in range(5) for b in range(len(COUNTS))
    ]


def test_own_drafts_of_the_targets_rows_are_kept(sampler: SamplerUnderTest) -> None:
    step = batch(False)
    rows = torch.cat([step.logits[rows_of(step, b)][:-1] for b in range(len(COUNTS))])
    drafted = sampler.draft_and_verify(step, rows)
    assert [tokens[:-1] for tokens in drafted.tokens] == drafted.draft_token_ids


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"seeds": [1] * len(COUNTS)}, "place in the batch"),
        ({"synthetic_rates": [0.5] * 5}, "synthetic"),
        ({"min_p": torch.ones(len(COUNTS))}, "min-p cannot verify"),
        ({"draft_token_ids": [[-1] * count for count in COUNTS]}, "without a check"),
    ],
)
def test_steps_that_it_cannot_run_are_refused(sampler: SamplerUnderTest, change: Any, reason: str) -> None:
    with pytest.raises(UnsupportedCall, match=reason):
        sampler(replace(batch(True), **change))


def test_the_op_masks_what_gets_no_probability() -> None:
    engine: Any = FlashInfer.__new__(FlashInfer)
    engine._kernels = KERNELS
    logits = torch.tensor([[0.5, 0.3, 0.1, 0.1], [1.0, 1e-50, 0.0, 0.0]], dtype=torch.float64).log().float()
    logits[1, 1] = -115.0  # no probability in float32
    output = torch.empty_like(logits)
    engine._mask(output=output, logits=logits, k=torch.tensor([3, 4]), p=torch.tensor([0.6, 1.0]))
    assert (output > float("-inf")).tolist() == [[True, True, False, False], [True, True, False, False]]
    with pytest.raises(UnsupportedCall, match="dense"):
        engine._mask(output=output, logits=logits.T, k=None, p=None)
    with pytest.raises(UnsupportedCall, match="one row"):
        engine._mask(output=output[:0], logits=logits[:0], k=None, p=None)


def test_it_needs_a_gpu_and_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(VerispecError, match="no kernels for the CPU"):
        resolve("flashinfer", "cpu")
    if not torch.cuda.is_available():
        with pytest.raises(VerispecError, match="V-ENG-DEVICE --engine flashinfer"):
            resolve("flashinfer")
    monkeypatch.setattr("verispec.engines.adapters.flashinfer.require_cuda", lambda *given: None)
    monkeypatch.setitem(sys.modules, "flashinfer", None)
    with pytest.raises(VerispecError, match="V-ENG-FLASHINFER"):
        resolve("flashinfer")


def test_kernels_that_cannot_be_built_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def build() -> None:
        raise RuntimeError("Could not find nvcc")

    monkeypatch.setattr("verispec.engines.adapters.flashinfer.require_cuda", lambda *given: None)
    kernels = SimpleNamespace(get_sampling_module=build)
    monkeypatch.setattr("verispec.engines.adapters.flashinfer.imported", lambda *given: (kernels,))
    with pytest.raises(VerispecError, match=r"cannot be built\n.*nvcc"):
        resolve("flashinfer")
