"""Fused models compute what transformers computes, and what they cannot compute stays with transformers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from fused_models import BLOCK, KINDS, SIZES, VOCAB, assert_same, at, make
from transformers import (
    GraniteConfig,
    GraniteForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
)

from verispec import fixtures
from verispec.engines.protocol.generation import LoadOptions
from verispec.mutants.plugin import keep_fused
from verispec.reference.models import Eagle3Head, fused
from verispec.reference.models.attention import ATTENTION, PagedBatch, TreeQueries
from verispec.reference.models.fused import FusedHead, FusedModel, FusedModelWarning, fuse, fuse_head
from verispec.reference.models.fused_cpu import PARTS
from verispec.reference.models.kv_cache import KVCache
from verispec.reference.proposers.tree import DraftTree
from verispec.reference.runners.cpu import CPURunner
from verispec.reference.runners.slots import slot_mapping

BOUNDS = ([(0, 30), (0, 1), (0, 60)], [(30, 37), (1, 5), (60, 61)])
"""Two passes over three sequences: more rows and more keys than the kernels take at once, then a few behind them."""


def paged_passes(cache: KVCache) -> Iterator[tuple[PagedBatch, torch.Tensor, list[tuple[int, int]]]]:
    """The batch, the positions and the bounds of each pass, over a cache whose slots are NaN before."""
    cache.poison(torch.arange(cache.num_slots))
    blocks = torch.randperm(cache.num_slots // BLOCK - 1) + 1
    table = torch.zeros(3, 16, dtype=torch.int32)
    for row, (first, last) in enumerate(((0, 10), (10, 12), (12, 28))):
        table[row, : last - first] = blocks[first:last]
    for bounds in BOUNDS:
        lens = np.array([end - start for start, end in bounds])
        starts = torch.from_numpy(np.concatenate(([0], lens.cumsum())).astype(np.int32))
        positions = torch.cat([torch.arange(start, end) for start, end in bounds])
        ends = np.array([end for _, end in bounds], dtype=np.int32)
        slots = slot_mapping(starts, positions, table, BLOCK)
        yield (
            PagedBatch(cache, slots, positions, table, lens, starts, torch.from_numpy(ends), ends, BLOCK),
            positions,
            bounds,
        )


@pytest.mark.parametrize("name", KINDS)
def test_ragged_batch_like_transformers(name: str) -> None:
    model = make(*KINDS[name])
    sequences = [torch.randint(VOCAB, (length,)) for length in (37, 5, 61)]
    expected = [model(input_ids=sequence[None]).logits[0] for sequence in sequences]
    model.set_attn_implementation(ATTENTION)
    fast = fuse(model, PARTS)
    assert isinstance(fast, FusedModel)
    cache = KVCache(model.config, 2, 30 * BLOCK, torch.float32, torch.device("cpu"))
    for paged, _, bounds in paged_passes(cache):
        got = fast(input_ids=at(sequences, bounds)[None], paged=paged).logits[0]
        assert_same(got, at(expected, bounds))
        some = torch.tensor([2, 0])
        kept = fast(input_ids=at(sequences, bounds)[None], paged=paged, logits_to_keep=some).logits[0]
        torch.testing.assert_close(kept, got[some], rtol=0, atol=1e-4 * float(got.abs().max()))


@pytest.mark.parametrize("rows", [*range(1, 14), 48, 49, 100])
def test_every_number_of_rows(rows: int) -> None:
    """The kernel of matrix products has a way of its own for each small number of rows."""
    model = make(*KINDS["llama"])
    token_ids = torch.randint(VOCAB, (1, rows))
    table, starts = torch.arange(1, 26, dtype=torch.int32)[None], torch.tensor([0, rows], dtype=torch.int32)
    positions = torch.arange(rows) % 64
    want = model(input_ids=token_ids[:, :64]).logits[0]
    model.set_attn_implementation(ATTENTION)
    cache = KVCache(model.config, 2, 26 * BLOCK, torch.float32, torch.device("cpu"))
    slots = BLOCK + torch.arange(rows)
    lens = starts[1:]
    paged = PagedBatch(cache, slots, positions, table, lens.numpy(), starts, lens, lens.numpy(), BLOCK)
    got = fuse(model, PARTS)(input_ids=token_ids, paged=paged).logits[0]
    assert_same(got[:64], want)


def test_a_campaign_of_mutants_keeps_a_model_with_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere the plain model runs instead of it, so that no case would see the fault."""
    model = make(*KINDS["llama"])
    model.set_attn_implementation(ATTENTION)
    monkeypatch.setattr(PARTS.layer, "forward", lambda self, hidden, paged, x=None: hidden)
    monkeypatch.setattr(fused, "_same", fused._same)  # taken back after the test
    with pytest.warns(FusedModelWarning, match="the fused form of LlamaForCausalLM computes other numbers"):
        assert fuse(model, PARTS) is model
    keep_fused()
    assert isinstance(fuse(model, PARTS), FusedModel)


