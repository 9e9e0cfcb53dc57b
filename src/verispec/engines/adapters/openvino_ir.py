"""Llama checkpoints as OpenVINO models: the graph is written with OpenVINO's own operations, in float32.

The graph has the inputs, states and names that OpenVINO GenAI looks for, and the pattern of attention that it replaces
by paged attention. A test compares its logits with those of transformers through every case of generation.
"""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch

from verispec.engines.adapters.checkpoints import content_key, require_plain_llama, tokenizer_of
from verispec.engines.checkout import filled_folder
from verispec.reference.models import load_target

MODEL = "openvino_model.xml"
_COPIED = ("config.json", "generation_config.json")


def converted(folder: Path) -> Path:
    """Return a folder with the OpenVINO model and tokenizer of a checkpoint.

    A folder that has an OpenVINO model is returned as it is. Others are converted once, and cached by their content.

    Args:
        folder: a checkpoint folder.

    Raises:
        UnsupportedCall: the checkpoint is not a plain Llama model.
        VerispecError: V-MODEL-*, the checkpoint cannot be loaded.
    """
    if (folder / MODEL).is_file():
        return folder
    openvino: Any = importlib.import_module("openvino")
    key = content_key((folder,), openvino.__version__, Path(__file__).read_text("utf-8"))
    return filled_folder("openvino", key, lambda to: _convert(openvino, folder, to))


def _convert(openvino: Any, folder: Path, to: Path) -> None:
    model = load_target(folder)
    require_plain_llama(model, f"; give a folder with {MODEL}")
    openvino.save_model(_Llama(openvino, model).build(), to / MODEL, compress_to_fp16=False)
    for name in _COPIED:
        if (folder / name).is_file():
            shutil.copyfile(folder / name, to / name)
    tokenizers: Any = importlib.import_module("openvino_tokenizers")
    # A pipeline with a draft model does not start without a tokenizer.
    pair = tokenizers.convert_tokenizer(tokenizer_of(folder, model.config.vocab_size), with_detokenizer=True)
    for name, part in zip(("openvino_tokenizer.xml", "openvino_detokenizer.xml"), pair, strict=True):
        openvino.save_model(part, to / name)


