"""How a kernel of some engine version is launched with the arguments of our contract.

Versions call the same thing by different names (``output_ptr`` and ``output``, ``block_size`` and
``KV_CACHE_BLOCK_SIZE``), and a host-side caller knows sizes that the kernel itself never sees (its
grid). Both are settled here, for installed engines and for kernels taken out of a source tree.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from verispec.engines import CallShape, UnsupportedCall
from verispec.reference.contracts import Contract, Scalar
from verispec.static.linking.binding import LAUNCH_OPTIONS

_STRIDE = re.compile(r"(?P<tensor>\w+?)_stride_?(?P<dim>\d*)", re.IGNORECASE)


UPPER_BOUNDS = frozenset({"MAX_NUM_TOKENS"})
"""Scalars of which any larger value means the same."""


def aliases(contract: Contract, name: str) -> list[str]:
    """What engines call our parameter `name`, our own name first."""
    bare = name.removesuffix("_ptr")
    renamed = [symbol.rename[name] for symbol in contract.symbols if name in symbol.rename]
    found = [name, *renamed, bare, f"{bare}_ptr", *(alias.removesuffix("_ptr") for alias in renamed)]
    return list(dict.fromkeys(found))


def map_parameters(contract: Contract, engine_names: Sequence[str]) -> dict[str, str]:
    """Engine parameter to contract parameter, for every one of `engine_names` that has a counterpart.

    A host-side caller may have a compile-time parameter in lower case. That counts only where no other
    name does, and never for a tuning parameter: BLOCK_SIZE is a tile, ``block_size`` a KV block.
    """
    mapping: dict[str, str] = {}
    unmatched = []
    for param in contract.params:
        match = next((a for a in aliases(contract, param.name) if a in engine_names and a not in mapping), None)
        if match is not None:
            mapping[match] = param.name
        elif not (isinstance(param, Scalar) and param.tuning):
            unmatched.append(param.name)
    for name in unmatched:
        if (other := name.swapcase()) in engine_names:
            mapping.setdefault(other, name)
    return mapping


def positional(contract: Contract, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by contract name; TypeError as for any Python function."""
    names = [param.name for param in contract.params]
    if len(args) > len(names):
        raise TypeError(f"{contract.name} takes {len(names)} arguments, got {len(args)}")
    bound = dict(zip(names, args, strict=False))
    for name, value in kwargs.items():
        if name not in names:
            raise TypeError(f"{contract.name} has no parameter {name!r}")
        if name in bound:
            raise TypeError(f"{contract.name} got {name!r} twice")
        bound[name] = value
    return bound


class Missing(Exception):
    """A parameter of the engine's that neither the contract nor the host-side sizes supply."""


def value_for(contract: Contract, engine_name: str, mapping: Mapping[str, str], bound: Mapping[str, Any]) -> Any:
    """Return the value of the engine parameter `engine_name`, or raise `Missing`.

    The value is a contract parameter, a stride, or a size that callers know.
    """
    if engine_name in mapping and mapping[engine_name] in bound:
        return bound[mapping[engine_name]]
    sizes = host_sizes(contract, bound)
    if engine_name in sizes:
        return sizes[engine_name]
    named = {alias: bound.get(param.name) for param in contract.tensors for alias in aliases(contract, param.name)}
    if (stride := stride_of(engine_name, named)) is not None:
        return stride
    raise Missing(engine_name)


def stride_of(engine_name: str, tensors: Mapping[str, Any]) -> int | None:
    """The stride that a parameter ``<tensor>_stride`` or ``<tensor>_stride_<dim>`` asks for; None for another one."""
    match = _STRIDE.fullmatch(engine_name)
    if match is None:
        return None
    name = match["tensor"]
    names = (name, f"{name}_ptr", name.lower(), f"{name.lower()}_ptr")
    tensor = next((tensors[n] for n in names if n in tensors), None)
    return None if tensor is None else int(tensor.stride(int(match["dim"] or 0)))


def call_shape(source: str, kernel: str) -> CallShape | None:
    """How `source` launches ``kernel[grid](...)``; None where it does not, or passes * or **."""
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript)):
            continue
        if not (isinstance(node.func.value, ast.Name) and node.func.value.id == kernel):
            continue
        keywords = tuple(k.arg for k in node.keywords if k.arg is not None)
        if len(keywords) == len(node.keywords) and not any(isinstance(a, ast.Starred) for a in node.args):
            return CallShape(len(node.args), keywords)
    return None


def forwarded(parameters: Sequence[str], implementation: Callable[..., object]) -> CallShape:
    """Return how a dispatcher forwards a kernel's arguments: by name to the same names, else all by position.

    Source: vllm 0.33.0 ``vllm.triton_utils.dispatcher.KernelOverride``.
    """
    if tuple(inspect.signature(implementation).parameters) == tuple(parameters):
        return CallShape(0, tuple(parameters))
    return CallShape(len(parameters), ())


def kernels_part(shape: CallShape) -> CallShape:
    """Return what of a launch reaches a Triton kernel; its launcher keeps options such as ``num_warps``."""
    return CallShape(shape.positional, tuple(name for name in shape.keywords if name not in LAUNCH_OPTIONS))


