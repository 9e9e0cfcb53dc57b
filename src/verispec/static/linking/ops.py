"""Op schemas, the C++ functions bound to them and the Python calls of them, joined over a tree."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from verispec.static.facts import UNKNOWN, Call, CppFunction, Function, Param, Schema, SchemaArg
from verispec.static.finding import Location
from verispec.static.linking.index import Index, Module
from verispec.static.linking.python_ops import registered

_ELSEWHERE: Final = ("xpu", "hpu", "tpu", "npu", "rocm", "hip", "aiter", "musa", "ascend", "neuron")
_OPTIONAL: Final = re.compile(r"\boptional\s*<(.*)>", re.DOTALL)
_LIST: Final = re.compile(
    r"(?:\b(?:vector|ArrayRef|HeaderOnlyArrayRef|List|span)\s*<(.*)>)|\bIntArrayRef\b|\bTensorList\b",
    re.DOTALL,
)
_BOXED: Final = re.compile(r"\bStableIValue\b|\bStack\s*[*&]")
"""A parameter of a function that gets the arguments of any op on a stack."""

_KINDS: Final = {"SymInt": "int", "int": "int", "Tensor": "Tensor", "float": "float", "bool": "bool", "str": "str"}


@dataclass(frozen=True, slots=True)
class Op:
    """A schema, where it stands, the C++ definitions bound to it, and the namespaces by which it is called.

    `core` is True for an op of the host tree.
    """

    path: str
    schema: Schema
    functions: tuple[tuple[str, CppFunction], ...]

    namespaces: frozenset[str]
    core: bool = False

    @property
    def location(self) -> Location:
        """Place of the schema."""
        return Location(self.path, self.schema.line)

    def is_replaced_by(self, other: Op) -> bool:
        """Return True if `other` is a plugin's op of the same library: PyTorch loads only one of them.

        A macro may expand to another library in the plugin, but not in its copy of the host's file.
        """
        library = self.schema.namespace
        sure = _is_namespace(library) or self.path.removeprefix("./") == other.path
        return not other.core and other.schema.namespace == library and sure

    @property
    def known(self) -> bool:
        """True if the schema's arguments could be read."""
        return self.schema.returns != UNKNOWN


@dataclass(frozen=True, slots=True)
class TorchOpCall:
    """A Python call ``torch.ops.<namespace>.<name>(...)`` and the ops that it may mean."""

    module: Module
    call: Call
    ops: tuple[Op, ...]

    @property
    def location(self) -> Location:
        """Place of the call."""
        return Location(self.module.path, self.call.line, end_line=self.call.end_line)

    @property
    def scope(self) -> str:
        """The dotted name of the function that contains the call, or of the module."""
        return f"{self.module.name}.{self.call.scope}".rstrip(".")


@dataclass(slots=True)
class Ops:
    """All ops of a tree by name."""

    by_name: dict[str, list[Op]] = field(default_factory=lambda: defaultdict(list))

    def called(self, text: str) -> tuple[Op, ...]:
        """Return the ops that a `text` ``torch.ops.ns.name`` (with an overload such as ``.default``) may be."""
        parts = text.lstrip("$").split(".")
        if len(parts) not in (4, 5) or parts[:2] != ["torch", "ops"] or _is_about_op(*parts[4:]):
            return ()
        found = [op for op in self.by_name.get(parts[3], ()) if parts[2] in op.namespaces]
        return tuple(op for op in found if not op.core or not any(map(op.is_replaced_by, found)))


def _is_about_op(attribute: str = "") -> bool:
    """Return True if `attribute` of an op is one that every op has, and no overload."""
    return attribute.startswith("_") or attribute in {"overloads", "redispatch", "decompose", "py_impl"}


def collect(index: Index) -> Ops:
    """Join all C++ files of `index` with the registrations in Python."""
    functions: dict[str, list[tuple[str, CppFunction]]] = defaultdict(list)
    bound: dict[str, set[str]] = defaultdict(set)
    for path, facts in index.cpp.items():
        for function in facts.functions:
            functions[function.name].append((path, function))
        for impl in facts.impls:
            bound[impl.name].add(impl.function)
    ops = Ops()
    called = _called(index)
    for path, facts in index.cpp.items():
        libraries: dict[str, set[str]] = defaultdict(set)
        for schema in facts.schemas:
            libraries[schema.namespace].add(schema.name)
        namespaces = {library: _namespaces(library, own, called) for library, own in libraries.items()}
        for schema in facts.schemas:
            names = {schema.function} if schema.function else bound[schema.name]
            found = tuple(entry for name in sorted(names) for entry in functions.get(name, ()))
            core = path in index.host_cpp
            ops.by_name[schema.name].append(Op(path, schema, found, namespaces[schema.namespace], core))
    entries = list(registered(index))
    # Python names the library only sometimes; the ops of one tree go where most of them are called.
    usual = _namespaces("", {entry.name for entry in entries if "::" not in entry.op.name}, called)
    for entry in entries:
        for module, definition in entry.functions if entry.op.name else ():
            if not any("*" in param.kind for param in definition.params):
                namespace, _, name = entry.op.name.rpartition("::")
                args = tuple(
                    SchemaArg("", p.name, p.name in entry.op.mutates, not p.required, p.kind == "k")
                    for p in definition.params
                )
                schema = Schema(namespace, name, args, "", "", definition.line, "")
                users = frozenset({namespace}) if namespace else usual
                ops.by_name[name].append(Op(module.path, schema, (), users, module.core))
    return ops


