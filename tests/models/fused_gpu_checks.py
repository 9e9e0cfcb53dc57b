"""Checks of fused models with Triton kernels; run as a program, all of them in Triton's interpreter."""

from __future__ import annotations

import copy
import os
import sys
from itertools import product
from typing import Any

if __name__ == "__main__":
    os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
import torch
from fused_models import BLOCK, KINDS, VOCAB, assert_same, at, make
from torch import nn
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from verispec.engines import triton_interpreter
from verispec.reference.models import Eagle3Config, Eagle3Head, MTPHead
from verispec.reference.models.attention import ATTENTION, PagedBatch
from verispec.reference.models.fused import FusedHead, FusedModel, FusedMTPHead, fuse, fuse_head
from verispec.reference.models.fused_gpu import PARTS
from verispec.reference.models.kv_cache import KVCache
from verispec.reference.models.mtp import MTPConfig
from verispec.reference.runners.slots import slot_mapping
from verispec.reference.triton._attention import attend
from verispec.reference.triton._linear import linear

SHORT, LONG = (3, 19, 6), (3, 140, 21)
"""Tokens of each sequence: more rows than a tile; more keys than a block of the kernel."""
NEW = (1, 3, 2)
"""Tokens of each sequence in a second pass."""
HEADS = {
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": VOCAB,
    "max_position_embeddings": 256,
}
SMALL = {
    "llama_bias": (LlamaForCausalLM, LlamaConfig(attention_bias=True, mlp_bias=True, **HEADS)),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config(**HEADS | {"head_dim": 20, "intermediate_size": 75})),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config(**HEADS)),
}
"""Models with few programs per kernel, which the interpreter runs one after the other."""


