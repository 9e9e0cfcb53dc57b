"""Kernels of draft trees of SGLang behind the contracts of trees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch

from verispec.engines import UnsupportedCall

LONGEST = 20_000
"""Innermost rounds of a kernel of trees per request, past which the interpreter takes minutes for a call."""


def _require_short(rounds: int, tensor: torch.Tensor) -> None:
    if tensor.device.type == "cpu" and rounds > LONGEST:
        raise UnsupportedCall("its kernels go over all nodes for each node, which takes the interpreter minutes")


def build_tree(function: Callable[..., None], **arguments: Any) -> None:
    """Build trees as `build_tree_kernel_efficient` does on a platform without its own kernel.

    Args:
        function: its launcher.
        **arguments: arguments of build_draft_tree.

    Raises:
        UnsupportedCall: a tree has padding, or is too large for the interpreter.
    """
    if bool((arguments["selected_index"] < 0).any()):
        raise UnsupportedCall("its drafters select the same number of nodes for every request")
    _require_short(arguments["draft_token_num"] ** 2 * arguments["depth"], arguments["selected_index"])
    function(**arguments)


def verify_greedy(function: Callable[..., None], **arguments: Any) -> None:
    """Verify trees by the argmax.

    Args:
        function: its launcher.
        **arguments: arguments of verify_tree_greedy.

    Raises:
        UnsupportedCall: a tree is too large for the interpreter.
    """
    _require_short(arguments["candidates"].shape[1] * arguments["accept_index"].shape[1], arguments["candidates"])
    function(**arguments)


def verify_chains(chain: Callable[..., None], **arguments: Any) -> None:
    """Verify trees without branches by its rejection sampler, whose number of a draft is that of the node before.

    Args:
        chain: its rejection sampler.
        **arguments: arguments of verify_tree_sampled.

    Raises:
        UnsupportedCall: a tree is no chain of all nodes in order, or its drafts were drawn otherwise.
    """
    nodes = arguments["candidates"].shape[1]
    child = torch.arange(1, nodes + 1, device=arguments["candidates"].device)
    child[-1] = -1
    is_chain = bool(
        (arguments["retrieve_next_token"] == child).all() & (arguments["retrieve_next_sibling"] == -1).all()
    )
    if not is_chain or arguments["accept_index"].shape[1] != nodes:
        raise UnsupportedCall("its exact rule verifies chains of the same length alone")
    if arguments["draft_probs"] is None or arguments.pop("WITHOUT_REPLACEMENT"):
        raise UnsupportedCall("its exact rule needs draft probabilities, of drafts drawn one from each")
    links = {f"retrive_{link}": arguments.pop(f"retrieve_{link}") for link in ("index", "next_token", "next_sibling")}
    arguments["uniform_samples"] = arguments["uniform_samples"][:, 1:]
    chain(**arguments, **links, threshold_single=1.0, threshold_acc=1.0, deterministic=True)


def launch_build(kernel: Any, *, topk: int, depth: int, draft_token_num: int, tree_mask_mode: int, **t: Any) -> None:
    """Launch its kernel as its launcher does, which asks an accelerator before release 0.5.23.

    Args:
        kernel: kernel that builds trees.
        topk: argument of build_draft_tree, as all others.
        depth: argument of build_draft_tree.
        draft_token_num: argument of build_draft_tree.
        tree_mask_mode: argument of build_draft_tree.
        **t: tensors of build_draft_tree.
    """
    lengths = t.pop("verified_seq_len")
    candidates, selected = t.pop("parent_list"), t.pop("selected_index")
    kernel[(len(lengths),)](
        *(candidates, selected, lengths, lengths.cumsum(0) - lengths, *t.values()),
        topk=topk,
        depth=depth,
        draft_token_num=draft_token_num,
        tree_mask_mode=tree_mask_mode,
        batch_size=len(lengths),
        parent_list_stride=candidates.stride(0),
        selected_index_stride=selected.stride(0),
    )


def launch_greedy(kernel: Any, **tensors: Any) -> None:
    """Launch its kernel as its launcher does, which asks an accelerator before release 0.5.23.

    Args:
        kernel: kernel that verifies trees.
        **tensors: arguments of verify_tree_greedy.
    """
    requests, nodes = tensors["candidates"].shape
    columns = tensors["accept_index"].shape[1]
    sizes = {"batch_size": requests, "num_speculative_tokens": columns, "num_draft_tokens": nodes}
    kernel[(requests,)](*tensors.values(), **sizes)


TREE_OPS: Mapping[str, tuple[str, str, Callable[..., None], Callable[..., None]]] = MappingProxyType(
    {
        "build_draft_tree": (
            "sgl_build_tree_kernel_triton",
            "sgl_build_tree_kernel_efficient_triton",
            build_tree,
            launch_build,
        ),
        "verify_tree_greedy": (
            "verify_tree_greedy_triton",
            "verify_tree_greedy_kernel_triton",
            verify_greedy,
            launch_greedy,
        ),
    }
)
"""Launcher and kernel of each op on trees in `spec_tree`, and the functions here that call them."""
