"""The Eagle3 head: one decoder layer that drafts from its target's hidden states.

Source: Li et al. 2025, "EAGLE-3: Scaling up Inference Acceleration of Large Language Models via Training-Time Test",
section 3. Tensor names and config keys follow the SafeAILab checkpoints and vLLM 0.33.0's ``Eagle3LlamaForCausalLM``.

One row of the head stands for one target position i. It reads the embedding e of token i + 1 and a hidden state h, and
predicts token i + 2. At first h is `combine` of the target's auxiliary states of position i, then the head's own output
for the previous row:

    x = h + attention([norm(e), norm(h)])          queries, keys and values read 2H numbers
    g = x + mlp(norm(x))                           g is the next row's h
    logits = lm_head(norm(g))                      over the draft vocabulary; target id = d + d2t[d]

Attention uses transformers' `ALL_ATTENTION_FUNCTIONS`, selected by ``head.set_attn_implementation(name)``. The function
registered there serves a paged cache to both target and head; `layer_idx` tells them apart.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import Cache, LlamaConfig, PreTrainedModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.llama.modeling_llama import (
    LlamaMLP,
    LlamaRotaryEmbedding,
    apply_rotary_pos_emb,
    eager_attention_forward,
)

from verispec.errors import VerispecError

from .auxiliary import default_layers
from .checkpoint import is_eagle3, load_head_tensors, read_config, read_tensors


class Eagle3Config(LlamaConfig):
    """The Llama configuration of the head's one layer, plus the options of an Eagle3 head.

    Attributes:
        draft_vocab_size: size Vd of the vocabulary that the head predicts; `vocab_size` is the target's.
        target_hidden_size: width of the target's hidden states; the head's own is `hidden_size`.
        eagle_aux_hidden_state_layer_ids: target states that it reads (see `auxiliary`); None means the default three.
        norm_before_residual: True if the residual is h after its norm (vLLM's default for heads of speculators, whose
            own is False), False if before (SafeAILab).
    """

    draft_vocab_size: int | None = None
    target_hidden_size: int | None = None
    eagle_aux_hidden_state_layer_ids: list[int] | None = None
    norm_before_residual: bool = False

    @property
    def num_aux_states(self) -> int:
        """The number of target states that `fc` reads."""
        return len(self.eagle_aux_hidden_state_layer_ids or (0, 0, 0))

    def aux_layers(self, num_target_layers: int) -> tuple[int, ...]:
        """Return the layer ids that the head reads, for `AuxiliaryStates`.

        Raises:
            VerispecError: see `default_layers`.
        """
        return tuple(self.eagle_aux_hidden_state_layer_ids or default_layers(num_target_layers))


class Eagle3Attention(nn.Module):
    """Llama attention whose queries, keys and values read 2H numbers.

    Transformers' attention functions read its attributes.
    """

    def __init__(self, config: Eagle3Config, layer_idx: int) -> None:
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.head_dim: int = config.head_dim or config.hidden_size // config.num_attention_heads
        self.num_key_value_groups = config.num_attention_heads // config.num_key_value_heads
        self.scaling = self.head_dim**-0.5
        self.is_causal = True
        width, bias = 2 * config.hidden_size, config.attention_bias
        self.q_proj = nn.Linear(width, config.num_attention_heads * self.head_dim, bias=bias)
        self.k_proj = nn.Linear(width, config.num_key_value_heads * self.head_dim, bias=bias)
        self.v_proj = nn.Linear(width, config.num_key_value_heads * self.head_dim, bias=bias)
        self.o_proj = nn.Linear(config.num_attention_heads * self.head_dim, config.hidden_size, bias=False)

    def forward(
        self,
        x: torch.Tensor,
        rotation: tuple[torch.Tensor, torch.Tensor],
        attention_mask: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        **kwargs: Any,
    ) -> torch.Tensor:
        """Map [B, S, 2H] to [B, S, H]; `kwargs` are passed to the attention function."""
        batch, tokens, _ = x.shape
        query, key, value = (
            projection(x).view(batch, tokens, -1, self.head_dim).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        query, key = apply_rotary_pos_emb(query, key, *rotation)
        if past_key_values is not None:
            key, value = past_key_values.update(key, value, self.layer_idx)
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager_attention_forward)
        mixed, _ = attend(self, query, key, value, attention_mask, dropout=0.0, scaling=self.scaling, **kwargs)
        out: torch.Tensor = self.o_proj(mixed.reshape(batch, tokens, -1))
        return out


class Eagle3Layer(nn.Module):
    """The decoder layer of the head (``midlayer``): attention over [embedding, hidden state], then the MLP."""

    def __init__(self, config: Eagle3Config, layer_idx: int) -> None:
        super().__init__()
        self.norm_before_residual = config.norm_before_residual
        self.input_layernorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.hidden_norm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.self_attn = Eagle3Attention(config, layer_idx)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.mlp = LlamaMLP(config)

    def forward(
        self, embeds: torch.Tensor, hidden: torch.Tensor, rotation: tuple[torch.Tensor, torch.Tensor], **kwargs: Any
    ) -> torch.Tensor:
        """Map embeddings and hidden states, each [B, S, H], to the next hidden states, [B, S, H]."""
        normed = self.hidden_norm(hidden)
        residual = normed if self.norm_before_residual else hidden
        x = torch.cat((self.input_layernorm(embeds), normed), dim=-1)
        x = residual + self.self_attn(x, rotation, **kwargs)
        out: torch.Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class Eagle3Head(nn.Module):
    """The head of the module docstring; shapes are [B, S, ...] with B sequences of S rows.

    Args:
        config: shapes and settings of the head.
        embed_tokens: the target's embedding, which the head shares; it sets the head's dtype and device.
        layer_idx: index of this layer in a KV cache: 0 for a cache of its own, L for the cache of a target with L
            layers.
    """

    d2t: torch.Tensor
    t2d: torch.Tensor

    def __init__(self, config: Eagle3Config, embed_tokens: nn.Embedding, layer_idx: int = 0) -> None:
        super().__init__()
        self.config = config
        draft_vocab_size = config.draft_vocab_size or config.vocab_size
        self.layer_idx = layer_idx
        self.aux_width = config.num_aux_states * (config.target_hidden_size or config.hidden_size)
        self.fc = nn.Linear(self.aux_width, config.hidden_size, bias=False)
        self.midlayer = Eagle3Layer(config, layer_idx)
        self.norm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.lm_head = nn.Linear(config.hidden_size, draft_vocab_size, bias=False)
        self.register_buffer("d2t", torch.zeros(draft_vocab_size, dtype=torch.int64))
        self.register_buffer("t2d", torch.ones(config.vocab_size, dtype=torch.bool))
        self.to(device=embed_tokens.weight.device, dtype=embed_tokens.weight.dtype)
        self.embed_tokens = embed_tokens
        self.rotary_emb = LlamaRotaryEmbedding(config).to(embed_tokens.weight.device)
        self.set_attn_implementation("sdpa")

    def set_attn_implementation(self, name: str) -> None:
        """Select the attention function by its name in transformers' `ALL_ATTENTION_FUNCTIONS`."""
        self.config._attn_implementation = name

    def combine(self, aux: torch.Tensor) -> torch.Tensor:
        """Map auxiliary states of `AuxiliaryStates.take`, [B, S, 3H], to hidden states, [B, S, H]."""
        hidden: torch.Tensor = self.fc(aux)
        return hidden

    def forward(
        self, input_ids: torch.Tensor, hidden: torch.Tensor, position_ids: torch.Tensor, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run the layer over S rows.

        Args:
            input_ids: [B, S] token ids of the target; the row of position i has token i + 1.
            hidden: [B, S, H] from `combine`, or this method's second result for the previous row.
            position_ids: [B, S] position i of each row.
            **kwargs: `attention_mask`, `past_key_values`, and further arguments of the attention function.

        Returns:
            Normalised hidden states for `logits`, and hidden states for the next row; each [B, S, H].
        """
        embeds = self.embed_tokens(input_ids)
        hidden = self.midlayer(embeds, hidden, self.rotary_emb(embeds, position_ids), **kwargs)
        return self.norm(hidden), hidden

    def logits(self, normed: torch.Tensor) -> torch.Tensor:
        """Map normalised hidden states [..., H] to logits over the draft vocabulary, [..., Vd]."""
        logits: torch.Tensor = self.lm_head(normed)
        return logits

    def to_target(self, draft_ids: torch.Tensor) -> torch.Tensor:
        """Map ids of the draft vocabulary to ids of the target's."""
        return draft_ids + self.d2t[draft_ids]

    def target_logits(self, logits: torch.Tensor) -> torch.Tensor:
        """Map draft logits [..., Vd] to the target's vocabulary, [..., V]; tokens that cannot be drafted get -inf."""
        spread = logits.new_full((*logits.shape[:-1], self.config.vocab_size), float("-inf"))
        # Ids instead of the mask t2d: the host waits for the device to count a mask, which no graph can record.
        ids = torch.arange(len(self.d2t), device=logits.device) + self.d2t
        return spread.index_copy_(-1, ids, logits)


def load_eagle3(folder: str | Path, target: PreTrainedModel, layer_idx: int = 0) -> Eagle3Head:
    """Load a head for `target`, in its dtype and on its device, in eval mode, without gradients.

    Both published formats work: SafeAILab's (flat config, ``midlayer.*``) and speculators'
    (``transformer_layer_config``, ``layers.0.*``). Embeddings come from the target unless the checkpoint has its own.

    Raises:
        VerispecError: V-MODEL-FOLDER, V-MODEL-CONFIG or V-MODEL-KIND if `folder` is not an Eagle3 checkpoint;
            V-EAGLE3-OPTION for an unsupported option; V-EAGLE3-TARGET if it belongs to another target; V-EAGLE3-VOCAB
            if d2t and t2d contradict each other; V-MODEL-WEIGHTS if tensors are missing, unknown or of another shape.
    """
    folder = Path(folder)
    config = read_head_config(folder)
    embed_tokens = target.get_input_embeddings()
    assert isinstance(embed_tokens, nn.Embedding)
    expected = (config.vocab_size, config.target_hidden_size or config.hidden_size)
    if tuple(embed_tokens.weight.shape) != expected:
        raise VerispecError(
            "V-EAGLE3-TARGET",
            f"the head was made for a target with (vocabulary, hidden size) {expected}, "
            f"this one has {tuple(embed_tokens.weight.shape)}",
            where=str(folder),
            hint="load the head with the target that it was trained for",
        )
    tensors = {
        name.removeprefix("model.").replace("layers.0.", "midlayer."): value
        for name, value in read_tensors(folder).items()
    }
    if "embed_tokens.weight" in tensors:
        weight = tensors.pop("embed_tokens.weight").to(embed_tokens.weight)
        embed_tokens = nn.Embedding.from_pretrained(weight)
    head = Eagle3Head(config, embed_tokens, layer_idx)
    if "d2t" in tensors:
        tensors.setdefault("t2d", _t2d_of(tensors["d2t"], config.vocab_size))
    shared = {"embed_tokens.weight"} | ({"d2t", "t2d"} if head.lm_head.out_features == config.vocab_size else set())
    hint = "give an Eagle3 checkpoint of one decoder layer in the format of its config.json"
    load_head_tensors(head, tensors, folder, shared, hint)
    _check_vocabulary(head, folder)
    head.eval().requires_grad_(False)
    return head


def read_head_config(folder: Path) -> Eagle3Config:
    """Read a head's ``config.json`` in either format.

    Raises:
        VerispecError: see `load_eagle3`.
    """
    raw = read_config(folder)
    if not is_eagle3(raw):
        raise VerispecError(
            "V-MODEL-KIND",
            f"expected an Eagle3 head, got architectures {raw.get('architectures')}",
            where=str(folder / "config.json"),
            hint="name the folder of an Eagle3 head, or load another model with method draft_model",
        )
    if "speculators_model_type" in raw:
        layer = raw.get("transformer_layer_config")
        if not isinstance(layer, dict):
            raise VerispecError(
                "V-MODEL-CONFIG",
                "transformer_layer_config is missing, which a config.json of speculators has",
                where=str(folder / "config.json"),
                hint="export the head again with speculators",
            )
        fields = {"norm_before_residual": True} | layer
        fields |= {key: value for key, value in raw.items() if key in _HEAD_KEYS and value is not None}
    else:
        fields = raw | (raw.get("eagle_config") or {})
    wanted = {key: fields[key] for key in _UNSUPPORTED if fields.get(key)}
    if fields.get("model_type", "llama") != "llama":
        wanted["model_type"] = fields["model_type"]
    if fields.get("num_hidden_layers", 1) != 1:
        wanted["num_hidden_layers"] = fields["num_hidden_layers"]
    if wanted:
        raise VerispecError(
            "V-EAGLE3-OPTION",
            f"the head needs {wanted}",
            where=str(folder / "config.json"),
            hint="only heads of one Llama layer without norms around fc are supported",
        )
    ignored = {"architectures", "model_type", "dtype", "torch_dtype", "transformers_version", "eagle_config"}
    return Eagle3Config(**{key: value for key, value in fields.items() if key not in ignored})


_HEAD_KEYS = frozenset(Eagle3Config.__annotations__) | {"norm_before_fc", "fc_norm", "norm_output"}
_UNSUPPORTED = ("norm_before_fc", "fc_norm", "norm_output")


def _t2d_of(d2t: torch.Tensor, vocab_size: int) -> torch.Tensor:
    """Mark the target ids of a draft vocabulary; `_check_vocabulary` reports ids outside."""
    ids = torch.arange(len(d2t)) + d2t
    t2d = torch.zeros(vocab_size, dtype=torch.bool)
    t2d[ids[(ids >= 0) & (ids < vocab_size)]] = True
    return t2d


def _check_vocabulary(head: Eagle3Head, folder: Path) -> None:
    """Raise unless d2t names increasing target ids, exactly those that t2d marks."""
    ids = torch.arange(len(head.d2t), device=head.d2t.device) + head.d2t
    if not torch.equal(ids, head.t2d.nonzero().flatten()):
        raise VerispecError(
            "V-EAGLE3-VOCAB",
            f"d2t names {len(ids)} target ids from {int(ids.min())} to {int(ids.max())}, "
            f"t2d marks {int(head.t2d.sum())} of {len(head.t2d)}, and they are not the same ids in increasing order",
            where=str(folder),
            hint="target id = draft id + d2t[draft id]; t2d[target id] is True for exactly these",
        )