def passes(
    cache: KVCache, lengths: tuple[int, ...], device: torch.device
) -> list[tuple[PagedBatch, torch.Tensor, list[tuple[int, int]]]]:
    """Return two passes over three sequences: all tokens but the newest, and those; slots are NaN before."""
    cache.poison(torch.arange(cache.num_slots))
    needed = [-(-length // BLOCK) for length in lengths]
    blocks = torch.randperm(cache.num_slots // BLOCK - 1) + 1
    table = torch.zeros(3, max(needed), dtype=torch.int32)
    for row, (count, first) in enumerate(zip(needed, np.cumsum([0, *needed[:-1]]), strict=True)):
        table[row, :count] = blocks[first : first + count]
    made = []
    for bounds in (
        [(0, length - new) for length, new in zip(lengths, NEW, strict=True)],
        [(length - new, length) for length, new in zip(lengths, NEW, strict=True)],
    ):
        lens, ends = np.array([end - start for start, end in bounds]), np.array([end for _, end in bounds])
        starts = torch.from_numpy(np.concatenate(([0], lens.cumsum())).astype(np.int32))
        positions = torch.cat([torch.arange(start, end) for start, end in bounds])
        slots = slot_mapping(starts, positions, table, BLOCK)
        paged = PagedBatch(
            cache,
            slots.to(device),
            positions.to(device),
            table.to(device),
            lens,
            starts.to(device),
            torch.from_numpy(ends.astype(np.int32)).to(device),
            ends,
            BLOCK,
        )
        made.append((paged, positions.to(device), bounds))
    return made


def check_model(
    kind: type[PreTrainedModel], config: Any, lengths: tuple[int, ...], layers: int, device: torch.device
) -> None:
    """Compare a ragged batch and what follows it with transformers' own passes."""
    config = copy.deepcopy(config)
    config.max_position_embeddings, config.num_hidden_layers = max(256, *lengths), layers
    model = make(kind, config).to(device)
    sequences = [torch.randint(VOCAB, (length,), device=device) for length in lengths]
    expected = [model(input_ids=sequence[None]).logits[0] for sequence in sequences]
    model.set_attn_implementation(ATTENTION)
    fast = fuse(model, PARTS)
    assert isinstance(fast, FusedModel)
    cache = KVCache(model.config, layers, (sum(lengths) // BLOCK + 8) * BLOCK, torch.float32, device)
    for paged, _, bounds in passes(cache, lengths, device):
        assert_same(fast(input_ids=at(sequences, bounds)[None], paged=paged).logits[0], at(expected, bounds))


def check_head(head: Eagle3Head | MTPHead, device: torch.device) -> None:
    """Compare a head's rows with those of its own modules."""
    sequences = [torch.randint(VOCAB, (length,), device=device) for length in SHORT]
    states = [torch.randn(length, head.aux_width, device=device) for length in SHORT]
    whole = [
        head(sequence[None], head.combine(aux)[None], torch.arange(len(sequence), device=device)[None])
        for sequence, aux in zip(sequences, states, strict=True)
    ]
    head.set_attn_implementation(ATTENTION)
    fast = fuse_head(head, PARTS)
    assert isinstance(fast, FusedHead | FusedMTPHead)
    cache = KVCache(head.config, 1, 60 * BLOCK, torch.float32, device)
    for paged, positions, bounds in passes(cache, SHORT, device):
        combined = fast.combine(at(states, bounds))
        normed, following = fast(at(sequences, bounds)[None], combined[None], positions[None], paged=paged)
        assert_same(normed[0], at([normed[0] for normed, _ in whole], bounds))
        assert_same(following[0], at([following[0] for _, following in whole], bounds))
        assert_same(fast.logits(normed[0]), head.logits(normed[0]))


def eagle3_head(norm_before_residual: bool, device: torch.device) -> Eagle3Head:
    torch.manual_seed(5)
    config = Eagle3Config(**HEADS, norm_before_residual=norm_before_residual)
    embedding = nn.Embedding(VOCAB, config.hidden_size, device=device)
    return Eagle3Head(config, embedding).eval().requires_grad_(False)


def mtp_head(device: torch.device) -> MTPHead:
    """Return a head on the device of its target, whose embeddings it shares."""
    torch.manual_seed(6)
    target = make(KINDS["qwen2"][0], Qwen2Config(**HEADS, num_hidden_layers=1)).to(device)
    return MTPHead(MTPConfig(**HEADS, num_hidden_layers=1), target).eval().requires_grad_(False)


def check_outside_of_the_cache(device: torch.device) -> None:
    """Padding and slots that no cache has are not written, blocks that no cache has are not read."""
    model = make(KINDS["llama"][0], LlamaConfig(**HEADS, num_hidden_layers=1)).to(device)
    model.set_attn_implementation(ATTENTION)
    fast = fuse(model, PARTS)
    cache = KVCache(model.config, 1, 40, torch.float32, device)
    whole = cache.layers[0]
    whole.fill_(float("nan"))
    whole[8:24] = 0
    cache.layers = [whole[8:24]]
    slots = torch.tensor([-1, 20, 3, 4], device=device)
    starts = torch.tensor([0, 4], dtype=torch.int32, device=device)
    lens = torch.tensor([99], dtype=torch.int32, device=device)
    table = torch.tensor([[7, -3]], dtype=torch.int32, device=device)
    positions = torch.arange(4, 8, device=device)
    paged = PagedBatch(cache, slots, positions, table, np.array([4]), starts, lens, np.array([99]), BLOCK)
    assert fast(input_ids=torch.tensor([[5, 6, 7, 8]], device=device), paged=paged).logits.isfinite().all()
    assert whole.nan_to_num().any(dim=1).nonzero().flatten().tolist() == [8 + 3, 8 + 4]
    assert whole.isnan().all(dim=1).nonzero().flatten().tolist() == [*range(8), *range(24, 40)]


def check_linear(rows: int, outputs: int, width: int, device: torch.device) -> None:
    """Compare a projection with float64, for each thing that it may do besides the product."""
    torch.manual_seed(rows)
    x = torch.randn(rows, width, device=device)
    weight, bias = torch.randn(2 * outputs, width, device=device), torch.randn(2 * outputs, device=device)
    norm, residual = torch.randn(width, device=device), torch.randn(rows, outputs, device=device)
    for is_normed, has_bias, is_added, is_gated in product((False, True), repeat=4):
        used = slice(2 * outputs if is_gated else outputs)
        expected = x.double()
        if is_normed:
            expected = torch.rms_norm(expected, (width,), norm.double(), 1e-3)
        expected = expected @ weight[used].double().T + (bias[used].double() if has_bias else 0)
        if is_gated:
            gate, up = expected.chunk(2, dim=1)
            expected = torch.nn.functional.silu(gate) * up
        if is_added:
            expected = expected + residual
        out = torch.full((rows, outputs), torch.nan, device=device)
        linear(
            x,
            weight[used],
            bias[used] if has_bias else None,
            out,
            norm if is_normed else None,
            1e-3,
            residual if is_added else None,
            is_gated,
        )
        # Three products of TF32 were off by at most 8e-7 of the largest output; one alone is by more than 1e-4.
        assert rows == 0 or (out - expected).abs().max() <= 5e-6 * expected.abs().max()


def check_attention(
    lengths: tuple[int, ...], new: int, heads: tuple[int, int, int], columns: int, device: torch.device
) -> None:
    """Compare the last `new` tokens of each sequence with float64; three times, as a call must leave tickets zero."""
    torch.manual_seed(sum(lengths))
    (num_heads, num_kv_heads, head_dim), requests = heads, len(lengths)
    slots, width = requests * columns * BLOCK, (num_heads + 2 * num_kv_heads) * head_dim
    starts = torch.arange(requests + 1, dtype=torch.int32, device=device) * new
    positions = torch.cat([torch.arange(length - new, length) for length in lengths]).to(device)
    seq_lens = torch.tensor(lengths, dtype=torch.int32, device=device)
    for _ in range(3):
        cache = torch.randn(slots, 2 * num_kv_heads * head_dim, device=device)
        qkv = torch.randn(requests * new, width, device=device)
        table = torch.randperm(requests * columns, device=device).view(requests, columns).to(torch.int32)
        out = torch.full((requests * new, num_heads * head_dim), torch.nan, device=device)
        scale = head_dim**-0.5
        attend(qkv, out, *heads, scale, cache, positions, starts, new, seq_lens, table, BLOCK)
        for row, length in enumerate(lengths):
            places = table[row].long()[:, None] * BLOCK + torch.arange(BLOCK, device=device)
            kept = cache[places.flatten()[:length]].double().view(length, 2, num_kv_heads, 1, head_dim)
            keys, values = kept.expand(-1, -1, -1, num_heads // num_kv_heads, -1).flatten(2, 3).permute(1, 2, 0, 3)
            queries = qkv[row * new : row * new + new, : num_heads * head_dim].double().view(new, num_heads, head_dim)
            visible = torch.ones(new, length, dtype=torch.bool, device=device).tril(length - new)
            expected = nn.functional.scaled_dot_product_attention(
                queries.transpose(0, 1), keys, values, attn_mask=visible, scale=scale
            )
            got = out[row * new : row * new + new].view(new, num_heads, head_dim).transpose(0, 1)
            # Sums of float32 were off by at most 2e-6 of the largest output; a lost key is by more than 1e-3.
            assert (got - expected).abs().max() <= 1e-5 * expected.abs().max()


def main() -> None:
    triton_interpreter.prepare("a test")
    device, checks = torch.device("cpu"), sys.argv[1:]
    arguments: dict[str, tuple[Any, ...]] = {
        "bias": (check_model, *SMALL["llama_bias"], SHORT, 1, device),
        "no power of two": (check_model, *SMALL["qwen2"], LONG, 1, device),
        "norms of heads": (check_model, *SMALL["qwen3"], SHORT, 1, device),
        "eagle3": (check_head, eagle3_head(False, device), device),
        "eagle3, residual after the norm": (check_head, eagle3_head(True, device), device),
        "mtp": (check_head, mtp_head(device), device),
        "no rows": (check_linear, 0, 21, 300, device),
        "few rows": (check_linear, 3, 21, 300, device),
        "few rows of a wide weight": (check_linear, 2, 9, 520, device),
        "parts of the width": (check_linear, 18, 21, 200, device),
        "many rows": (check_linear, 130, 21, 70, device),
        "attention": (check_attention, (7, 140, 33, 65), 2, (4, 2, 16), 36, device),
        "attention of some tiles": (check_attention, (150, 9), 9, (4, 2, 16), 40, device),
        "cache": (check_outside_of_the_cache, device),
    }
    with torch.inference_mode():
        for name in checks or arguments:
            check, *given = arguments[name]
            check(*given)
            print(name, flush=True)


if __name__ == "__main__":
    main()
