"""States of recurrent layers: hybrid targets, whose state must be rolled back at a rejection.

A recurrent layer (Mamba-2, a gated delta net, a short convolution) keeps a state of fixed size per sequence,
made of all tokens before. Rejected keys are masked and written over; no token can be taken out of a state again.
`RecurrentStates` keeps a checkpoint per draft instead: entry j of a request is its state after the tokens that are
certain and j drafts. A rejection costs nothing: the next step reads the entry of the tokens that were accepted.

The price is K + 1 states per request, and K more small passes of the recurrent layers per step, each over one token of
all requests with drafts. Computing the accepted tokens again from one saved state would need their inputs at every
layer, and a further pass whose length differs by request.

The layers are transformers' own, and this module only hands them states. It runs each layer by requests, where the rest
of the model runs on the flattened tokens of all of them. Such passes are not recorded as CUDA graphs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers
from torch import nn
from transformers import Cache, PreTrainedModel

from verispec.errors import VerispecError

_CACHES = ("cache_params", "past_key_values", "cache")
"""Names of the argument through which a layer of transformers gets its states; the last one since 5.24."""
_ATTENTION = frozenset({"attention", "full_attention", "sliding_attention", "chunked_attention"})

Key = tuple[str, int]
"""Kind of a state, conv or recurrent, and its place among several of one layer."""


class RecurrentPart(NamedTuple):
    """Tokens of one request in the next pass.

    Attributes:
        slot: place of the request's states; no other running request has it.
        computed: tokens of the sequence that the request's state must be made of.
        num_tokens: tokens of the pass.
        num_drafts: number of drafts among them, which come last.
    """

    slot: int
    computed: int
    num_tokens: int
    num_drafts: int


class _Pass(NamedTuple):
    """One run of each recurrent layer over the same number of tokens of some requests.

    Attributes:
        length: tokens of each request.
        rows: [requests * length] rows of the flattened batch.
        slots: [requests] places of the states.
        read: [requests] checkpoints to start from.
        begins: [requests] bool, requests that start from the empty state.
        write: checkpoint of the state afterwards.
    """

    length: int
    rows: torch.Tensor
    slots: torch.Tensor
    read: torch.Tensor
    begins: torch.Tensor
    write: int


class LayerStates:
    """States of some requests at one layer; it answers transformers' layers as their own cache does."""

    def __init__(self, states: dict[Key, torch.Tensor]) -> None:
        self.states = states

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> torch.Tensor | None:
        """Return the last inputs of the convolution, [B, channels, width], which the layer may update in place."""
        return self.states.get(("conv", state_idx))

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> torch.Tensor | None:
        """Return the recurrent state [B, ...], which the layer may update in place."""
        return self.states.get(("recurrent", state_idx))

    def update_conv_state(
        self, inputs: torch.Tensor, layer_idx: int, state_idx: int = 0, conv_kernel_size: int | None = None
    ) -> torch.Tensor:
        """Append inputs [B, channels, T], and return them with the earlier ones that the convolution reads."""
        held = self.states.get(("conv", state_idx))
        if held is None:
            held = inputs.new_zeros(*inputs.shape[:-1], conv_kernel_size or inputs.shape[-1])
        whole = torch.cat((held, inputs), dim=-1)
        self.states["conv", state_idx] = whole[..., -held.shape[-1] :]
        return whole

    def update_recurrent_state(self, state: torch.Tensor, layer_idx: int, state_idx: int = 0) -> torch.Tensor:
        """Set the recurrent state."""
        self.states["recurrent", state_idx] = state
        return state

    def is_recording_past(self, layer_idx: int) -> bool:
        """Return False: checkpoints are kept outside of the layer."""
        return False


