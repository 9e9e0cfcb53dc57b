"""Auxiliary hidden states: the right layers, at no change of the model."""

from __future__ import annotations

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaForCausalLM, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from verispec.errors import VerispecError
from verispec.reference.models import AuxiliaryStates, default_layers

IDS = torch.arange(20).reshape(2, 10)


@pytest.fixture(params=["llama", "qwen3"])
def model(request: pytest.FixtureRequest, target: LlamaForCausalLM) -> PreTrainedModel:
    if request.param == "llama":
        return target
    torch.manual_seed(5)
    config = Qwen3Config(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=8, num_attention_heads=2, head_dim=16,
        num_key_value_heads=1,
    )  # fmt: skip
    return Qwen3ForCausalLM(config).eval().requires_grad_(False)


def test_id_i_enters_layer_i(model: PreTrainedModel) -> None:
    layers = range(model.config.num_hidden_layers)
    with AuxiliaryStates(model, layers) as aux:
        out = model(IDS, output_hidden_states=True, use_cache=False)
        states = aux.take().chunk(len(layers), dim=-1)
    for layer in layers:
        assert torch.equal(states[layer], out.hidden_states[layer]), layer


def test_the_last_id_leaves_the_last_layer_before_the_norm(model: PreTrainedModel) -> None:
    with AuxiliaryStates(model, [model.config.num_hidden_layers]) as aux:
        out = model(IDS, output_hidden_states=True, use_cache=False)
        state = aux.take()
    assert torch.equal(model.model.norm(state), out.hidden_states[-1])
    assert not torch.equal(state, out.hidden_states[-1])


def test_states_come_in_the_order_asked_for(model: PreTrainedModel) -> None:
    with AuxiliaryStates(model, [5, 1]) as aux:
        out = model(IDS, output_hidden_states=True, use_cache=False)
        assert torch.equal(aux.take(), torch.cat((out.hidden_states[5], out.hidden_states[1]), dim=-1))


def test_states_are_handed_over_once(model: PreTrainedModel) -> None:
    with AuxiliaryStates(model, [2]) as aux:
        with pytest.raises(VerispecError, match="V-MODEL-AUX"):
            aux.take()
        model(IDS)
        aux.take()
        with pytest.raises(VerispecError, match="V-MODEL-AUX"):
            aux.take()


def test_states_can_be_put_back(model: PreTrainedModel) -> None:
    with AuxiliaryStates(model, [5, 1, 5]) as aux:
        model(IDS[:1])
        latest = aux.latest()
        expected = aux.take()
        aux.put(latest)
        assert torch.equal(aux.take(), expected)


def test_closing_leaves_no_hook(model: PreTrainedModel) -> None:
    with AuxiliaryStates(model, [0, model.config.num_hidden_layers]):
        pass
    hooks = [module._forward_pre_hooks or module._forward_hooks for module in model.model.layers]
    assert not any(hooks)


@pytest.mark.parametrize(("num_layers", "layers"), [(8, (2, 4, 5)), (10, (2, 5, 7)), (32, (2, 16, 29))])
def test_default_layers(num_layers: int, layers: tuple[int, int, int]) -> None:
    assert default_layers(num_layers) == layers


@pytest.mark.parametrize("num_layers", [1, 4, 5, 6])
def test_a_shallow_target_has_no_default_layers(num_layers: int) -> None:
    with pytest.raises(VerispecError, match=f"V-MODEL-AUX.*{num_layers} layers"):
        default_layers(num_layers)


@pytest.mark.parametrize("layers", [[], [-1], [2, 9]])
def test_ids_outside_the_model_are_refused(target: LlamaForCausalLM, layers: list[int]) -> None:
    with pytest.raises(VerispecError, match="V-MODEL-AUX"):
        AuxiliaryStates(target, layers)


def test_a_model_without_the_layer_list_is_refused_by_name() -> None:
    model = GPT2LMHeadModel(GPT2Config(vocab_size=16, n_embd=8, n_layer=2, n_head=1))
    with pytest.raises(VerispecError, match=r"V-MODEL-AUX.*GPT2LMHeadModel"):
        AuxiliaryStates(model, [1])
