"""Substitute reference kernels where an engine's `kernel_sites` says that its callers look them up."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from verispec.engines import OpFunction
from verispec.kernel_swap.run_command import OPS, SITES, note
from verispec.reference.contracts import REQUIRED, Contract, Scalar, load

ENGINE_OP = ""
"""The site of an op that is substituted in the answer of `Engine.op` itself."""


def asked_for() -> tuple[str, ...]:
    """Return the ops that the environment names."""
    return tuple(filter(None, os.environ.get(OPS, "").split(",")))


def sites() -> Mapping[str, str]:
    """Return the sites that the environment names, by op; empty for vLLM, whose sites are known."""
    found: dict[str, str] = json.loads(os.environ.get(SITES) or "{}")
    return found


def patch(module: ModuleType, op: str, attribute: str) -> None:
    """Replace ``module.attribute`` by the reference's kernel for `op`; note why, if that is not possible."""
    from verispec.engines.adapters.vllm.installed.call_sites import parameters_of
    from verispec.kernel_swap.patch_vllm import Launchable, reference_kernel

    *owners, name = attribute.split(".")
    owner: Any = module
    for part in owners:
        owner = getattr(owner, part)
    original = getattr(owner, name, None)
    if original is None:
        note(f"!{op}: {module.__name__} has no {attribute}")
        return
    contract, theirs = load(op), parameters_of(original)
    if missing := unmapped(contract, theirs):
        note(f"!{op}: {module.__name__}.{attribute}({', '.join(theirs)}) has no parameter for {', '.join(missing)}")
        return
    kernel = reference_kernel(contract, theirs)
    setattr(owner, name, Launchable(kernel) if hasattr(original, "__getitem__") else kernel)


def unmapped(contract: Contract, theirs: list[str]) -> list[str]:
    """Return the contract's required parameters that `theirs` has under none of their names."""
    from verispec.engines.adapters.vllm.launch import map_parameters

    known = set(map_parameters(contract, theirs).values())
    return [
        param.name
        for param in contract.params
        if param.name not in known
        and param.default is REQUIRED
        and not (param.tuning or param.type is bool if isinstance(param, Scalar) else param.optional)
    ]


def substituted(op: str, function: OpFunction) -> OpFunction:
    """Return the reference's kernel if the environment asks for it instead of the engine's op, else `function`."""
    if op not in asked_for() or sites().get(op) != ENGINE_OP:
        return function
    from verispec.kernel_swap.patch_vllm import reference_function

    def reference(**arguments: Any) -> object:
        note(op)
        return reference_function(op, arguments)(**arguments)

    return reference
