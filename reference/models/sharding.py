"""Tensor parallelism of a loaded model, by the plan that transformers has for its architecture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transformers import PreTrainedModel

from verispec.errors import VerispecError

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


def shard(model: PreTrainedModel, mesh: DeviceMesh) -> None:
    """Keep this rank's part of each projection of `model`, and have the forward pass join the parts.

    Each rank gets all logits: the output of the last projection is gathered. Embeddings stay whole.

    Args:
        model: model on this rank's device, with the same weights on every rank.
        mesh: the ranks.

    Raises:
        VerispecError: V-RANK-PLAN, transformers has no plan for the model, or one that this function does not know;
            V-RANK-HEADS, the heads do not divide among the ranks.
    """
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    config, ranks = model.config, mesh.size()
    for name in ("num_attention_heads", "num_key_value_heads"):
        heads = getattr(config, name, None) or config.num_attention_heads
        if heads % ranks:
            raise VerispecError(
                "V-RANK-HEADS",
                f"{heads} {name} do not divide among {ranks} ranks",
                where="tensor_parallel_size",
                hint="give a number of ranks that divides both numbers of heads",
            )
    styles = {
        "colwise": ColwiseParallel,
        "rowwise": RowwiseParallel,
        "colwise_rep": lambda: ColwiseParallel(output_layouts=Replicate()),
        "colwise_gather_output": lambda: ColwiseParallel(output_layouts=Replicate()),
    }
    plan = {name: style for name, style in (model.tp_plan or {}).items() if not style.startswith("embedding")}
    unknown = sorted(set(plan.values()) - styles.keys())
    if unknown or not plan:
        raise VerispecError(
            "V-RANK-PLAN",
            f"the plan of {type(model).__name__} has {', '.join(unknown)}"
            if unknown
            else f"transformers has no tensor-parallel plan for {type(model).__name__}",
            where="tensor_parallel_size",
            hint="use a Llama-like or Qwen-like checkpoint",
        )
    parallelize_module(model, mesh, {name: styles[style]() for name, style in plan.items()})
