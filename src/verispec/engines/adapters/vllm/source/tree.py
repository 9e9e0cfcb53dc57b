"""A vLLM source tree, and the functions of it that our contracts name, as importable modules in the user's cache."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import operator
import sys
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from verispec.cache_folder import cache_dir
from verispec.engines.adapters.vllm.source.extract import CannotExtract, Extractor
from verispec.errors import VerispecError
from verispec.reference.contracts import Contract
from verispec.static.sources import open_tree
from verispec.static.tree import SourceFile

MARKERS = ("vllm/v1/sample/rejection_sampler.py", "vllm/v1/worker/gpu/spec_decode/rejection_sampler.py")
"""A tree with neither file has no speculative decoding that a contract names."""


class Sources(Mapping[str, str]):
    """Files of a tree by posix path, read when asked for."""

    def __init__(self, files: Mapping[str, SourceFile]) -> None:
        self._files = files

    def __getitem__(self, path: str) -> str:
        return self._files[path].read().decode("utf-8")

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def __contains__(self, path: object) -> bool:
        return path in self._files


class Kernels:
    """The functions of one tree by dotted name. Raises VerispecError V-ENG-NO-SPEC-DECODE for another kind of tree."""

    def __init__(self, engine: str, source: str) -> None:
        self.engine = engine
        tree = open_tree(source)
        self.version = tree.describe()
        self.sources = Sources({file.path: file for file in tree.files()})
        if not any(marker in self.sources for marker in MARKERS):
            raise VerispecError(
                "V-ENG-NO-SPEC-DECODE",
                "this tree has no speculative decoding of vLLM's",
                where=f"--engine {engine}",
                cause=f"neither {' nor '.join(MARKERS)} is in {self.version}",
                hint="name the root of a vLLM checkout, an sdist or wheel of it, or vllm==VERSION (0.18.0 or later)",
            )

    def find(self, contract: Contract) -> tuple[str, Any]:
        """Return the first of the contract's symbols that can be extracted from the tree.

        Args:
            contract: contract of an op; its symbols of vLLM are tried in order.

        Returns:
            (dotted name, function).

        Raises:
            CannotExtract: with the reason for every symbol.
        """
        reasons = []
        for symbol in contract.symbols:
            if symbol.engine != "vllm":
                continue
            try:
                return symbol.name, self.load(symbol.name)
            except CannotExtract as error:
                reasons.append(str(error))
            except ImportError as error:
                reasons.append(f"{symbol.name} needs a package that is not installed: {error}")
        raise CannotExtract("; ".join(reasons) or f"vLLM has no kernel of its own for {contract.name}")

    def load(self, dotted: str, replace: Mapping[str, str] | None = None) -> Any:
        """Import a function from its extracted package.

        Args:
            dotted: name in the tree.
            replace: texts to replace in the package's sources, each with its replacement.

        Raises:
            CannotExtract: the function cannot run outside of its tree.
        """
        extractor = Extractor(self.sources)
        module, name = extractor.take(dotted)
        files = extractor.files()
        for old, new in (replace or {}).items():
            files = {file: text.replace(old, new) for file, text in files.items()}
        try:
            found: Any = operator.attrgetter(name)(import_package(files, module))
        except ImportError:
            raise
        except Exception as error:
            raise CannotExtract(f"{dotted} cannot run outside of its tree: {type(error).__name__}: {error}") from error
        return found

    def parameters(self, dotted: str) -> list[str]:
        """Return the parameter names of the function `dotted`, in order; empty if the tree has no such function."""
        owner, _, name = dotted.rpartition(".")
        module, _, class_name = owner.rpartition(".")
        for path, scope in ((owner, ""), (module, class_name)):
            file = f"{path.replace('.', '/')}.py"
            if file not in self.sources:
                continue
            body: list[ast.stmt] = ast.parse(self.sources[file]).body
            if scope:
                body = [s for c in body if isinstance(c, ast.ClassDef) and c.name == scope for s in c.body]
            for node in body:
                if isinstance(node, ast.FunctionDef) and node.name == name:
                    return [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        return []


def import_package(files: Mapping[str, str], module: str) -> ModuleType:
    """Write `files` (module name to source) as a package into the cache, once, and import `module` of it.

    The package is named by its content, so trees that share a kernel share its compiled form too.
    """
    digest = hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()[:16]
    package = f"verispec_extracted_{digest}"
    folder = cache_dir() / "extracted" / package
    for name, text in {"__init__": "", **files}.items():
        path = folder / f"{name}.py"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            write_text(path, text)
    if package not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            package, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        assert spec is not None
        assert spec.loader is not None
        sys.modules[package] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[package])
    return importlib.import_module(f"{package}.{module}")


def write_text(path: Any, text: str) -> None:
    """Write `text` to the file `path` of the cache, whole or not at all: several processes may do it at once."""
    from verispec.cache_folder import writing

    with writing(path) as file:
        file.write(text.encode())
