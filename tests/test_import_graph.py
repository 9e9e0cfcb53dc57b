"""Allowed imports: dependencies point one way, and heavy packages load only where they are used."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {
    "verispec.reference": ROOT / "reference",
    "verispec.suites": ROOT / "suites",
    "verispec": ROOT / "src/verispec",
}

PROTOCOLS = tuple(f"verispec.engines.protocol.{name}" for name in ("generation", "grammar", "sampling"))
"""Data and protocols that engines share with the tests."""

ALLOWED: dict[str, tuple[str, ...]] = {
    "verispec.reference.contracts": ("verispec.reference.contracts",),
    "verispec.reference.oracle": ("verispec.reference.oracle", "verispec.reference.contracts"),
    "verispec.reference.extension": ("verispec.reference._csrc",),
    "verispec.reference.checked_op": ("verispec.reference.contracts", "verispec.reference.extension"),
    "verispec.reference.triton": (
        "verispec.reference.triton",
        "verispec.reference.checked_op",
        "verispec.reference.contracts",
    ),
    "verispec.reference.cpu": (
        "verispec.reference.contracts",
        "verispec.reference.checked_op",
        "verispec.reference.extension",
    ),
    "verispec.reference.models": (
        "verispec.reference.models",
        "verispec.reference.cpu",
        "verispec.reference.triton",
        "verispec.reference.contracts",
    ),
    "verispec.reference.sampler": ("verispec.reference", *PROTOCOLS),
    "verispec.reference.proposers": (
        "verispec.reference.proposers",
        "verispec.reference.sampler",
        "verispec.reference.models",
        "verispec.reference.runners",
    ),
    "verispec.judge": (
        "verispec.judge",
        "verispec.engines",
        "verispec.reference.contracts",
        "verispec.reference.oracle",
    ),
    "verispec.cases": ("verispec.cases", "verispec.reference.contracts", *PROTOCOLS),
    "verispec.static": ("verispec.static", "verispec.cache_folder", "verispec.errors", "verispec.reference.contracts"),
    "verispec.errors": ("verispec.errors",),
}
"""Imports of verispec that a part may have; a part that is not listed is free."""

PARTS_OF_VERISPEC = (
    "verispec.engines.adapters.vllm.installed",
    "verispec.engines.adapters.vllm.source",
    "verispec.engines.adapters.reference",
    "verispec.engines.adapters.http",
    "verispec.engines.adapters.tpu_inference",
    "verispec.engines.adapters.sglang",
    "verispec.engines.adapters.mlx",
    "verispec.engines.adapters.onnxruntime_genai",
    "verispec.engines.adapters.llama_cpp",
    "verispec.engines.adapters.llama_gguf",
    "verispec.engines.adapters.openvino_genai",
    "verispec.engines.adapters.openvino_ir",
    "verispec.engines.adapters.vllm_ascend",
    "verispec.engines.adapters.vllm_rbln",
    "verispec.engines.adapters.lmdeploy",
    "verispec.engines.adapters.flashinfer",
)
HEAVY = {"torch", "triton", "transformers", "vllm", "scipy", "tree_sitter", "tree_sitter_cpp", "hypothesis", "pytest"}
LIGHT = (
    "verispec.cli",
    "verispec.static",
    "verispec.errors",
    "verispec.exits",
    "verispec.report",
    "verispec.bisect",
    "verispec.cases",
    "verispec.engines.registry",
    "verispec.reference.contracts",
    "verispec.reference.oracle",
)
"""Parts that must import, whole, where no heavy package is installed."""


def modules() -> Iterator[tuple[str, Path]]:
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            dotted = ".".join([package, *path.relative_to(folder).with_suffix("").parts]).removesuffix(".__init__")
            yield dotted, path


def imports(name: str, path: Path, *, top_level_only: bool) -> Iterator[str]:
    """Dotted names that a module imports, relative ones resolved; a TYPE_CHECKING block does not count."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    is_package = path.name == "__init__.py"
    nodes = _top_level(tree) if top_level_only else ast.walk(tree)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = name.split(".")[: -node.level + is_package or None]
                base = ".".join([*parents, *filter(None, [node.module])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _top_level(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        yield from _top_level(node)


def within(name: str, prefixes: tuple[str, ...]) -> bool:
    return any(name == p or name.startswith(p if p.endswith(".") else p + ".") for p in prefixes)


@pytest.mark.parametrize(("name", "path"), list(modules()), ids=lambda value: value if isinstance(value, str) else "")
def test_dependencies_point_one_way(name: str, path: Path) -> None:
    wanted = {i for i in imports(name, path, top_level_only=False) if within(i, ("verispec",))}
    wanted -= {"verispec", "verispec.reference"}
    if not within(name, ("verispec.reference.contracts", "verispec.reference.oracle")):
        wanted = {i for i in wanted if not within(i, ("verispec.errors", "verispec.exits"))}
    for part, allowed in ALLOWED.items():
        if within(name, (part,)):
            wrong = sorted(i for i in wanted if not within(i, (*allowed, part)))
            assert not wrong, f"{name} may import {', '.join(allowed)}; it imports {', '.join(wrong)}"
    if within(name, ("verispec.judge", "verispec.suites")):
        wrong = sorted(i for i in wanted if within(i, PARTS_OF_VERISPEC))
        assert not wrong, f"{name} must not know any engine; it imports {', '.join(wrong)}"
    if within(name, ("verispec.suites",)):
        own = ".".join(name.split(".")[:3])
        wrong = sorted(i for i in wanted if within(i, ("verispec.suites",)) and not within(i, (own,)))
        assert not wrong, f"{name} imports another suite: {', '.join(wrong)}"


@pytest.mark.parametrize(
    ("name", "path"),
    [(n, p) for n, p in modules() if within(n, LIGHT)],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_light_parts_import_without_heavy_packages(name: str, path: Path) -> None:
    heavy = sorted({i.partition(".")[0] for i in imports(name, path, top_level_only=True)} & HEAVY)
    assert not heavy, f"{name} imports {', '.join(heavy)} at its top; import inside the function that needs it"


@pytest.mark.parametrize("folder", ["reference", "suites", "src", "fixtures"])
def test_our_triton_package_is_never_imported_for_the_real_one(folder: str) -> None:
    """`import reference` or a sys.path entry on reference/ would let reference/triton shadow triton."""
    for path in (ROOT / folder).rglob("*.py"):
        for name in imports("x", path, top_level_only=False):
            assert name.partition(".")[0] not in {"reference", "suites", "fixtures"}, f"{path}: import verispec.{name}"
