"""Auxiliary hidden states: the inner states of a target that an Eagle3 head reads.

Layer id i names the residual stream at the entry of decoder layer i. Id L, one past the last layer, names the stream
after the last layer, before the final norm. Id i is therefore the output of layer i - 1, and id 0 the embeddings. (vLLM
0.33.0: ``eagle_aux_hidden_state_layer_ids``.)

Forward hooks capture the states, so that a forward pass costs nothing extra and keeps only these tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import torch
from torch import nn

from verispec.errors import VerispecError


def decoder_layers(model: nn.Module) -> nn.ModuleList:
    """Return the decoder layers of a Llama-like model (``model.model.layers``).

    Raises:
        VerispecError: V-MODEL-AUX if the model has no such list, so that its inner states have no names.
    """
    layers = getattr(getattr(model, "model", None), "layers", None)
    if not isinstance(layers, nn.ModuleList) or not len(layers):
        raise VerispecError(
            "V-MODEL-AUX",
            f"{type(model).__name__} has no auxiliary hidden states: expected decoder layers at model.layers",
            cause="an Eagle3 head reads hidden states of inner layers of its target",
            hint="use a Llama-like or Qwen-like target, or another drafting method",
        )
    return layers


def default_layers(num_layers: int) -> tuple[int, int, int]:
    """Return the layer ids of a head whose configuration names none: (2, n // 2, n - 3) (vLLM 0.33.0, Llama).

    Raises:
        VerispecError: V-MODEL-AUX if the target is too shallow for three increasing ids.
    """
    layers = (2, num_layers // 2, num_layers - 3)
    if not layers[0] < layers[1] < layers[2]:
        raise VerispecError(
            "V-MODEL-AUX",
            f"a target of {num_layers} layers has no default auxiliary layers: (2, n // 2, n - 3) = {layers}",
            hint="name them in the head's config.json: eagle_aux_hidden_state_layer_ids",
        )
    return layers


class AuxiliaryStates:
    """Captures the auxiliary hidden states of every forward pass of `model` until closed.

    Use it as a context manager or call `close`. `take` returns the states of the latest pass.

    Args:
        model: a Llama-like or Qwen-like model of transformers, or its `FusedModel`.
        layers: layer ids in [0, L]; the states are returned in this order.

    Raises:
        VerispecError: V-MODEL-AUX if the model has no decoder layers, or an id is outside [0, L].
    """

    def __init__(self, model: nn.Module, layers: Sequence[int]) -> None:
        decoder = decoder_layers(model)
        outside = [layer for layer in layers if not 0 <= layer <= len(decoder)]
        if outside or not layers:
            raise VerispecError(
                "V-MODEL-AUX",
                f"auxiliary layer ids {list(layers)} for a target of {len(decoder)} layers",
                cause=f"outside [0, {len(decoder)}]: {outside}" if outside else "no id is given",
                hint=f"give at least one layer id from 0 to {len(decoder)}",
            )
        self.layers = tuple(layers)
        self._states: dict[int, torch.Tensor] = {}
        self._handles = [self._attach(decoder, layer) for layer in sorted(set(layers))]

    def _attach(self, decoder: nn.ModuleList, layer: int) -> Any:
        if layer < len(decoder):
            return decoder[layer].register_forward_pre_hook(
                lambda module, args, kwargs: self._keep(layer, args[0] if args else kwargs["hidden_states"]),
                with_kwargs=True,
            )
        return decoder[-1].register_forward_hook(
            lambda module, args, output: self._keep(layer, output[0] if isinstance(output, tuple) else output)
        )

    def _keep(self, layer: int, states: torch.Tensor) -> None:
        self._states[layer] = states

    def latest(self) -> tuple[torch.Tensor, ...]:
        """Return the states of the latest forward pass, one [tokens, H] per different layer, and keep them."""
        return tuple(self._states[layer][0] for layer in sorted(self._states))

    def put(self, states: Sequence[torch.Tensor]) -> None:
        """Take `states` for those of the latest forward pass, in the order of `latest`."""
        self._states = {layer: state[None] for layer, state in zip(sorted(set(self.layers)), states, strict=True)}

    def take(self) -> torch.Tensor:
        """Return the states of the latest forward pass, [batch, tokens, len(layers) * H], and drop them.

        Raises:
            VerispecError: V-MODEL-AUX if the model did not run since the last call.
        """
        if not self._states:
            raise VerispecError(
                "V-MODEL-AUX",
                "no forward pass since the last call of take",
                hint="run the model before every call of take",
            )
        states = torch.cat([self._states[layer] for layer in self.layers], dim=-1)
        self._states.clear()
        return states

    def close(self) -> None:
        """Remove the hooks from the model."""
        for handle in self._handles:
            handle.remove()
        self._states.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