def reject_unsupported_arguments(
    contract: Contract, passed: Mapping[str, Any], bound: Mapping[str, Any], who: str
) -> None:
    """Raise UnsupportedCall when a value of the call has no place to go to in this version.

    `passed` holds by contract name what the engine will really see. A tensor that is optional is
    ruled by a flag and may be dropped; a size, a block size or a flag that is off loses nothing.
    """
    for param in contract.params:
        if not isinstance(param, Scalar) or param.name not in bound or param.tuning or param.axis or param.stride_of:
            continue
        wanted = bound[param.name]
        if param.name not in passed:
            if wanted is False or wanted is None or wanted == param.default:
                continue
            raise UnsupportedCall(f"{who} has no parameter {param.name}, asked for with {wanted!r}")
        got = passed[param.name]
        if param.name in UPPER_BOUNDS and got >= wanted:
            continue
        if got != wanted:
            raise UnsupportedCall(f"{who} always launches with {param.name}={got!r}, asked for {wanted!r}")


def host_sizes(contract: Contract, bound: Mapping[str, Any]) -> dict[str, int]:
    """Sizes that a host-side caller of this op knows beside the kernel's parameters, by the names that callers use."""
    rule = _SIZES.get(contract.name)
    return rule(bound) if rule else {}


def has_grid(contract: Contract) -> bool:
    """Whether the op is one Triton kernel of vLLM's; other ops are functions, or cut otherwise in vLLM."""
    return contract.name in _GRIDS


def grid(contract: Contract, bound: Mapping[str, Any]) -> tuple[int, ...]:
    """The launch grid of the op's Triton kernel."""
    sizes = host_sizes(contract, bound)
    return tuple(sizes[axis] for axis in _GRIDS[contract.name])


def _rows(name: str) -> Callable[[Mapping[str, Any]], dict[str, int]]:
    return lambda bound: {"batch_size": len(bound[name])}


def _recovered(bound: Mapping[str, Any]) -> dict[str, int]:
    ends = bound["cu_num_draft_tokens_ptr"].tolist()
    counts = [end - start for start, end in pairwise([0, *ends])]
    return {"batch_size": len(ends), "max_spec_len": max(counts, default=0)}


def _copy_and_expand(bound: Mapping[str, Any]) -> dict[str, int]:
    starts = bound["query_start_loc_ptr"].tolist()
    longest = max((end - start for start, end in pairwise(starts)), default=0)
    longest += int(bound["num_padding_slots_per_request"])
    block = int(bound.get("BLOCK_SIZE_TOKENS") or 256)
    return {"batch_size": len(bound["query_end_loc_ptr"]), "num_blocks": -(-longest // block)}


_SIZES: dict[str, Callable[[Mapping[str, Any]], dict[str, int]]] = {
    "expand_batch_to_tokens": _rows("input_ptr"),
    "rejection_greedy_sample": _rows("cu_num_draft_tokens_ptr"),
    "rejection_random_sample": _rows("cu_num_draft_tokens_ptr"),
    "sample_recovered_tokens": _recovered,
    "eagle_prepare_inputs_padded": lambda bound: {"num_reqs": len(bound["cu_num_draft_tokens_ptr"])},
    "eagle_prepare_next_token_padded": lambda bound: {"num_reqs": len(bound["discard_request_mask_ptr"])},
    "eagle_step_slot_mapping_metadata": lambda bound: {
        "batch_size": len(bound["positions_ptr"]),
        "input_batch_size": len(bound["out_slot_mapping_ptr"]),
    },
    "copy_and_expand_eagle_inputs": _copy_and_expand,
    "flatten_sampled": _rows("num_sampled"),
    "synthetic_rejection": _rows("num_sampled"),
    "compute_slot_mapping": lambda bound: {
        "num_reqs": len(bound["query_start_loc_ptr"]) - 1,
        "num_programs": len(bound["query_start_loc_ptr"]),
        # Kernel blocks and KV blocks could differ until 0.31; here they are the same.
        "block_size": bound["KV_CACHE_BLOCK_SIZE"],
        "kv_cache_block_size": bound["KV_CACHE_BLOCK_SIZE"],
        "BLOCKS_PER_KV_BLOCK": 1,
        "blocks_per_kv_block": 1,
    },
}

_GRIDS: dict[str, tuple[str, ...]] = {
    "expand_batch_to_tokens": ("batch_size",),
    "rejection_greedy_sample": ("batch_size",),
    "rejection_random_sample": ("batch_size",),
    "sample_recovered_tokens": ("batch_size", "max_spec_len"),
    "eagle_prepare_inputs_padded": ("num_reqs",),
    "eagle_prepare_next_token_padded": ("num_reqs",),
    "eagle_step_slot_mapping_metadata": ("input_batch_size",),
    "copy_and_expand_eagle_inputs": ("batch_size", "num_blocks"),
    "compute_slot_mapping": ("num_programs",),
    "flatten_sampled": ("batch_size",),
    "synthetic_rejection": ("batch_size",),
}
