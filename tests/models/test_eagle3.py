"""The Eagle3 head against a plain re-computation, its chains against its cache, and its checkpoints."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from train_fixtures.unroll import unroll
from transformers import AttentionInterface, DynamicCache, LlamaConfig, LlamaForCausalLM

from verispec.errors import VerispecError
from verispec.reference.models import AuxiliaryStates, Eagle3Head, load_eagle3

FORMATS = ("eagle3", "eagle3_speculators")
IDS = torch.randint(320, (2, 14), generator=torch.Generator().manual_seed(1))


@pytest.fixture
def aux(target: LlamaForCausalLM, head: Eagle3Head) -> torch.Tensor:
    with AuxiliaryStates(target, head.config.aux_layers(8)) as states:
        target(IDS, use_cache=False)
        return states.take()


def recompute(head: Eagle3Head, ids: list[int], hidden: torch.Tensor, first: int) -> torch.Tensor:
    """The head for one sequence, written as formulas, row by row and head by head, in float64."""
    w = {name: tensor.double() for name, tensor in head.state_dict().items()}
    config = head.config
    size, groups = config.head_dim, config.num_attention_heads // config.num_key_value_heads

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return x / (x.pow(2).mean() + config.rms_norm_eps).sqrt() * w[f"{name}.weight"]

    def rotate(x: torch.Tensor, position: int) -> torch.Tensor:
        out = x.clone()
        for i in range(size // 2):
            angle = torch.tensor(position / 10000.0 ** (2 * i / size), dtype=torch.float64)
            out[i] = x[i] * angle.cos() - x[i + size // 2] * angle.sin()
            out[i + size // 2] = x[i + size // 2] * angle.cos() + x[i] * angle.sin()
        return out

    keys: list[list[torch.Tensor]] = []
    values: list[list[torch.Tensor]] = []
    outputs = []
    for row, token in enumerate(ids):
        h = hidden[row].double()
        normed = norm(h, "midlayer.hidden_norm")
        x = torch.cat((norm(w["embed_tokens.weight"][token], "midlayer.input_layernorm"), normed))
        q, k, v = (
            (w[f"midlayer.self_attn.{name}_proj.weight"] @ x).reshape(-1, size).unbind() for name in ("q", "k", "v")
        )
        keys.append([rotate(part, first + row) for part in k])
        values.append(list(v))
        mixed = []
        for index, query in enumerate(q):
            turned = rotate(query, first + row)
            scores = torch.stack([turned @ past[index // groups] for past in keys]) / size**0.5
            weights = scores.softmax(0)
            mixed.append(sum(weight * past[index // groups] for weight, past in zip(weights, values, strict=True)))
        residual = normed if config.norm_before_residual else h
        x = residual + w["midlayer.self_attn.o_proj.weight"] @ torch.cat(mixed)
        inner = norm(x, "midlayer.post_attention_layernorm")
        gate = w["midlayer.mlp.gate_proj.weight"] @ inner
        up = w["midlayer.mlp.up_proj.weight"] @ inner
        outputs.append(x + w["midlayer.mlp.down_proj.weight"] @ (gate * gate.sigmoid() * up))
    return torch.stack(outputs)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("norm_before_residual", [False, True])
def test_forward_equals_a_plain_recomputation(
    head: Eagle3Head, aux: torch.Tensor, norm_before_residual: bool, attention: str
) -> None:
    head.config.norm_before_residual = head.midlayer.norm_before_residual = norm_before_residual
    head.set_attn_implementation(attention)
    rows, first = 9, 5
    hidden = head.combine(aux)[:, :rows]
    positions = torch.arange(first, first + rows).expand(len(IDS), -1)
    mask = torch.full((rows, rows), float("-inf")).triu(1)[None, None]
    normed, after = head(IDS[:, 1 : 1 + rows], hidden, positions, attention_mask=mask)
    for sequence in range(len(IDS)):
        expected = recompute(head, IDS[sequence, 1 : 1 + rows].tolist(), hidden[sequence], first)
        assert torch.allclose(after[sequence].double(), expected, atol=1e-5)  # float32 sums of at most 128 terms
    weight = head.norm.weight
    rescaled = after * (after.pow(2).mean(-1, keepdim=True) + head.config.rms_norm_eps).rsqrt() * weight
    assert torch.allclose(normed, rescaled, atol=1e-5)  # one float32 normalization
    assert torch.equal(head.logits(normed), normed @ head.lm_head.weight.T)


def test_combine_is_fc(head: Eagle3Head, aux: torch.Tensor) -> None:
    assert torch.equal(head.combine(aux), aux @ head.fc.weight.T)


def test_a_causal_mask_is_the_default(head: Eagle3Head, aux: torch.Tensor) -> None:
    positions = torch.arange(9).expand(len(IDS), -1)
    hidden = head.combine(aux)
    whole = head(IDS[:, 1:10], hidden[:, :9], positions)[1]
    part = head(IDS[:, 1:6], hidden[:, :5], positions[:, :5])[1]
    assert torch.allclose(whole[:, :5], part, atol=1e-6)  # the same sums, in blocks of another size


def test_unrolling_equals_real_chains_with_a_cache(head: Eagle3Head, aux: torch.Tensor) -> None:
    """From every position: prefill up to it, then the head on its own outputs, one row at a time."""
    steps = 4
    unrolled = list(unroll(head, IDS, aux, steps))
    head.set_attn_implementation("eager")
    for start in range(IDS.shape[1] - steps):
        cache = DynamicCache()
        positions = torch.arange(start + 1).expand(len(IDS), -1)
        mask = torch.full((start + 1, start + 1), float("-inf")).triu(1)[None, None]
        hidden = head.combine(aux[:, : start + 1])
        tokens = IDS[:, 1 : start + 2]
        for step in range(steps):
            normed, hidden = head(tokens, hidden, positions, attention_mask=mask, past_key_values=cache)
            assert torch.allclose(normed[:, -1], unrolled[step][:, start], atol=1e-5)  # float32 sums in another order
            hidden, mask = hidden[:, -1:], None
            tokens = IDS[:, start + 2 + step : start + 3 + step]
            positions = positions[:, -1:] + 1


def test_draft_ids_and_target_ids(head: Eagle3Head) -> None:
    logits = torch.randn(3, len(head.d2t))
    spread = head.target_logits(logits)
    assert torch.equal(spread.argmax(-1), head.to_target(logits.argmax(-1)))
    assert torch.equal(spread[:, head.to_target(torch.arange(len(head.d2t)))], logits)
    assert torch.equal(spread.isneginf(), ~head.t2d.expand(3, -1))


@pytest.mark.parametrize("name", FORMATS)
def test_both_formats_give_the_saved_head(
    checkpoints: Path, target: LlamaForCausalLM, head: Eagle3Head, aux: torch.Tensor, name: str
) -> None:
    loaded = load_eagle3(checkpoints / name, target)
    assert loaded.embed_tokens is target.get_input_embeddings()
    assert loaded.config.aux_layers(8) == (2, 4, 5)
    assert not loaded.training
    for key, tensor in head.state_dict().items():
        assert torch.equal(loaded.state_dict()[key], tensor), key
    positions = torch.arange(9).expand(len(IDS), -1)
    expected = head(IDS[:, 1:10], head.combine(aux)[:, :9], positions)[0]
    assert torch.equal(loaded(IDS[:, 1:10], loaded.combine(aux)[:, :9], positions)[0], expected)


def edit_config(**changes: Any) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        for key, value in changes.items():
            for part in (config, config.get("transformer_layer_config", {})):
                if key in part or part is config:
                    part[key] = value
                if value is None:
                    part.pop(key, None)
        (folder / "config.json").write_text(json.dumps(config))

    return edit


def edit_tensors(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        change(tensors)
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})

    return edit


BROKEN: dict[str, tuple[Callable[[Path], None], str]] = {
    "no head": (edit_config(architectures=["LlamaForCausalLM"], speculators_model_type=None), "V-MODEL-KIND"),
    "two layers": (edit_config(num_hidden_layers=2), "V-EAGLE3-OPTION"),
    "norm before fc": (edit_config(norm_before_fc=True), "V-EAGLE3-OPTION"),
    "qwen layer": (edit_config(model_type="qwen3"), "V-EAGLE3-OPTION"),
    "another vocabulary": (edit_config(vocab_size=300), "V-EAGLE3-TARGET"),
    "another width": (edit_config(target_hidden_size=96), "V-EAGLE3-TARGET"),
    "fc missing": (edit_tensors(lambda tensors: tensors.pop("fc.weight")), "V-MODEL-WEIGHTS"),
    "d2t missing": (edit_tensors(lambda tensors: (tensors.pop("d2t"), tensors.pop("t2d"))), "V-MODEL-WEIGHTS"),
    "one tensor too many": (edit_tensors(lambda tensors: tensors.update(extra=torch.ones(2))), "V-MODEL-WEIGHTS"),
    "a shape": (edit_tensors(lambda tensors: tensors.update({"norm.weight": torch.ones(3)})), "V-MODEL-WEIGHTS"),
    "d2t out of range": (edit_tensors(lambda tensors: tensors["d2t"].add_(200)), "V-EAGLE3-VOCAB"),
    "d2t repeats an id": (edit_tensors(lambda tensors: tensors["d2t"][1:2].sub_(1)), "V-EAGLE3-VOCAB"),
    "d2t holds ids": (
        edit_tensors(lambda tensors: tensors["d2t"].add_(torch.arange(len(tensors["d2t"])))),
        "V-EAGLE3-VOCAB",
    ),
    "t2d of another set": (edit_tensors(lambda tensors: tensors["t2d"].logical_not_()), "V-EAGLE3-VOCAB"),
}


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_head_is_named(checkpoints: Path, target: LlamaForCausalLM, name: str, format: str) -> None:
    damage, code = BROKEN[name]
    damage(checkpoints / format)
    with pytest.raises(VerispecError) as error:
        load_eagle3(checkpoints / format, target)
    assert error.value.diagnostic.code == code
    assert str(checkpoints / format) in error.value.diagnostic.where


@pytest.mark.parametrize(("format", "default"), [("eagle3", False), ("eagle3_speculators", True)])
def test_the_residual_default_is_the_formats_own(
    checkpoints: Path, target: LlamaForCausalLM, format: str, default: bool
) -> None:
    edit_config(norm_before_residual=None)(checkpoints / format)
    assert load_eagle3(checkpoints / format, target).midlayer.norm_before_residual is default


def test_layers_default_where_the_config_names_none(checkpoints: Path, target: LlamaForCausalLM) -> None:
    edit_config(eagle_aux_hidden_state_layer_ids=None)(checkpoints / "eagle3")
    config = load_eagle3(checkpoints / "eagle3", target).config
    assert (config.aux_layers(8), config.aux_layers(32)) == ((2, 4, 5), (2, 16, 29))


def test_layers_are_also_found_in_eagle_config(checkpoints: Path, target: LlamaForCausalLM) -> None:
    nested = {"eagle_aux_hidden_state_layer_ids": [1, 3, 6]}
    edit_config(eagle_aux_hidden_state_layer_ids=None, eagle_config=nested)(checkpoints / "eagle3")
    assert load_eagle3(checkpoints / "eagle3", target).config.aux_layers(8) == (1, 3, 6)


def test_the_head_has_the_targets_dtype(checkpoints: Path, target: LlamaForCausalLM) -> None:
    head = load_eagle3(checkpoints / "eagle3", target.to(torch.bfloat16))
    assert {parameter.dtype for parameter in head.parameters()} == {torch.bfloat16}
    assert not any(parameter.requires_grad for parameter in head.parameters())


def test_embeddings_of_its_own_win(checkpoints: Path, target: LlamaForCausalLM) -> None:
    own = torch.randn(320, 64).bfloat16()
    edit_tensors(lambda tensors: tensors.update({"embed_tokens.weight": own}))(checkpoints / "eagle3")
    head = load_eagle3(checkpoints / "eagle3", target)
    assert torch.equal(head.embed_tokens.weight.bfloat16(), own)
    assert head.embed_tokens.weight.dtype == target.dtype


def test_a_pytorch_file_is_read_too(checkpoints: Path, target: LlamaForCausalLM) -> None:
    folder = checkpoints / "eagle3"
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(tensors, folder / "pytorch_model.bin")
    assert torch.equal(load_eagle3(folder, target).fc.weight, tensors["fc.weight"].to(target.dtype))


def test_a_full_draft_vocabulary_needs_no_tables(checkpoints: Path, target: LlamaForCausalLM) -> None:
    def widen(tensors: dict[str, torch.Tensor]) -> None:
        del tensors["d2t"], tensors["t2d"]
        tensors["lm_head.weight"] = torch.zeros(320, 64)

    edit_tensors(widen)(checkpoints / "eagle3")
    edit_config(draft_vocab_size=None)(checkpoints / "eagle3")
    head = load_eagle3(checkpoints / "eagle3", target)
    ids = torch.arange(320)
    assert torch.equal(head.to_target(ids), ids)


def test_the_registered_attention_function_is_called(head: Eagle3Head, aux: torch.Tensor) -> None:
    """An attention function for a paged cache needs the layer's index and its own arguments unchanged."""
    seen: list[tuple[int, tuple[int, ...], tuple[int, ...], Any]] = []

    def attend(module: nn.Module, query: torch.Tensor, key: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        seen.append((module.layer_idx, tuple(query.shape), tuple(key.shape), kwargs["batch"]))
        return query.transpose(1, 2), None

    AttentionInterface.register("test_seen", attend)
    config = head.config
    other = Eagle3Head(config, nn.Embedding(config.vocab_size, config.hidden_size), layer_idx=8)
    other.set_attn_implementation("test_seen")
    other(IDS[:, 1:6], other.combine(aux)[:, :5], torch.arange(5).expand(2, -1), batch="paged")
    assert seen == [(8, (2, 2, 5, 32), (2, 1, 5, 32), "paged")]


def test_a_scaled_rope_is_transformers_own(target: LlamaForCausalLM, checkpoints: Path) -> None:
    rope = {"rope_type": "linear", "factor": 4.0, "rope_theta": 500.0}
    edit_config(rope_parameters=rope, rope_theta=None)(checkpoints / "eagle3")
    head = load_eagle3(checkpoints / "eagle3", target)
    theta = 500.0 ** (-torch.arange(0, 32, 2) / 32) / 4
    assert torch.allclose(head.rotary_emb.inv_freq, theta)
    assert isinstance(head.config, LlamaConfig)