class RecurrentStates:
    """The recurrent states of one model, by request slot and checkpoint.

    Args:
        model: hybrid model, whose recurrent layers are changed to read and write these states. It runs on [1, T]
            flattened tokens.
        num_slots: maximum number of running requests.
        max_drafts: maximum number of drafts per request and step.
        upload: function that puts an array on the model's device.

    Raises:
        VerispecError: V-RUN-RECURRENT for a recurrent layer that does not continue from a state.
    """

    def __init__(
        self, model: PreTrainedModel, num_slots: int, max_drafts: int, upload: Callable[[np.ndarray], torch.Tensor]
    ) -> None:
        self._shape = num_slots, max_drafts + 1
        self._upload = upload
        self._passes: list[_Pass] = []
        self._first = np.zeros(num_slots, dtype=np.int64)
        """Tokens that checkpoint 0 of each slot is made of."""
        self._last = np.full(num_slots, -1, dtype=np.int64)
        """Tokens that its last checkpoint is made of; less than `_first` for a slot without a state."""
        self.layers: list[dict[Key, torch.Tensor]] = []
        """By layer the states [slots, checkpoints, ...], made when the layer first hands them out."""
        for name, layer in recurrent_layers(model):
            _require_continuing(layer, name, model)
            self.layers.append({})
            layer.forward = partial(self._run, self.layers[-1], layer.forward, name)

    def select(self, parts: Sequence[RecurrentPart]) -> None:
        """Set the tokens of the next pass, in the order of the flattened batch.

        Raises:
            VerispecError: V-RUN-RECURRENT if no checkpoint is the state that a request must start from.
        """
        slots = np.array([part.slot for part in parts])
        computed = np.array([part.computed for part in parts])
        lens = np.array([part.num_tokens for part in parts])
        drafts = np.array([part.num_drafts for part in parts])
        read = np.where(computed > 0, computed - self._first[slots], 0)
        missing = np.flatnonzero((computed > 0) & ((read < 0) | (computed > self._last[slots])))
        for place in missing[:1].tolist():
            raise VerispecError(
                "V-RUN-RECURRENT",
                f"slot {slots[place]} has no state after {computed[place]} tokens",
                where="recurrent layers",
                cause=f"its states are those after {self._first[slots[place]]} to {self._last[slots[place]]} tokens",
                hint="this is an error of the runner: report it with the requests and the options",
            )
        self._first[slots], self._last[slots] = computed + lens - drafts, computed + lens
        starts = np.cumsum(lens) - lens
        certain = lens - drafts
        self._passes = []
        for length in np.unique(certain).tolist():
            members = np.flatnonzero(certain == length)
            self._passes.append(self._pass(members, slots, starts, length, read, computed == 0, 0))
        for draft in range(1, int(drafts.max()) + 1):
            members = np.flatnonzero(drafts >= draft)
            before = np.full_like(read, draft - 1)
            rows = starts + certain + draft - 1
            self._passes.append(self._pass(members, slots, rows, 1, before, np.zeros_like(slots, dtype=bool), draft))

    def poison(self, slot: int) -> None:
        """Fill the states of `slot` with NaN, so that a read of them shows."""
        self._last[slot] = -1
        for states in self.layers:
            for state in states.values():
                state[slot] = float("nan")

    def _pass(
        self,
        members: np.ndarray,
        slots: np.ndarray,
        starts: np.ndarray,
        length: int,
        read: np.ndarray,
        begins: np.ndarray,
        write: int,
    ) -> _Pass:
        rows = (starts[members, None] + np.arange(length)).reshape(-1)
        upload = self._upload
        return _Pass(
            length, upload(rows), upload(slots[members]), upload(read[members]), upload(begins[members]), write
        )

    def _run(
        self,
        states: dict[Key, torch.Tensor],
        forward: Callable[..., torch.Tensor],
        cache_name: str,
        hidden_states: torch.Tensor,
        **ignored: Any,
    ) -> torch.Tensor:
        """Run one recurrent layer on [1, T, H], requests with the same number of tokens together."""
        tokens = hidden_states[0]
        out = torch.empty_like(tokens)
        for part in self._passes:
            held = LayerStates(_read(states, part))
            rows = tokens.index_select(0, part.rows).view(len(part.slots), part.length, -1)
            out.index_copy_(0, part.rows, forward(rows, **{cache_name: held}).flatten(0, 1))
            for key, state in held.states.items():
                if key not in states:
                    states[key] = state.new_full((*self._shape, *state.shape[1:]), float("nan"))
                states[key][part.slots, part.write] = state
        return out[None]


def _read(states: dict[Key, torch.Tensor], part: _Pass) -> dict[Key, torch.Tensor]:
    """Return copies of the states that the requests of a pass start from, [requests, ...]."""
    read = {key: state[part.slots, part.read] for key, state in states.items()}
    for state in read.values():
        state[part.begins] = 0
    return read


def _require_continuing(layer: Any, cache_name: str, model: PreTrainedModel) -> None:
    """Raise V-RUN-RECURRENT unless a text in pieces gives what it gives as a whole; some layers forget their state.

    Sums in another order change about 1e-6 of the largest number in float32, a forgotten state more than 1e-2.
    """
    weight = next(layer.parameters())
    size: int = model.config.hidden_size
    rows = torch.linspace(-3, 3, 6 * size).sin().view(1, 6, size).to(weight)
    held = LayerStates({})
    with torch.inference_mode():
        whole = layer(rows)
        pieces = torch.cat([layer(part, **{cache_name: held}) for part in rows.split([2, 3, 1], dim=1)], dim=1)
    bound = max(1e-3, 8 * torch.finfo(weight.dtype).eps) * whole.abs().max()
    if not (whole - pieces).abs().max() <= bound:
        raise VerispecError(
            "V-RUN-RECURRENT",
            f"{type(layer).__name__} does not continue from its state when it reads several tokens",
            where=type(model).__name__,
            cause=f"six tokens in pieces differ by {(whole - pieces).abs().max():.2g} from the same as a whole",
            hint="use a hybrid with Mamba-2, gated delta nets or short convolutions",
        )


def recurrent_layers(model: PreTrainedModel) -> list[tuple[str, Any]]:
    """Return the recurrent layers of a model, each with the name of its argument for states.

    Raises:
        VerispecError: V-RUN-RECURRENT if the model has others than those that transformers' states serve.
    """
    found = []
    for module in model.modules():
        convolves = any(isinstance(child, nn.Conv1d) for child in module.children())
        name = next((name for name in _CACHES if name in inspect.signature(module.forward).parameters), None)
        if convolves and name is not None:
            found.append((name, module))
    kinds = set(getattr(model.config, "layer_types", None) or ()) - _ATTENTION
    if found and not hasattr(Cache, "is_recording_past"):
        raise VerispecError(
            "V-RUN-RECURRENT",
            f"transformers {transformers.__version__} hands recurrent layers their states in another way",
            where=type(model).__name__,
            hint="install transformers 5.20 or later",
        )
    if not found and (kinds or getattr(model, "_is_stateful", False)):
        raise VerispecError(
            "V-RUN-RECURRENT",
            f"{type(model).__name__} has recurrent layers of an unknown kind: {', '.join(sorted(kinds)) or 'no names'}",
            where="layer_types",
            hint="use a hybrid with Mamba-2, gated delta nets or short convolutions",
        )
    return found
