"""Start vLLM's platform as its worker does, so that Triton's stubs are replaced exactly where vLLM does it."""

from __future__ import annotations

import ast
import contextlib
import importlib
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

FALLBACK_MODULE = "vllm.utils.cpu_triton_utils"
"""Module of the CPU implementations since 0.19.0."""

RUNNER_MODULE = "vllm.v1.worker.cpu_model_runner"
"""Module whose CPU runner assigned them one by one before the platform had a registry (0.19.0 to 0.30.0)."""


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep output of vLLM and its extensions away from stdout: errors go to stderr, the rest nowhere.

    vLLM logs to stdout by default, below Python's level too, hence the file descriptor.
    """
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")
    sys.stdout.flush()
    saved = os.dup(1)
    os.dup2(2, 1)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr):
            warnings.simplefilter("ignore")
            yield
    finally:
        os.dup2(saved, 1)
        os.close(saved)


def install(platform: Any) -> str:
    """Load the platform's extension and its kernel overrides.

    Source: vllm 0.32.0 ``vllm.platforms.interface.Platform.register_triton_kernel_overrides``.

    Args:
        platform: vLLM's current platform, which answers None for an attribute that it does not have.

    Returns:
        The way of installation in words; "none" for a platform without a registry that is not the CPU.

    Raises:
        OSError: the compiled ops of a CPU platform do not load.
    """
    if callable(getattr(platform, "import_kernels", None)):
        platform.import_kernels()
    if platform.device_type == "cpu":
        require_extension(Path(str(importlib.import_module("vllm").__file__)).parent)
    if callable(getattr(platform, "register_triton_kernel_overrides", None)):
        platform.register_triton_kernel_overrides()
        return "platform registry"
    if platform.device_type != "cpu":
        return "none"
    return _replay_runner()


def poison_fresh_memory() -> None:
    """Fill uninitialised memory with NaN or the largest integer: an unwritten element is then wrong in every run."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True


def require_extension(folder: Path) -> None:
    """Raise an error if vLLM's compiled ops do not load; vLLM itself only logs the reason.

    Args:
        folder: folder of the installed package ``vllm``, which holds ``_C*.so``.

    Raises:
        OSError: the ops are not registered, because a file is missing or does not load.
    """
    if any(name.startswith("_C::") for name in torch._C._dispatch_get_all_op_names()):
        return
    for path in sorted(folder.glob("_C*.so")):
        torch.ops.load_library(str(path))
    raise OSError(f"no compiled ops (_C*.so) in {folder}")


def _replay_runner() -> str:
    """Call the methods of the CPU model runner that assign fallbacks; they use nothing of the runner itself."""
    module = import_if_there(RUNNER_MODULE)
    if module is None:
        return "none"
    methods = replacing_methods(Path(str(module.__file__)).read_text(encoding="utf-8"))
    for class_name, method in methods:
        getattr(getattr(module, class_name), method)(None)
    return ", ".join(f"{class_name}.{method}" for class_name, method in methods) or "none"


def import_if_there(name: str) -> ModuleType | None:
    """Import the module `name`; None if this vLLM has no such module.

    Raises:
        Exception: the module is there and does not import.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            return None
        raise


def replacing_methods(source: str) -> list[tuple[str, str]]:
    """Return (class, method) of every method in a runner's `source` that assigns a name of the fallback module."""
    tree = ast.parse(source)
    aliases = {
        alias.asname or alias.name.rpartition(".")[2]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        if FALLBACK_MODULE in (alias.name, f"{getattr(node, 'module', '')}.{alias.name}")
    }

    def assigns_fallback(node: ast.AST) -> bool:
        value = node.value if isinstance(node, ast.Assign) else None
        return isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name) and value.value.id in aliases

    return [
        (cls.name, method.name)
        for cls in tree.body
        if isinstance(cls, ast.ClassDef)
        for method in cls.body
        if isinstance(method, ast.FunctionDef) and any(assigns_fallback(node) for node in ast.walk(method))
    ]


def package_modules(prefix: str) -> list[ModuleType]:
    """Return the imported modules below `prefix`, without triggering lazy imports."""
    return [m for name, m in sorted(sys.modules.items()) if name.startswith(prefix) and isinstance(m, ModuleType)]
