"""The models before training, and the losses that train them."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch.nn import functional
from transformers import (
    DynamicCache,
    GraniteMoeHybridConfig,
    GraniteMoeHybridForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
)

from verispec.reference.models import AuxiliaryStates, Eagle3Config, Eagle3Head, MTPConfig, MTPHead

from .recipe import Recipe, Recurrence, Shape
from .training import Loss, mixed
from .unroll import unroll, unroll_masked

MTP_FIELDS = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "max_position_embeddings",
    "rms_norm_eps",
    "hidden_act",
    "rope_parameters",
    "eos_token_id",
    "tie_word_embeddings",
)
"""Fields of the target's configuration that its MTP head has too."""


def llama(shape: Shape, recipe: Recipe) -> LlamaForCausalLM:
    """Return an untrained Llama with tied embeddings."""
    config = LlamaConfig(num_hidden_layers=shape.layers, tie_word_embeddings=True, **_fields(shape, recipe))
    return LlamaForCausalLM(config)


def hybrid(shape: Shape, recurrence: Recurrence, recipe: Recipe) -> GraniteMoeHybridForCausalLM:
    """Return an untrained model of Mamba-2 and attention layers, without experts, with tied embeddings."""
    config = GraniteMoeHybridConfig(
        num_hidden_layers=len(recurrence.layers),
        layer_types=list(recurrence.layers),
        shared_intermediate_size=shape.mlp,
        num_local_experts=0,
        num_experts_per_tok=0,
        position_embedding_type="rope",
        attention_multiplier=shape.head_dim**-0.5,
        initializer_range=shape.hidden**-0.5,
        mamba_expand=1,
        mamba_n_heads=recurrence.heads,
        mamba_d_state=recurrence.state,
        mamba_chunk_size=recurrence.chunk,
        tie_word_embeddings=True,
        **_fields(shape, recipe),
    )
    return GraniteMoeHybridForCausalLM(config)


def eagle3_head(target: LlamaForCausalLM, kept: torch.Tensor, recipe: Recipe) -> Eagle3Head:
    """Return an untrained head for `target` whose draft vocabulary are the ids `kept`, in increasing order."""
    config = Eagle3Config(
        num_hidden_layers=1,
        draft_vocab_size=len(kept),
        target_hidden_size=recipe.target.hidden,
        eagle_aux_hidden_state_layer_ids=list(recipe.aux_layers),
        tie_word_embeddings=False,
        **_fields(recipe.target, recipe),
    )
    head = Eagle3Head(config, target.get_input_embeddings())
    head.d2t.copy_(kept - torch.arange(len(kept), device=kept.device))
    head.t2d.zero_()
    head.t2d[kept] = True
    with torch.no_grad():
        head.lm_head.weight.copy_(target.get_output_embeddings().weight[kept])
        head.norm.weight.copy_(target.model.norm.weight)
    return head


def _fields(shape: Shape, recipe: Recipe) -> dict[str, int | None]:
    return {
        "vocab_size": recipe.vocab_size,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.mlp,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "max_position_embeddings": recipe.max_positions,
        "bos_token_id": None,
        "eos_token_id": 0,
    }


def text_loss(model: PreTrainedModel) -> Loss:
    """Return the cross entropy of the next token of the text."""

    def loss(ids: torch.Tensor) -> torch.Tensor:
        logits = model(ids, use_cache=False).logits[:, :-1]
        return functional.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())

    return loss