class _Llama:
    """The graph of a Llama model: input_ids, attention_mask and position_ids [B, L], beam_idx [B]; logits [B, L, V]."""

    def __init__(self, openvino: Any, model: Any) -> None:
        self._ov, self._op = openvino, importlib.import_module("openvino.opset13")
        self._config = model.config
        self._weights = {name: value.to(torch.float32).numpy() for name, value in model.state_dict().items()}
        self._frequencies = model.model.rotary_emb.inv_freq.to(torch.float32).numpy()
        heads, width = model.config.num_attention_heads, model.config.hidden_size
        self._heads, self._kv_heads = heads, model.config.num_key_value_heads
        self._head_size = getattr(model.config, "head_dim", None) or width // heads
        self._sinks: list[Any] = []

    def build(self) -> Any:
        """Return the model."""
        op = self._op
        ids, mask, positions = (self._input(n, [-1, -1]) for n in ("input_ids", "attention_mask", "position_ids"))
        self._beam = self._input("beam_idx", [-1], np.int32)
        self._batch, length = self._size(ids, 0), self._size(ids, 1)
        self._total = self._size(mask, 1)
        seen = self._visible(mask, length)
        rotation = self._rotation(positions)
        x = op.gather(self._weight("model.embed_tokens.weight"), ids, self._ints(0))
        for layer in range(self._config.num_hidden_layers):
            name = f"model.layers.{layer}."
            normal = self._norm(x, name + "input_layernorm.weight")
            x = op.add(x, self._attention(layer, normal, rotation, seen))
            normal = self._norm(x, name + "post_attention_layernorm.weight")
            gated = op.swish(self._linear(normal, name + "mlp.gate_proj.weight"))
            wide = op.multiply(gated, self._linear(normal, name + "mlp.up_proj.weight"))
            x = op.add(x, self._linear(wide, name + "mlp.down_proj.weight"))
        logits = self._linear(self._norm(x, "model.norm.weight"), "lm_head.weight")
        logits.output(0).set_names({"logits"})
        return self._ov.Model([op.result(logits)], self._sinks, [ids, mask, positions, self._beam], "llama")

    def _attention(self, layer: int, x: Any, rotation: tuple[Any, Any], seen: Any) -> Any:
        op, name, size = self._op, f"model.layers.{layer}.self_attn.", self._head_size
        query, key, value = (
            op.transpose(
                op.reshape(self._linear(x, f"{name}{part}_proj.weight"), self._ints([0, 0, heads, size]), True),
                self._ints([0, 2, 1, 3]),
            )
            for part, heads in (("q", self._heads), ("k", self._kv_heads), ("v", self._kv_heads))
        )
        query, key = (self._rotated(part, rotation) for part in (query, key))
        keys, values = self._kept(f"{layer}.key", key), self._kept(f"{layer}.value", value)
        mixed = op.scaled_dot_product_attention(query, keys, values, seen)
        flat = self._ints([0, 0, self._heads * size])
        joined = op.reshape(op.transpose(mixed, self._ints([0, 2, 1, 3])), flat, True)
        return self._linear(joined, name + "o_proj.weight")

    def _kept(self, name: str, new: Any) -> Any:
        """Return all keys or values of a layer, repeated for the query heads that share them; they become a state."""
        op, heads, size = self._op, self._kv_heads, self._head_size
        info = self._ov.op.util.VariableInfo()
        info.data_shape, info.data_type = self._ov.PartialShape([-1, heads, -1, size]), self._ov.Type.f32
        info.variable_id = f"past_key_values.{name}present.{name}"
        variable = self._ov.op.util.Variable(info)
        empty = op.concat([self._batch, self._ints([heads]), self._ints([0]), self._ints([size])], 0)
        past = self._ov.op.read_value(op.broadcast(self._floats(0.0), empty), variable)
        every = op.concat([op.gather(past, self._beam, self._ints(0)), new], 2)
        self._sinks.append(self._ov.op.assign(every, variable))
        if heads == self._heads:
            return every
        shared = [self._batch, self._ints([heads]), self._ints([self._heads // heads]), self._total, self._ints([size])]
        wide = op.broadcast(op.unsqueeze(every, self._ints(2)), op.concat(shared, 0), "BIDIRECTIONAL")
        return op.reshape(wide, self._ints([0, self._heads, -1, size]), True)

    def _rotation(self, positions: Any) -> tuple[Any, Any]:
        """Return the cosines and sines [B, 1, L, D] of the positions' angles."""
        op = self._op
        places = op.convert(op.unsqueeze(positions, self._ints(1)), np.float32)
        angles = op.matmul(self._floats(self._frequencies.reshape(1, -1, 1)), places, False, False)
        angles = op.transpose(angles, self._ints([0, 2, 1]))
        both = op.concat([angles, angles], -1)
        return op.unsqueeze(op.cos(both), self._ints(1)), op.unsqueeze(op.sin(both), self._ints(1))

    def _rotated(self, x: Any, rotation: tuple[Any, Any]) -> Any:
        op, half = self._op, self._head_size // 2
        first, second = (
            op.slice(x, self._ints([start]), self._ints([end]), self._ints([1]), self._ints([3]))
            for start, end in ((0, half), (half, 2 * half))
        )
        turned = op.concat([op.multiply(second, self._floats(-1.0)), first], -1)
        return op.add(op.multiply(x, rotation[0]), op.multiply(turned, rotation[1]))

    def _visible(self, mask: Any, length: Any) -> Any:
        """Return the summand of attention scores [B, 1, L, T]: 0 for earlier tokens, the least float for others."""
        op, zero, one = self._op, self._ints(0), self._ints(1)
        past, total = (op.squeeze(x, self._ints([0])) for x in (op.subtract(self._total, length), self._total))
        rows = op.unsqueeze(op.range(past, total, one, "i64"), one)
        columns = op.unsqueeze(op.range(zero, total, one, "i64"), zero)
        causal = op.unsqueeze(op.less_equal(columns, rows), self._ints([0, 1]))
        real = op.not_equal(op.unsqueeze(mask, self._ints([1, 2])), zero)
        return op.select(op.logical_and(causal, real), self._floats(0.0), self._floats(np.finfo(np.float32).min))

    def _norm(self, x: Any, name: str) -> Any:
        op = self._op
        mean = op.reduce_mean(op.power(x, self._floats(2.0)), self._ints([-1]), keep_dims=True)
        root = op.sqrt(op.add(mean, self._floats(self._config.rms_norm_eps)))
        return op.multiply(op.multiply(x, op.divide(self._floats(1.0), root)), self._weight(name))

    def _linear(self, x: Any, name: str) -> Any:
        return self._op.matmul(x, self._weight(name), False, True)

    def _input(self, name: str, shape: list[int], dtype: Any = np.int64) -> Any:
        made = self._op.parameter(shape, dtype, name=name)
        made.output(0).set_names({name})
        return made

    def _size(self, x: Any, axis: int) -> Any:
        return self._op.gather(self._op.shape_of(x), self._ints([axis]), self._ints(0))

    def _weight(self, name: str) -> Any:
        return self._floats(self._weights[name])

    def _floats(self, values: Any) -> Any:
        return self._op.constant(np.asarray(values, np.float32))

    def _ints(self, values: Any) -> Any:
        return self._op.constant(np.asarray(values, np.int64))