def test_threads_share_the_work_and_change_nothing() -> None:
    """As much work as wakes them; each number is summed by one thread, in the same order."""
    model = make(*KINDS["llama"])
    model.set_attn_implementation(ATTENTION)
    fast = fuse(model, PARTS)
    token_ids = torch.randint(VOCAB, (1, 5 * 64))
    table = torch.arange(1, 81, dtype=torch.int32).view(5, 16)
    starts, lens = torch.arange(0, 321, 64, dtype=torch.int32), torch.full((5,), 64, dtype=torch.int32)
    logits = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        cache = KVCache(model.config, 2, 81 * BLOCK, torch.float32, torch.device("cpu"))
        slots, positions = BLOCK + torch.arange(320), torch.arange(64).repeat(5)
        paged = PagedBatch(cache, slots, positions, table, lens.numpy(), starts, lens, lens.numpy(), BLOCK)
        logits.append(fast(input_ids=token_ids, paged=paged).logits)
    assert torch.equal(logits[0], logits[1]) and torch.equal(logits[0], logits[2])


def test_nodes_of_trees_see_their_own_branch() -> None:
    """Requests with a tree, with the first nodes of one, and without; as by torch, which has a mask of its own."""
    model = make(*KINDS["llama"])
    model.set_attn_implementation(ATTENTION)
    tree = DraftTree(((0,), (1,), (0, 0), (0, 1), (1, 0), (0, 0, 0)))
    sequences, nodes = (21, 9, 14), (7, 4, 1)
    table = torch.arange(1, 25, dtype=torch.int32).view(3, 8)
    results = []
    for run in (fuse(model, PARTS), model):
        cache = KVCache(model.config, 2, 25 * BLOCK, torch.float32, torch.device("cpu"))
        for starting in (True, False):
            lens = np.array([length - 1 for length in sequences] if starting else nodes)
            places = [
                np.arange(n) if starting else length - 1 + np.arange(n)
                for length, n in zip(sequences, lens, strict=True)
            ]
            depths = [at if starting else at[0] + tree.depths[: len(at)] for at in places]
            where, branch = (torch.from_numpy(np.concatenate(parts)) for parts in (places, depths))
            starts = torch.from_numpy(np.concatenate(([0], lens.cumsum())).astype(np.int32))
            ends = np.array([at[-1] + 1 for at in places], dtype=np.int32)
            roots = torch.tensor([20, 8, -1])
            queries = None if starting else TreeQueries(roots, torch.from_numpy(tree.sees), branch)
            slots = slot_mapping(starts, where, table, BLOCK)
            paged = PagedBatch(cache, slots, where, table, lens, starts, torch.from_numpy(ends), ends, BLOCK, queries)
            token_ids = (7 * where + branch) % VOCAB
            output = run(input_ids=token_ids[None], position_ids=branch[None], use_cache=False, paged=paged)
        results.append(output.logits[0])
    assert_same(*results)


def test_what_is_outside_of_the_cache_is_not_touched() -> None:
    """Padding and slots that no cache has are not written, blocks that no cache has are not read."""
    model = make(*KINDS["llama"])
    model.set_attn_implementation(ATTENTION)
    fast = fuse(model, PARTS)
    cache = KVCache(model.config, 2, 40, torch.float32, torch.device("cpu"))
    cache.poison(torch.arange(40))
    for layer in cache.layers:
        layer[8:24] = 0
    cache.addresses, cache.num_slots = [layer[8].data_ptr() for layer in cache.layers], 16
    slots, positions = torch.tensor([-1, 20, 3, 4]), torch.arange(4, 8)
    starts, lens = torch.tensor([0, 4], dtype=torch.int32), torch.tensor([99], dtype=torch.int32)
    table = torch.tensor([[7, -3]], dtype=torch.int32)
    paged = PagedBatch(cache, slots, positions, table, starts[1:].numpy(), starts, lens, lens.numpy(), BLOCK)
    assert fast(input_ids=torch.tensor([[5, 6, 7, 8]]), paged=paged).logits.isfinite().all()
    for layer in cache.layers:
        written = layer.nan_to_num().any(dim=1).nonzero().flatten()
        assert written.tolist() == [8 + 3, 8 + 4]
        assert layer.isnan().all(dim=1).nonzero().flatten().tolist() == [*range(8), *range(24, 40)]


