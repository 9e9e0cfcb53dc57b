"""The facts of a C++ or CUDA file: op schemas, their functions, and the arguments that those functions write.

Read with tree-sitter, which needs no headers and survives macros; code that it cannot follow is left out.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from verispec.static.facts import UNKNOWN, CppFacts, CppFunction, Impl, Schema, SchemaArg

_LIBRARY: Final = re.compile(rb"^[ \t]*(?:STABLE_)?TORCH_LIBRARY\w*\s*\(((?:[^()]|\([^()]*\))*)\)\s*\{", re.MULTILINE)
_SCHEMA: Final = re.compile(
    r"\s*(?:(?P<namespace>\w+)::)?(?P<name>\w+)(?:\.\w+)?\s*\((?P<args>.*)\)\s*->\s*(?P<returns>.*?)\s*", re.S
)
_ARGUMENT: Final = re.compile(
    r"(?P<type>[A-Za-z]\w*)(?P<alias>\([^)]*\))?(?P<bang>!)?(?P<list>(?:\[\d*\]))?(?P<optional>\?)?(?P<more>\[\]\??)?"
    r"\s+(?P<name>\w+)(?:\s*=\s*(?P<default>.*))?",
    re.S,
)
_ASKED: Final = re.compile(rb'\bfindSchema\s*\(\s*\{\s*"(?:\w+::)?(\w+)"')
_POINTER: Final = re.compile(
    r"([\w:]*(?:[ \t]+[\w:]+)*)\s*\*\s*(?:__restrict__\s+|const\s+)?(\w+)\s*=\s*(?:\w+\s*<[^;]*>\s*\(\s*)?"
    r"(\w+)\s*(?:\.|->)\s*(?:mutable_)?data_ptr\b"
)
_IN_PLACE: Final = re.compile(
    r"\b(\w++)\s*+(?:\.|->)\s*(?:copy|fill|zero|add|sub|mul|div|masked_fill|index_copy|index_put)_\s*\("
)


_FOUND: Final = frozenset({"call_expression", "function_definition", "declaration"})
_CLOSED: Final = frozenset({
    "class_specifier", "struct_specifier", "template_declaration", "comment", "preproc_include", "preproc_def",
    "preproc_function_def", "using_declaration", "alias_declaration", "type_definition", "enum_specifier",
})  # fmt: skip
"""Nodes without a registration or a plain function inside."""


def registers(data: bytes) -> bool:
    """Return True if the file with the content `data` may register ops."""
    return b"TORCH_LIBRARY" in data


def read(data: bytes) -> CppFacts:
    """Return the summary of the C++ source `data`, without parts that cannot be read."""
    root = _parser().parse(data).root_node
    libraries = [(m.start(), _namespace(m[1])) for m in _LIBRARY.finditer(data)]
    starts = [start for start, _ in libraries]
    schemas: list[Schema] = []
    impls: list[Impl] = []
    functions: list[CppFunction] = []
    for kind, node, guard in _walk(root, data):
        if kind == "call_expression":
            method = _method(node)
            index = bisect_right(starts, node.start_byte) - 1
            if method in ("def", "impl") and index >= 0:
                _registration(node, method, libraries[index][1], guard, schemas, impls)
        else:
            function = _function(node)
            if function is not None:
                functions.append(function)
    asked = {match[1].decode() for match in _ASKED.finditer(data)}
    # Another library may have defined the op already, with other parameters.
    own = (s._replace(args=(), returns=UNKNOWN) if s.name in asked else s for s in schemas)
    return CppFacts(tuple(own), tuple(impls), tuple(functions))


@cache
def _parser() -> Any:
    import tree_sitter
    import tree_sitter_cpp

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_cpp.language()))


def _text(node: Any) -> str:
    return str(node.text.decode("utf-8", "replace"))


def _walk(root: Any, data: bytes) -> Iterator[tuple[str, Any, str]]:
    """Yield calls, functions and declarations, each with its type and the innermost preprocessor condition."""
    left_out = _CLOSED if registers(data) else _CLOSED | {"declaration", "expression_statement"}
    stack: list[tuple[Any, str]] = [(root, "")]
    while stack:
        node, guard = stack.pop()
        kind = node.type
        if kind in _FOUND:
            yield kind, node, guard
        if kind in left_out:
            continue
        if kind in ("preproc_if", "preproc_ifdef", "preproc_elif"):
            end = data.find(b"\n", node.start_byte)
            guard = data[node.start_byte : end if end >= 0 else None].decode("utf-8", "replace").strip()
        elif kind == "preproc_else":
            guard = f"not ({guard})"
        elif kind == "function_definition":
            start = node.start_byte
            if not data[start : start + 64].lstrip().startswith((b"TORCH_LIBRARY", b"STABLE_")):
                continue
        stack.extend([(child, guard) for child in reversed(node.named_children)])


def _namespace(arguments: bytes) -> str:
    return arguments.decode("utf-8", "replace").rpartition(",")[0].partition(",")[0].strip() or "?"


def _method(node: Any) -> str:
    callee = node.child_by_field_name("function")
    if callee is None or callee.type != "field_expression":
        return ""
    field = callee.child_by_field_name("field")
    return _text(field) if field is not None else ""


def _string(node: Any) -> str | None:
    """Return the value of a string literal or of several in a row; None if anything else is among them."""
    if node.type == "string_literal":
        return "".join(_text(child) for child in node.named_children if child.type == "string_content")
    if node.type == "raw_string_literal":
        return "".join(_text(child) for child in node.named_children if child.type == "raw_string_content")
    if node.type == "concatenated_string":
        parts = [_string(child) for child in node.named_children if child.type != "comment"]
        return None if None in parts else "".join(part or "" for part in parts)
    return None


def _registration(node: Any, method: str, namespace: str, guard: str, schemas: list[Schema], impls: list[Impl]) -> None:
    arguments = [child for child in node.child_by_field_name("arguments").named_children if child.type != "comment"]
    text = _string(arguments[0]) if arguments else None
    if text is None:
        return
    line = node.start_point[0] + 1
    function = next((name for name in map(_function_name, reversed(arguments[1:])) if name), "")
    if method == "impl":
        if function:
            impls.append(Impl(namespace, text.rpartition("::")[2].partition(".")[0], function, line, guard))
        return
    name, args, returns = parse_schema(text) or (re.split(r"[(.]", text)[0].rpartition("::")[2].strip(), (), UNKNOWN)
    schemas.append(Schema(namespace, name, args, returns, function, line, guard))


def _function_name(node: Any) -> str:
    """Return the function that an argument such as ``&ns::f`` or ``TORCH_BOX(&f)`` names, without its namespace."""
    match = re.fullmatch(r"(?:\w+\s*\(\s*)?&?\s*(?:\w*::)*(\w+)\s*\)?", _text(node))
    plain = node.type == "identifier"
    return match[1] if match and (plain or "&" in _text(node) or "(" in _text(node)) else ""


def parse_schema(text: str) -> tuple[str, tuple[SchemaArg, ...], str] | None:
    """Return name, arguments and returns of the op schema `text`; None if it is not one."""
    match = _SCHEMA.fullmatch(text)
    if match is None:
        return None
    args: list[SchemaArg] = []
    keyword_only = False
    for part in _split(match["args"]):
        if part == "*":
            keyword_only = True
            continue
        argument = _ARGUMENT.fullmatch(part)
        if argument is None:
            return None
        listed = argument["list"] or argument["more"] or ""
        kind = argument["type"] + ("[]" if listed else "") + ("?" if argument["optional"] else "")
        mutable = bool(argument["bang"]) or "!" in (argument["alias"] or "")
        args.append(SchemaArg(kind, argument["name"], mutable, argument["default"] is not None, keyword_only))
    return match["name"], tuple(args), match["returns"]


def _split(text: str) -> list[str]:
    parts: list[str] = []
    depth, start = 0, 0
    for index, char in enumerate(text):
        if char in "([":
            depth += 1
        elif char in ")]":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:index].strip())
            start = index + 1
    parts.append(text[start:].strip())
    return [part for part in parts if part]


def _function(node: Any) -> CppFunction | None:
    declarator = node.child_by_field_name("declarator")
    while declarator is not None and declarator.type in ("reference_declarator", "pointer_declarator"):
        declarator = next((c for c in declarator.named_children if c.type.endswith("declarator")), None)
    if declarator is None or declarator.type != "function_declarator":
        return None
    name_node = declarator.child_by_field_name("declarator")
    parameters = declarator.child_by_field_name("parameters")
    if name_node is None or parameters is None or name_node.type not in ("identifier", "qualified_identifier"):
        return None
    params: list[tuple[str, str]] = []
    for child in parameters.named_children:
        if child.type not in ("parameter_declaration", "optional_parameter_declaration"):
            continue
        inner = child.child_by_field_name("declarator")
        name = re.sub(r"[&*\s]|\bconst\b", "", _text(inner)) if inner is not None else ""
        text = _text(child).partition("=")[0].strip()
        params.append((" ".join(text[: -len(name)].split() if name and text.endswith(name) else text.split()), name))
    body = node.child_by_field_name("body")
    writes: tuple[str, ...] = ()
    tensors = {name for kind, name in params if "Tensor" in kind and name}
    if body is not None and tensors:
        writes = _writes(_text(body), tensors)
    name = re.sub(r"\s|<.*", "", _text(name_node)).rpartition("::")[2]
    return CppFunction(name, node.start_point[0] + 1, tuple(params), writes, body is not None)


def _writes(body: str, tensors: set[str]) -> tuple[str, ...]:
    """Return the names in `tensors` that a function body surely writes."""
    statements = body.split(";")
    found = {m[1] for statement in statements if "_" in statement for m in _IN_PLACE.finditer(statement)} & tensors
    for pointer in (m for statement in statements if "data_ptr" in statement for m in _POINTER.finditer(statement)):
        name, tensor = pointer[2], pointer[3]
        if tensor not in tensors or tensor in found or "const" in pointer[1].split():
            continue
        if re.search(rf"\b{name}\s*\[[^;=]*\]\s*(?:[-+*/|&]?=)(?!=)", body):
            found.add(tensor)
    return tuple(sorted(found))
