"""Compile a vLLM tree's C++ file of speculative decoding alone, against the torch that is installed."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch

from verispec.cache_folder import cache_dir
from verispec.engines.adapters.vllm.source.tree import write_text
from verispec.errors import VerispecError

SOURCE = "csrc/cpu/spec_decode_utils.cpp"
BINDINGS = "csrc/cpu/torch_bindings.cpp"
HEADERS = re.compile(r"csrc/cpu/[^/]+\.(h|hpp)")

_FUNCTION = re.compile(r"^void (\w+_impl)\(", re.MULTILINE)
_DEFINITION = re.compile(r"ops\.def\(\s*(?P<schema>(?:\"[^\"]*\"\s*)+)(?:,\s*&(?P<function>[\w:]+))?\s*\);")


def load(sources: Mapping[str, str], engine: str) -> str:
    """Compile the tree's ops, and return the torch namespace that holds them; the library is cached by its content.

    Args:
        sources: text by path in the tree.
        engine: name for messages.

    Raises:
        VerispecError: V-ENG-COMPILER without a compiler or if it fails, V-ENG-NO-SPEC-DECODE if the tree has no such
            file (before 0.20.0).
    """
    library, command = prepare(sources, engine)
    if not library.exists():
        _compile(command, library.parent, library, engine)
    torch.ops.load_library(str(library))
    return _namespace(library.parent)


def prepare(sources: Mapping[str, str], engine: str) -> tuple[Path, list[str]]:
    """Return the library's path, and the command that compiles it in its folder, where the files are written.

    The command lacks the output. Arguments and errors are those of `load`.
    """
    if SOURCE not in sources or BINDINGS not in sources:
        raise VerispecError(
            "V-ENG-NO-SPEC-DECODE",
            f"this tree has no {SOURCE}",
            where=f"--engine {engine}",
            hint="vLLM has CPU fallbacks for speculative decoding since 0.20.0",
        )
    files = {path: sources[path] for path in sorted(sources) if HEADERS.fullmatch(path) or path == SOURCE}
    command = [*_compiler(engine), *_arguments()]
    digest = hashlib.sha256(repr((sorted(files.items()), sources[BINDINGS], command)).encode()).hexdigest()[:16]
    library = cache_dir() / "compiled" / digest / "ops.so"
    if not library.exists():
        for path, text in files.items():
            write_text(library.parent / path, text)
        registration = _registration(sources[SOURCE], sources[BINDINGS], _namespace(library.parent))
        write_text(library.parent / "ops.cpp", registration)
    return library, command


def _namespace(folder: Path) -> str:
    return f"verispec_{folder.name}"


def _registration(source: str, bindings: str, namespace: str) -> str:
    """Return a translation unit that holds the tree's file and registers its functions by the tree's own schemas."""
    lines = ["#include <torch/all.h>", "#include <torch/library.h>", f'#include "{SOURCE}"', ""]
    lines.append(f"TORCH_LIBRARY({namespace}, ops) {{")
    lines += [f'  ops.def("{schema}", &{function});' for schema, function in schemas(source, bindings)]
    return "\n".join([*lines, "}", ""])


def schemas(source: str, bindings: str) -> Iterator[tuple[str, str]]:
    """Yield (schema, C++ function) of every op in `bindings` whose function `source` defines."""
    defined = set(_FUNCTION.findall(source))
    implemented = dict(re.findall(r'ops\.impl\(\s*"(\w+)",\s*torch::kCPU,\s*&([\w:]+)\s*\)', bindings))
    for match in _DEFINITION.finditer(bindings):
        schema = "".join(re.findall(r'"([^"]*)"', match["schema"]))
        function = match["function"] or implemented.get(schema.partition("(")[0].strip(), "")
        if function.rpartition("::")[2] in defined:
            yield schema, function


def _compiler(engine: str) -> list[str]:
    named = os.environ.get("CXX", "").split()
    found = named or [path for name in ("c++", "g++", "clang++") if (path := shutil.which(name))][:1]
    if not found or shutil.which(found[0]) is None:
        raise VerispecError(
            "V-ENG-COMPILER",
            f"no C++ compiler: {found[0]!r} is not there" if found else "no C++ compiler",
            where=f"--engine {engine}",
            hint="install g++ or clang++, or name one in CXX; the Triton kernels (vllm@SOURCE) need none",
        )
    return found


def _arguments() -> list[str]:
    """Return the compiler's arguments except the output; libraries come after their users."""
    torch_folder = Path(str(torch.__file__)).parent
    include = torch_folder / "include"
    major, minor = (int(part) for part in torch.__version__.split(".")[:2])
    standard = "-std=c++20" if (major, minor) >= (2, 11) else "-std=c++17"
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}"
    link = ["-shared", "-fPIC", f"-L{torch_folder / 'lib'}", "-lc10", "-ltorch_cpu", "-ltorch"]
    openmp = [] if sys.platform == "darwin" else ["-fopenmp"]
    tuned = ["-O2", "-march=native", *openmp, standard, abi, "-w"]
    return [*tuned, f"-I{include}", f"-I{include / 'torch/csrc/api/include'}", "-I.", "-Icsrc/cpu", "ops.cpp", *link]


def _compile(command: list[str], folder: Path, library: Path, engine: str) -> None:
    half = folder / f"ops.{os.getpid()}.so"
    done = subprocess.run([*command, "-o", half.name], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "error" in line]
        raise VerispecError(
            "V-ENG-COMPILER",
            f"{SOURCE} does not compile alone with {Path(command[0]).name} and torch {torch.__version__}",
            where=f"--engine {engine}",
            cause=(errors or done.stderr.splitlines() or ["no message"])[0],
            hint=f"run it by hand: cd {folder} && {' '.join([*command, '-o', 'ops.so'])}",
        )
    half.replace(library)