@pytest.mark.parametrize("norm_before_residual", [False, True])
def test_a_head_like_its_own_modules(head: Eagle3Head, norm_before_residual: bool) -> None:
    head.midlayer.norm_before_residual = norm_before_residual
    vocab, width = head.config.vocab_size, head.fc.in_features
    sequences = [torch.randint(vocab, (length,)) for length in (37, 5, 61)]
    states = [torch.randn(len(sequence), width) for sequence in sequences]
    whole = [
        head(sequence[None], head.combine(aux)[None], torch.arange(len(sequence))[None])
        for sequence, aux in zip(sequences, states, strict=True)
    ]
    head.set_attn_implementation(ATTENTION)
    fast = fuse_head(head, PARTS)
    assert isinstance(fast, FusedHead)
    cache = KVCache(head.config, 1, 30 * BLOCK, torch.float32, torch.device("cpu"))
    for paged, positions, bounds in paged_passes(cache):
        combined = fast.combine(at(states, bounds))
        assert_same(combined, head.combine(at(states, bounds)))
        normed, following = fast(at(sequences, bounds)[None], combined[None], positions[None], paged=paged)
        assert_same(normed[0], at([normed[0] for normed, _ in whole], bounds))
        assert_same(following[0], at([following[0] for _, following in whole], bounds))
        assert_same(fast.logits(normed[0]), head.logits(normed[0]))


def test_a_head_of_another_computation_stays_as_it_is(head: Eagle3Head) -> None:
    head.set_attn_implementation(ATTENTION)
    head.midlayer.register_forward_hook(lambda module, args, output: output * 1.5)
    with pytest.warns(FusedModelWarning, match="Eagle3Head"):
        assert fuse_head(head, PARTS) is head


def test_another_activation_stays_with_transformers(head: Eagle3Head) -> None:
    """GELU is so near to SiLU around zero that the small numbers of an untrained model cannot tell them apart."""
    head.set_attn_implementation(ATTENTION)
    head.midlayer.mlp.act_fn = torch.nn.GELU()
    assert fuse_head(head, PARTS) is head
    model = make(LlamaForCausalLM, LlamaConfig(hidden_act="gelu", **SIZES))
    model.set_attn_implementation(ATTENTION)
    assert fuse(model, PARTS) is model


def test_a_sliding_window_stays_with_transformers() -> None:
    model = make(MistralForCausalLM, MistralConfig(sliding_window=32, **SIZES))
    model.set_attn_implementation(ATTENTION)
    assert fuse(model, PARTS) is model


def test_another_computation_of_the_same_parts_stays_with_transformers() -> None:
    """The parts look like Llama's, but the residual stream is scaled on its way."""
    model = make(*KINDS["llama"])
    model.set_attn_implementation(ATTENTION)
    model.model.layers[0].register_forward_hook(lambda module, args, output: output * 1.5)
    with pytest.warns(FusedModelWarning):
        assert fuse(model, PARTS) is model


@pytest.mark.parametrize(("method", "draft"), [("draft_model", "draft"), ("eagle3", "eagle3"), ("mtp", "mtp")])
@pytest.mark.filterwarnings("error::verispec.reference.models.fused.FusedModelWarning")
def test_the_fixtures_run_fused_on_this_machine(method: str, draft: str) -> None:
    """A kernel that is wrong here would cost speed alone, and no case of a suite would see it."""
    runner = CPURunner(fixtures.model("target"), LoadOptions(method=method, draft=fixtures.model(draft)))
    assert isinstance(runner._forward, FusedModel)


def test_a_model_of_another_kind_is_no_reason_to_warn(recwarn: pytest.WarningsRecorder) -> None:
    """A multiplier on the way is Granite's own, whose parts look like Llama's."""
    model = make(GraniteForCausalLM, GraniteConfig(residual_multiplier=1.5, **SIZES))
    model.set_attn_implementation(ATTENTION)
    assert fuse(model, PARTS) is model
    assert not recwarn.list


def test_half_precision_stays_with_transformers() -> None:
    model = make(*KINDS["llama"]).bfloat16()
    model.set_attn_implementation(ATTENTION)
    assert fuse(model, PARTS) is model


@pytest.mark.parametrize("columns", [32, 70])
def test_a_row_has_the_same_products_beside_any_number_of_others(columns: int) -> None:
    """Few rows take whole panels of the weights, more of them halves where registers are narrow."""
    linear = PARTS.linear(torch.nn.Linear(40, columns))
    x = torch.randn(50, 40)
    alone = torch.cat([linear(row[None]) for row in x])
    for rows in (*range(1, 14), 48, 49, 50):
        assert torch.equal(linear(x[:rows]), alone[:rows]), rows
