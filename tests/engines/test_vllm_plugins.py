"""Functions of vLLM's plugins as ops, and engine ``vllm-rbln@SOURCE`` over a tree made here."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from verispec.engines import SamplerBatch, Unsupported, UnsupportedCall
from verispec.engines.adapters.vllm.installed.processors import sampler_options
from verispec.engines.adapters.vllm.installed.sampler import (
    SAMPLER_MODULE,
    VllmSampler,
    on_unknown_platform,
    sampling_metadata,
)
from verispec.engines.adapters.vllm.plugin_ops import plugin_op
from verispec.engines.adapters.vllm_rbln import VllmRbln
from verispec.errors import VerispecError
from verispec.reference import contracts

EXPAND = """
from vllm_rbln.logger import init_logger
from vllm_rbln.platform import USE_DEVICE_TENSOR

def torch_expand_kernel(input, cu_num_tokens, num_tokens, replace_from=0, replace_to=0):
    expanded = input.repeat_interleave(cu_num_tokens.diff(prepend=cu_num_tokens.new_zeros(1)))
    assert len(expanded) == num_tokens
    return expanded.where(expanded != replace_from, replace_to)
"""


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Path]:
    """Yield a tree whose package would look for an NPU, with one op; forget its modules."""
    path = tmp_path / "vllm_rbln/v1/sample/rbln_rejection_sampler.py"
    path.parent.mkdir(parents=True)
    path.write_text(EXPAND)
    (tmp_path / "vllm_rbln/__init__.py").write_text("raise ImportError('no NPU')")
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "vllm_rbln"]:
        del sys.modules[name]


def test_an_op_of_a_tree_writes_what_it_returns(tree: Path) -> None:
    engine = VllmRbln(str(tree))
    op = engine.op("expand_batch_to_tokens")
    assert callable(op)
    output = torch.full((6,), -7.0)
    ends = torch.tensor([2, 5], dtype=torch.int32)
    op(output_ptr=output, input_ptr=torch.tensor([1.0, 2.0]), cu_num_tokens_ptr=ends, replace_from=1, replace_to=9)
    assert output.tolist() == [9, 9, 2, 2, 2, -7]
    for name in ("sample_recovered_tokens", "apply_top_k_top_p"):
        assert isinstance(engine.op(name), Unsupported)


def test_a_tree_without_the_sampler_is_refused(tmp_path: Path) -> None:
    with pytest.raises(VerispecError, match="V-ENG-RBLN"):
        VllmRbln(str(tmp_path))


def recovered(target_probs: torch.Tensor, q: torch.Tensor, rows: int) -> torch.Tensor:
    return (target_probs[:rows] / q).argmax(-1)


def test_an_op_gets_q_and_its_own_values_and_its_answer_is_copied() -> None:
    op = plugin_op(
        contracts.load("sample_recovered_tokens"),
        recovered,
        without=("USE_FP64_GUMBEL",),
        own=lambda given: {"rows": len(given["output_token_ids_ptr"]), "unknown": 1},
        returned=("output_token_ids_ptr", "cu_num_draft_tokens_ptr"),
    )
    output = torch.tensor([-7, -7])
    given = {
        "target_probs_ptr": torch.tensor([[0.5, 0.4], [0.5, 0.4]]),
        "inv_q_ptr": torch.tensor([[1.0, 2.0]]),
        "cu_num_draft_tokens_ptr": torch.tensor([1]),
    }
    op(output_token_ids_ptr=output, **given)
    assert output.tolist() == [1, -7]
    with pytest.raises(UnsupportedCall, match="USE_FP64_GUMBEL"):
        op(output_token_ids_ptr=output, USE_FP64_GUMBEL=True, **given)


@pytest.mark.parametrize("draft", [[], [2]], ids=["no draft", "a draft"])
def test_min_p_is_refused_in_any_step(draft: list[int]) -> None:
    """An engine that drafts refuses it when the request arrives; dropped in steps without drafts, it looked wrong."""
    logits, heat = torch.zeros(len(draft) + 1, 4), torch.ones(1)
    batch = SamplerBatch(logits, [draft], heat, min_p=torch.tensor([0.5]))
    with pytest.raises(UnsupportedCall, match="min_p"):
        sampling_metadata(batch, {}, "cpu")


@pytest.mark.parametrize("rates", [None, [0.5]])
def test_every_sampler_is_made_with_the_options_asked_for(
    monkeypatch: pytest.MonkeyPatch, rates: list[float] | None
) -> None:
    class RejectionSampler:
        def __init__(self, sampler: str, spec_config: object = None, device: object = None) -> None:
            self.made = sampler, spec_config is not None

    monkeypatch.setitem(sys.modules, SAMPLER_MODULE, SimpleNamespace(RejectionSampler=RejectionSampler))
    monkeypatch.setitem(sys.modules, "vllm.v1.sample.sampler", SimpleNamespace(Sampler="{mode}".format))
    batch = SamplerBatch(torch.zeros(2, 3), [[1]], torch.ones(1), synthetic_rates=rates)
    assert VllmSampler("cpu")._make(batch, {"mode": "processed"}).made == ("processed", rates is not None)


def test_bonus_tokens_of_a_plugin_are_those_of_a_platform_that_vllm_does_not_know() -> None:
    class Sampler:
        def __init__(self, logprobs_mode: str) -> None:
            self.logprobs_mode = logprobs_mode
            self.topk_topp_sampler = SimpleNamespace(forward="cpu", forward_native="native")

    made = on_unknown_platform(Sampler)(logprobs_mode="processed_logprobs")
    assert (made.topk_topp_sampler.forward, made.logprobs_mode) == ("native", "processed_logprobs")
    assert sampler_options(type(made), "raw") == {"logprobs_mode": "raw_logprobs"}
