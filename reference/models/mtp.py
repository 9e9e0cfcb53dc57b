"""A multi-token prediction (MTP) head: one decoder layer that drafts from its target's last hidden state.

Source: Gloeckle et al. 2024, "Better & Faster Large Language Models via Multi-token Prediction"; DeepSeek-AI 2024,
"DeepSeek-V3 Technical Report", section 2.2, whose heads are chained. Tensor names and config keys follow Xiaomi's MiMo
checkpoints as vLLM 0.32.0 reads them (``MiMoMTP``): ``model.mtp_layers.0.*`` beside the weights of a Qwen2 target.

One row of the head stands for one target position i. It reads the embedding e of token i + 1 and a hidden state h, and
predicts token i + 2. At first h is the target's state of position i after its last layer, before the final norm. Then
it is the head's own output for the previous row:

    x = input_proj([hidden_layernorm(h), token_layernorm(e)])          e is 0 at position 0
    g = final_layernorm(layer(x))                                      g is the next row's h
    logits = lm_head(g)                                                the target's own output embedding

The layer is Qwen2's, whose attention function ``head.set_attn_implementation(name)`` selects.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel, Qwen2Config
from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer, Qwen2RotaryEmbedding

from verispec.errors import VerispecError

from .checkpoint import is_mtp, load_head_tensors, read_config, read_tensors

PREFIX = "model.mtp_layers.0."
"""Prefix of the head's tensors in a checkpoint, which may have those of the target too."""

_BLOCK = ("self_attn.", "mlp.", "input_layernorm.", "post_attention_layernorm.")


class MTPConfig(Qwen2Config):
    """The configuration of the head's one layer."""

    def aux_layers(self, num_target_layers: int) -> tuple[int, ...]:
        """Return the layer ids that the head reads, for `AuxiliaryStates`: the state after the last layer."""
        return (num_target_layers,)


