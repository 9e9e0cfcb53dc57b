"""Inline definitions of the kernels with external linkage: each name and parameter list has one definition.

The linker keeps one of two inline functions with the same signature for all files, whatever they do. An optimised build
inlines both, so that its cases pass; one that inlines less computes with the wrong one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

CSRC = Path(__file__).parents[2] / "reference" / "csrc"
FAKE = {
    "fused.h": b"namespace verispec {\ninline double power(double y) { return y; }\nclass Row {};\n}\n",
    "tree.h": b"namespace verispec {\n// Other.\ninline double power(double number) { return -number; }\n}\n",
    "op.cpp": b"namespace verispec {\nnamespace {\nclass Row {};\ndouble power(double y) { return 0; }\n}\n}\n",
    "sum.h": b"namespace verispec {\ninline double power(const float* x, int n) { return x[n]; }\n}\n",
}


def definitions(source: bytes) -> Iterator[str]:
    """Yield the types and functions that a file defines in named namespaces, with the types of parameters."""
    tree_sitter = pytest.importorskip("tree_sitter")
    language = pytest.importorskip("tree_sitter_cpp").language()
    yield from _named(tree_sitter.Parser(tree_sitter.Language(language)).parse(source).root_node, "")


def _named(node: Any, scope: str) -> Iterator[str]:
    for child in node.children:
        name = child.child_by_field_name("name")
        if child.type == "namespace_definition":
            if name is not None:  # types and functions of an unnamed namespace belong to their file
                yield from _named(child.child_by_field_name("body"), f"{scope}{name.text.decode()}::")
        elif child.type in ("class_specifier", "struct_specifier", "enum_specifier"):
            if child.child_by_field_name("body") is not None and name is not None:
                yield f"{scope}{name.text.decode()}"
        elif child.type == "function_definition":
            if not any(part.type == "storage_class_specifier" and part.text == b"static" for part in child.children):
                yield scope + _signature(child.child_by_field_name("declarator"))
        elif child.type not in ("compound_statement", "field_declaration_list"):
            yield from _named(child, scope)


def _signature(declarator: Any) -> str:
    """Return the name and the parameters' types: a parameter's name is no part of what the linker compares."""
    while declarator.type != "function_declarator":
        declarator = declarator.child_by_field_name("declarator") or declarator.named_children[-1]
    types = []
    for parameter in declarator.child_by_field_name("parameters").named_children:
        text = parameter.text.decode()
        inner = parameter.child_by_field_name("declarator")
        while inner is not None and inner.type != "identifier":
            inner = inner.child_by_field_name("declarator") or next(iter(inner.named_children), None)
        if inner is not None:
            at = inner.start_byte - parameter.start_byte
            text = text[:at] + text[at + len(inner.text) :]
        types.append(" ".join(text.split("=")[0].split()))
    return f"{declarator.child_by_field_name('declarator').text.decode()}({', '.join(types)})"


def defined_twice(sources: Mapping[str, bytes]) -> dict[str, list[str]]:
    """Return the definitions that several files have, with the names of these files."""
    files: dict[str, list[str]] = {}
    for file, source in sources.items():
        for definition in set(definitions(source)):
            files.setdefault(definition, []).append(file)
    return {definition: names for definition, names in files.items() if len(names) > 1}


def test_no_two_files_define_the_same_name() -> None:
    """rows.inc is left out: rows.cpp includes it in several namespaces."""
    assert not defined_twice({path.name: path.read_bytes() for path in sorted(CSRC.glob("*.[ch]*"))})


def test_a_second_definition_is_found() -> None:
    """Parameters of other names are the same definition; other types and unnamed namespaces are not."""
    assert defined_twice(FAKE) == {"verispec::power(double)": ["fused.h", "tree.h"]}


def test_definitions_of_a_header_are_read() -> None:
    """The reader of the sources sees classes and functions."""
    found = set(definitions((CSRC / "tree.h").read_bytes()))
    assert found > {"verispec::Trees", "verispec::power_of_two(double)"}
    assert "verispec::draw(const std::vector<double>&, double)" in found
