"""Several ranks on the CPU: the texts of one rank, and an error without a wait when ranks differ or die."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from living import alive
from transformers import LlamaConfig, LlamaForCausalLM

from verispec.engines import GenerationRequest, LoadOptions
from verispec.engines.registry import resolve
from verispec.errors import VerispecError
from verispec.reference.runners import ranks
from verispec.reference.runners.base import BaseRunner
from verispec.reference.runners.cpu import CPURunner
from verispec.reference.runners.ranks import CPU, GPU, RankedRunner

if TYPE_CHECKING:
    from conftest import Models

pytestmark = pytest.mark.timeout(600)
"""A rank that waits for another would wait for ever; far above what a test takes on a busy machine."""

VOCAB = 32


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a target, a draft model, and a target in which each token has a twin with the same logits."""
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=96,
        tie_word_embeddings=False,
        initializer_range=0.3,
        bos_token_id=None,
        eos_token_id=0,
    )
    folders = {}
    for seed, name in enumerate(("target", "draft", "twins")):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed % 2)
            model = LlamaForCausalLM(config)
            if name == "twins":
                with torch.no_grad():
                    model.lm_head.weight[1::2] = model.lm_head.weight[::2]
            folders[name] = tmp_path_factory.mktemp("models") / name
            model.save_pretrained(folders[name])
    return folders


def requests(**fields: Any) -> list[GenerationRequest]:
    common = {"max_tokens": 16, "ignore_eos": True, **fields}
    return [GenerationRequest((1 + n, 5, 7, 1 + n, 5, 7), **{"seed": n, **common}) for n in range(3)]


def options(tiny: dict[str, Path], method: str = "none", **more: Any) -> LoadOptions:
    draft = tiny["draft"] if method == "draft_model" else None
    return LoadOptions(method=method, draft=draft, dtype="float64", tensor_parallel_size=2, **more)


@pytest.mark.parametrize("method", ["none", "ngram", "draft_model"])
@pytest.mark.parametrize("sampler", ["flat", "request_state"])
def test_two_ranks_write_what_one_writes(method: str, sampler: str, tiny: dict[str, Path]) -> None:
    wanted = options(tiny, method, sampler=sampler)
    asked = [*requests(), *requests(temperature=1.5), *requests(temperature=1.5, seed=None, top_k=9)]
    one = CPURunner(tiny["target"], wanted)
    ranked = RankedRunner(tiny["target"], wanted)
    emitted: dict[int, list[int]] = {}
    found = ranked.generate(asked, lambda index, tokens, kinds: emitted.setdefault(index, []).extend(tokens))
    assert found == one.generate(asked)
    assert emitted == {n: list(result.token_ids) for n, result in enumerate(found)}
    counts = ranked.metrics_by_rank()
    assert counts == [one.metrics()] * 2
    assert bool(counts[0].num_accepted_tokens) == (method != "none"), "drafts are accepted, on both ranks"
    ranked.close()


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("method", ["none", "ngram", "draft_model"])
def test_two_gpus_write_what_one_writes(method: str, tiny: dict[str, Path]) -> None:
    """By NCCL; in float64, so that no rounding decides a token."""
    from verispec.reference.runners.gpu import GPURunner

    asked = [*requests(), *requests(temperature=1.5), *requests(temperature=1.5, seed=None, top_k=9)]
    ranked = RankedRunner(tiny["target"], options(tiny, method), GPU)
    assert ranked.generate(asked) == GPURunner(tiny["target"], options(tiny, method)).generate(asked)
    ranked.close()


def test_each_rank_holds_a_part_of_the_weights(tiny: dict[str, Path]) -> None:
    """Otherwise the ranks would be copies of one runner, and nothing would be joined."""
    ranked = RankedRunner(tiny["target"], options(tiny), "rank_probes:Tells")
    shapes = [result.text for result in ranked.generate(requests()[:1])]
    assert shapes == [f"q {(32, 64)} o {(64, 32)} head {(VOCAB // 2, 64)} cache {2 * 16}"]
    ranked.close()


def test_the_engine_loads_ranks(tiny: dict[str, Path]) -> None:
    generator = resolve("reference").load(tiny["target"], tensor_parallel_size=2, dtype="float64")
    assert isinstance(generator, RankedRunner)
    assert generator.generate(requests()) == CPURunner(tiny["target"], options(tiny)).generate(requests())
    generator.close()
    assert not any(map(alive, generator.processes))


@pytest.mark.parametrize(
    ("fault", "method", "target", "fields"),
    [
        ("OwnNoise", "none", "target", {"temperature": 1.5}),
        ("GatheredOnOneRank", "none", "target", {}),
        ("DraftsOnRankZero", "ngram", "target", {}),
        ("LastOfATie", "none", "twins", {}),
    ],
)
def test_ranks_that_differ_are_told_apart(
    fault: str, method: str, target: str, fields: dict[str, Any], tiny: dict[str, Path]
) -> None:
    wanted = options(tiny, method)
    right = RankedRunner(tiny[target], wanted)
    right.generate(requests(**fields))
    right.close()
    ranked = RankedRunner(tiny[target], wanted, f"rank_mutants:{fault}")
    for _ in range(2):
        with pytest.raises(VerispecError) as caught:
            ranked.generate(requests(**fields))
        assert caught.value.diagnostic.code == "V-RANK-DISAGREE"
        assert "on rank 0:" in caught.value.diagnostic.cause
    assert not any(map(alive, ranked.processes))
    ranked.close()