class MTPHead(nn.Module):
    """The head of the module docstring; shapes are [B, S, ...] with B sequences of S rows.

    Args:
        config: shapes of the layer; its vocabulary and width are the target's.
        target: model whose embeddings the head shares; it sets the head's dtype and device.
    """

    def __init__(self, config: MTPConfig, target: PreTrainedModel) -> None:
        super().__init__()
        self.config = config
        self.layer_idx = 0
        self.aux_width = config.hidden_size
        width, eps = config.hidden_size, config.rms_norm_eps
        self.token_layernorm = nn.RMSNorm(width, eps=eps)
        self.hidden_layernorm = nn.RMSNorm(width, eps=eps)
        self.input_proj = nn.Linear(2 * width, width, bias=False)
        self.mtp_block = Qwen2DecoderLayer(config, self.layer_idx)
        self.final_layernorm = nn.RMSNorm(width, eps=eps)
        embed_tokens, lm_head = target.get_input_embeddings(), target.get_output_embeddings()
        assert isinstance(embed_tokens, nn.Embedding) and isinstance(lm_head, nn.Linear)
        self.to(device=embed_tokens.weight.device, dtype=embed_tokens.weight.dtype)
        self._shared = (embed_tokens, lm_head)  # a tuple, so that they are no parameters of the head
        self.rotary_emb = Qwen2RotaryEmbedding(config).to(embed_tokens.weight.device)
        self.set_attn_implementation("sdpa")

    @property
    def embed_tokens(self) -> nn.Embedding:
        """The target's embedding."""
        return self._shared[0]

    @property
    def lm_head(self) -> nn.Linear:
        """The target's output embedding."""
        return self._shared[1]

    def set_attn_implementation(self, name: str) -> None:
        """Select the attention function by its name in transformers' `ALL_ATTENTION_FUNCTIONS`."""
        self.config._attn_implementation = name

    def combine(self, aux: torch.Tensor) -> torch.Tensor:
        """Return the state of `AuxiliaryStates.take`, [B, S, H], as it is."""
        return aux

    def forward(
        self, input_ids: torch.Tensor, hidden: torch.Tensor, position_ids: torch.Tensor, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run the layer over S rows.

        Args:
            input_ids: [B, S] token ids; the row of position i has token i + 1.
            hidden: [B, S, H] from `combine`, or this method's second result for the previous row.
            position_ids: [B, S] position i of each row.
            **kwargs: `attention_mask`, and further arguments of the attention function.

        Returns:
            Hidden states for `logits` and for the next row, which are the same; each [B, S, H].
        """
        embeds = self.embed_tokens(input_ids).masked_fill(position_ids[..., None] == 0, 0)
        x = self.input_proj(torch.cat((self.hidden_layernorm(hidden), self.token_layernorm(embeds)), dim=-1))
        x = self.mtp_block(x, position_embeddings=self.rotary_emb(x, position_ids), **kwargs)
        following = self.final_layernorm(x)
        return following, following

    def logits(self, normed: torch.Tensor) -> torch.Tensor:
        """Map hidden states [..., H] to logits over the target's vocabulary, [..., V]."""
        logits: torch.Tensor = self.lm_head(normed)
        return logits

    def to_target(self, draft_ids: torch.Tensor) -> torch.Tensor:
        """Return the ids as they are: the head has the target's vocabulary."""
        return draft_ids

    def target_logits(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the logits as they are: the head has the target's vocabulary."""
        return logits


def load_mtp(folder: str | Path, target: PreTrainedModel) -> MTPHead:
    """Load a head for `target`, in its dtype and on its device, in eval mode, without gradients.

    The folder may be a whole checkpoint with its target, or have the head's tensors alone.

    Raises:
        VerispecError: V-MODEL-FOLDER, V-MODEL-CONFIG or V-MODEL-KIND if `folder` is no MiMo checkpoint; V-MTP-OPTION
            for more than one MTP layer; V-MTP-TARGET if it belongs to another target; V-MODEL-WEIGHTS if tensors are
            missing, unknown or of another shape.
    """
    folder = Path(folder)
    config = read_mtp_config(folder)
    shape = tuple(target.get_input_embeddings().weight.shape)
    if shape != (config.vocab_size, config.hidden_size):
        raise VerispecError(
            "V-MTP-TARGET",
            f"the head was made for a target with (vocabulary, hidden size) {(config.vocab_size, config.hidden_size)}, "
            f"this one has {shape}",
            where=str(folder),
            hint="load the head with the target that it was trained for",
        )
    head = MTPHead(config, target)
    tensors = {_own_name(name): value for name, value in read_tensors(folder).items() if name.startswith(PREFIX)}
    hint = f"give a checkpoint of MiMo's layout, with the head's tensors under {PREFIX}"
    load_head_tensors(head, tensors, folder, frozenset(), hint)
    head.eval().requires_grad_(False)
    return head


def read_mtp_config(folder: Path) -> MTPConfig:
    """Read the configuration of a head from a checkpoint's ``config.json``.

    Raises:
        VerispecError: see `load_mtp`.
    """
    raw = read_config(folder)
    if not is_mtp(raw):
        raise VerispecError(
            "V-MODEL-KIND",
            f"expected a checkpoint with an MTP layer, got architectures {raw.get('architectures')}",
            where=str(folder / "config.json"),
            hint="name the folder of a MiMo checkpoint, or load another model with method draft_model",
        )
    if raw.get("num_nextn_predict_layers", 1) != 1:
        raise VerispecError(
            "V-MTP-OPTION",
            f"the checkpoint has {raw['num_nextn_predict_layers']} MTP layers, expected 1",
            where=str(folder / "config.json"),
            hint="give a checkpoint with one MTP layer, which drafts every token of a chain",
        )
    ignored = {"architectures", "model_type", "dtype", "torch_dtype", "transformers_version", "layer_types"}
    return MTPConfig(**{key: value for key, value in raw.items() if key not in ignored} | {"num_hidden_layers": 1})


def _own_name(name: str) -> str:
    """Return a tensor's name in `MTPHead`: checkpoints do not name the layer apart."""
    own = name.removeprefix(PREFIX)
    return f"mtp_block.{own}" if own.startswith(_BLOCK) else own
