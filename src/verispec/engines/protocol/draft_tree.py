"""Validation of `speculative_token_tree`: the shape of draft trees, and the options that it goes with."""

from __future__ import annotations

from typing import Any

from verispec.engines.protocol.values import require, whole

_GOES_WITH = {
    "method": ("draft_model",),
    "parallel_drafting": (False,),
    "draft_sample_method": ("greedy",),
    "rejection_sample_method": ("standard",),
    "sampler": ("flat",),
    "num_speculative_tokens_per_batch_size": (None,),
    "tensor_parallel_size": (1,),
    "lora_adapters": ((),),
}
"""Values of other options that a draft tree allows."""


def is_tree(value: Any) -> bool:
    """Return True for a tuple of different paths, shorter ones first and else in order, each below another or alone."""
    if not isinstance(value, tuple) or not value or not all(isinstance(path, tuple) and path for path in value):
        return False
    if not all(whole(rank, 0) for path in value for rank in path):
        return False
    known = {(), *value}
    ordered = sorted(value, key=lambda path: (len(path), path)) == list(value)
    return ordered and len(known) == len(value) + 1 and all(path[:-1] in known for path in value)


def check_tree(options: Any) -> None:
    """Check the tree of `LoadOptions`, and the options beside it.

    Raises:
        VerispecError: V-GEN-OPTION, the tree has no such shape, or another option does not allow a tree.
    """
    name, tree = "speculative_token_tree", options.speculative_token_tree
    if tree is None:
        return
    wanted = "paths of ranks, shorter ones first, each below another path or of one rank"
    require(is_tree(tree), name, wanted, tree)
    wanted = f"as many paths as num_speculative_tokens = {options.max_drafts}"
    require(len(tree) == options.max_drafts, name, wanted, tree)
    for other, allowed in _GOES_WITH.items():
        value = getattr(options, other)
        require(value in allowed, other, f"{allowed[0]} with {name}", value)