def distillation_loss(model: PreTrainedModel, learner: PreTrainedModel) -> Loss:
    """Return the Kullback-Leibler divergence of the learner from the model, per token."""

    def loss(ids: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            p = model(ids, use_cache=False).logits.float().log_softmax(-1)
        q = learner(ids, use_cache=False).logits.float().log_softmax(-1)
        return functional.kl_div(q.flatten(0, 1), p.flatten(0, 1), reduction="batchmean", log_target=True)

    return loss


def eagle3_loss(target: LlamaForCausalLM, head: Eagle3Head, recipe: Recipe) -> Loss:
    """Return the cross entropy of the head against the target's probabilities, over the unrolled steps.

    Tokens outside the draft vocabulary count for nothing and their probability is not redistributed, so that the head
    ignores positions where it cannot be right.
    """
    return _head_loss(target, head, head.t2d, recipe)


def mtp_head(target: PreTrainedModel) -> MTPHead:
    """Return an untrained MTP head for a target of one Llama or Qwen2 shape per layer."""
    fields = {name: getattr(target.config, name) for name in MTP_FIELDS}
    return MTPHead(MTPConfig(num_hidden_layers=1, **fields), target)


def mtp_loss(target: PreTrainedModel, head: MTPHead, recipe: Recipe) -> Loss:
    """Return the cross entropy of the head against the target's probabilities, over the unrolled steps."""
    every_token = torch.ones(target.config.vocab_size, dtype=torch.bool, device=target.device)
    return _head_loss(target, head, every_token, recipe)


def _head_loss(target: PreTrainedModel, head: Eagle3Head | MTPHead, drafted: torch.Tensor, recipe: Recipe) -> Loss:
    """Return the loss of a head whose vocabulary are the target's tokens that the mask `drafted` marks."""
    aux_states = AuxiliaryStates(target, head.config.aux_layers(target.config.num_hidden_layers))

    def loss(ids: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            p = target(ids, use_cache=False).logits.float().softmax(-1)[..., drafted]
            aux = aux_states.take()
        rows = (head.logits(normed) for normed in unroll(head, ids, aux, recipe.unrolled))
        return _decaying((cross_entropy(p[:, step + 1 :], row) for step, row in enumerate(rows)), recipe)

    return loss


def parallel_loss(target: PreTrainedModel, draft: PreTrainedModel, mask_id: int, recipe: Recipe) -> Loss:
    """Return the cross entropy of a model of parallel drafting against the target's probabilities, for every draft."""

    def loss(ids: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            p = target(ids, use_cache=False).logits.float().softmax(-1)
        rows = unroll_masked(draft, ids, mask_id, recipe.unrolled)
        return _decaying((cross_entropy(p[:, step:], row) for step, row in enumerate(rows)), recipe)

    return loss


def cross_entropy(p: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """Return the mean cross entropy of rows of `logits` [B, R, V] against the first R rows of `p` [B, T, V]."""
    return -(p[:, : logits.shape[1]] * logits.float().log_softmax(-1)).sum(-1).mean()


def _decaying(losses: Iterable[torch.Tensor], recipe: Recipe) -> torch.Tensor:
    """Return the mean loss of the unrolled steps, each weighted by `unroll_decay` against the one before."""
    weighted = [(recipe.unroll_decay**step, loss) for step, loss in enumerate(losses)]
    total = torch.stack([weight * loss for weight, loss in weighted]).sum()
    return total / sum(weight for weight, _ in weighted)


def frequent(stream: torch.Tensor, vocab_size: int, count: int) -> torch.Tensor:
    """Return the `count` most frequent ids of a stream, in increasing order; among equals the lower ids."""
    counts = torch.bincount(stream, minlength=vocab_size).cpu()
    order = torch.sort(-counts, stable=True).indices[:count]
    return order.sort().values.to(stream.device)


def write(target: PreTrainedModel, stream: torch.Tensor, count: int, recipe: Recipe, seed: int) -> torch.Tensor:
    """Let the target continue `count` pieces of a stream, half of them greedily; return one stream of all texts.

    Drafters see what the target writes, not only what people wrote: this is the text on which they will be used.
    """
    torch.manual_seed(seed)
    texts: list[torch.Tensor] = []
    offsets = torch.arange(recipe.written_prompt)
    for sampled in (False, True):
        starts = torch.randint(len(stream) - recipe.written_prompt, (count // 2, 1))
        prompts = stream[(starts + offsets).to(stream.device)]
        length = recipe.written_length - recipe.written_prompt
        with mixed(stream.device):
            texts += [continue_text(target, part, length, sampled).flatten() for part in prompts.split(2048)]
    return torch.cat(texts)


@torch.no_grad()
def continue_text(target: PreTrainedModel, prompts: torch.Tensor, length: int, sampled: bool) -> torch.Tensor:
    """Return prompts [P, T] with `length` new tokens each; an end of text does not stop it."""
    cache = DynamicCache(config=target.config)
    texts, seen = prompts, 0
    for _ in range(length):
        logits = target(texts[:, seen:], past_key_values=cache, use_cache=True, logits_to_keep=1).logits[:, -1]
        token = logits.float().softmax(-1).multinomial(1) if sampled else logits.argmax(-1, keepdim=True)
        seen = texts.shape[1]
        texts = torch.cat((texts, token), dim=1)
    return texts