def _called(index: Index) -> dict[str, set[str]]:
    """Return the op names that Python files mention, by namespace."""
    called: dict[str, set[str]] = defaultdict(set)
    for module in index.modules.values():
        for namespace, name in module.outline.ops:
            called[namespace].add(name)
    return called


def _namespaces(text: str, names: set[str], called: dict[str, set[str]]) -> frozenset[str]:
    """Return the namespaces that a library's name may stand for.

    They are the name itself, or for a macro the namespace by which most of its ops are called.
    """
    if _is_namespace(text):
        return frozenset({text})
    best = max(called, key=lambda namespace: len(called[namespace] & names), default="")
    return frozenset({best}) if best and len(called[best] & names) > 1 else frozenset()


def _is_namespace(library: str) -> bool:
    """Return True if a library's name is a namespace such as `_C`, and not a macro."""
    return bool(re.fullmatch(r"\w+", library)) and not (library.isupper() and len(library.strip("_")) > 2)


def as_function(schema: Schema) -> Function:
    """Return the op of `schema` as a function, to bind calls to it."""
    params = tuple(
        Param(arg.name, "k" if arg.keyword_only else "p", "..." if arg.optional else "", False) for arg in schema.args
    )
    return Function(schema.name, schema.line, schema.line, params, (), "", (), False, (), (), (), False, False)


def calls(index: Index, ops: Ops) -> Iterator[TorchOpCall]:
    """Yield every call in `index` of one of `ops`."""
    for module in index.modules.values():
        for call in module.facts.calls:
            if len(call.targets) == 1 and not call.grid and "torch.ops." in call.targets[0]:
                found = ops.called(call.targets[0])
                if found:
                    yield TorchOpCall(module, call, found)


def built_elsewhere(index: Index, module: Module, line: int) -> bool:
    """Return True if a call is for a platform whose ops are not in this tree and may only share their names.

    Args:
        index: index of the tree.
        module: module of the call.
        line: line of the call.
    """
    words = {word for word in _ELSEWHERE if word in module.path}
    words.update(
        guard.test[0]
        for guard in module.facts.guards
        if guard.kind == "platform" and guard.first <= line <= guard.last and guard.test[0] in _ELSEWHERE
    )
    return any(not any(word in source for source in index.cpp) for word in words)


def schema_kind(text: str) -> tuple[str, bool, bool]:
    """Return the schema type `text` as (kind, listed, optional); kind is empty if it cannot be compared with C++."""
    optional = text.endswith("?")
    text = text.removesuffix("?")
    listed = text.endswith("[]")
    return _KINDS.get(text.removesuffix("[]"), ""), listed, optional


def cpp_kind(text: str) -> tuple[str, bool, bool]:
    """Return the C++ parameter type `text` as (kind, listed, optional); kind is empty for an unknown type."""
    optional = _OPTIONAL.search(text)
    if optional:
        text = optional[1]
    listed = _LIST.search(text)
    if listed:
        inner = listed[1] or ("Tensor" if "Tensor" in listed[0] else "int64_t")
        return cpp_kind(inner)[0], True, bool(optional)
    plain = re.sub(r"\bconst\b|[&*]", " ", text).split()
    name = plain[-1].rpartition("::")[2] if plain else ""
    kinds = {"Tensor": "Tensor", "int64_t": "int", "SymInt": "int", "double": "float", "bool": "bool", "string": "str",
             "string_view": "str"}  # fmt: skip
    return kinds.get(name, ""), False, bool(optional)


def implements(schema: Schema, function: CppFunction) -> bool:
    """Return True if the C++ `function` agrees with `schema`, or gets the arguments of any op on a stack."""
    return any(_BOXED.search(kind) for kind, _ in function.params) or agrees(schema, function)


def agrees(schema: Schema, function: CppFunction) -> bool:
    """Return True if the C++ `function` can implement `schema`: same number of parameters, no contradictory kind."""
    if len(schema.args) != len(function.params):
        return False
    for argument, (text, _) in zip(schema.args, function.params, strict=True):
        (kind, listed, optional), (other, other_listed, other_optional) = schema_kind(argument.type), cpp_kind(text)
        if kind and other and ((kind, listed) != (other, other_listed) or (optional and not other_optional)):
            return False
    return True