@pytest.mark.parametrize("fault", ["OwnNoise", "LastOfATie"])
def test_faults_of_sampling_and_of_ties_need_both(fault: str, tiny: dict[str, Path]) -> None:
    """Greedy texts have no noise, and no ties here: the two faults above are found for their own reason."""
    ranked = RankedRunner(tiny["target"], options(tiny), f"rank_mutants:{fault}")
    assert ranked.generate(requests()) == CPURunner(tiny["target"], options(tiny)).generate(requests())
    ranked.close()


@pytest.mark.parametrize(
    ("fault", "code", "said"),
    [
        ("DiesAtStep", "V-RANK-LOST", "rank 1 of 2 was ended by SIGKILL"),
        ("RaisesAtStep", "V-RANK-FAILED", "rank 1 failed: out of memory on this rank"),
    ],
)
def test_a_rank_that_fails_ends_the_others(
    fault: str, code: str, said: str, tiny: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranks, "GRACE", 1.0)
    ranked = RankedRunner(tiny["target"], options(tiny), f"rank_mutants:{fault}")
    for _ in range(2):
        with pytest.raises(VerispecError) as caught:
            ranked.generate(requests())
        assert (caught.value.diagnostic.code, caught.value.diagnostic.message) == (code, said)
    assert not any(map(alive, ranked.processes))
    ranked.close()


def test_a_rank_that_dies_while_loading_ends_the_load(tiny: dict[str, Path]) -> None:
    with pytest.raises(VerispecError, match="rank 1 of 2 ended with 3"):
        RankedRunner(tiny["target"], options(tiny), "rank_mutants:DiesAtStart")


def test_a_rank_that_is_killed_between_two_calls(tiny: dict[str, Path]) -> None:
    ranked = RankedRunner(tiny["target"], options(tiny))
    ranked.generate(requests())
    os.kill(ranked.processes[0], signal.SIGKILL)
    time.sleep(0.5)
    with pytest.raises(VerispecError, match="rank 0 of 2 was ended by SIGKILL"):
        ranked.generate(requests())
    ranked.close()


def test_a_request_that_all_ranks_refuse_ends_nothing(tiny: dict[str, Path]) -> None:
    ranked = RankedRunner(tiny["target"], options(tiny))
    with pytest.raises(VerispecError, match="V-GEN-PROMPT"):
        ranked.generate([GenerationRequest((VOCAB,))])
    assert len(ranked.generate(requests())) == 3
    ranked.close()


def test_heads_must_divide(tiny: dict[str, Path]) -> None:
    with pytest.raises(VerispecError, match="V-RANK-HEADS"):
        RankedRunner(tiny["target"], LoadOptions(tensor_parallel_size=3))


@pytest.mark.parametrize("ranks", [CPU, "rank_probes:OnHost"])
def test_a_head_on_two_ranks_drafts_what_it_drafts_on_one(ranks: str, models: Models) -> None:
    """The hidden states that it reads are whole on every rank."""
    one, ranked = runners_with_a_head(models, CPURunner, ranks)
    asked = [*requests(), *requests(temperature=1.5)]
    assert ranked.generate(asked) == one.generate(asked)
    assert ranked.metrics_by_rank() == [one.metrics()] * 2
    assert one.metrics().num_accepted_tokens
    ranked.close()


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_a_head_on_two_gpus_drafts_what_it_drafts_on_one(models: Models) -> None:
    """By NCCL, and in CUDA graphs on one GPU."""
    from verispec.reference.runners.gpu import GPURunner

    one, ranked = runners_with_a_head(models, GPURunner, GPU)
    asked = [*requests(), *requests(temperature=1.5)]
    assert ranked.generate(asked) == one.generate(asked)
    ranked.close()


def runners_with_a_head(models: Models, kind: type[BaseRunner], ranked: str) -> tuple[BaseRunner, RankedRunner]:
    """Return a runner of one rank and one of two, with the same Eagle3 head."""
    wanted = LoadOptions(method="eagle3", draft=models.head, dtype="float64", tensor_parallel_size=2)
    return kind(models.target, wanted), RankedRunner(models.target, wanted, ranked)


def test_an_error_without_a_text_says_where_it_arose(tiny: dict[str, Path]) -> None:
    with pytest.raises(RuntimeError, match=r"AssertionError at rank_probes.py:\d+: assert method is None"):
        RankedRunner(tiny["target"], options(tiny), "rank_probes:Refuses")
