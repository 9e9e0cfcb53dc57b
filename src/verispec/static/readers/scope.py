"""Names in a Python file, and their possible targets as far as one file shows them."""

from __future__ import annotations

import ast
import dataclasses
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from verispec.static.readers.expressions import dotted, imported, mapping_of, module_named
from verispec.static.readers.reaching import kept

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES = frozenset({*FUNCTIONS, ast.Lambda, ast.ClassDef})
# Fields that hold no node that anybody asks for.
_PLAIN = frozenset({
    "ctx", "op", "ops", "id", "attr", "arg", "name", "names", "module", "level", "asname", "annotation", "returns",
    "type_comment", "simple", "is_async", "conversion", "value_kind", "type_params",
})  # fmt: skip
_FIELDS: dict[type, tuple[str, ...]] = {
    kind: tuple(field for field in reversed(kind._fields) if field not in _PLAIN)
    for kind in vars(ast).values()
    if isinstance(kind, type) and issubclass(kind, ast.AST) and kind is not ast.Constant
}
_KEPT = frozenset({
    *_SCOPES, ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr, ast.For,
    ast.AsyncFor, ast.comprehension, ast.withitem, ast.Global, ast.Nonlocal, ast.Call, ast.Return, ast.If, ast.IfExp,
    ast.BinOp, ast.Dict, ast.Delete,
})  # fmt: skip

_NONE: Final[list[Any]] = []

_Node = TypeVar("_Node", bound=ast.AST)


class Nodes:
    """The nodes below some statements without the insides of nested functions and classes, grouped by type.

    Each group is in source order. Names are kept as `loads`, those that are read, and `stores`, the nodes of all
    others; attributes only where they are read off a name (``a.b``, in ``a.b.c`` too).
    """

    __slots__ = ("_dicts", "_groups", "_stored", "attributes", "body", "functions", "imports", "loads", "stores")

    def __init__(self, statements: list[ast.stmt]) -> None:
        self.body = statements
        self.loads: set[str] = set()
        self.stores: list[ast.Name] = []
        self.attributes: list[tuple[str, ast.Attribute]] = []
        self._stored: set[str] | None = None
        self._dicts: set[str] | None = None
        groups: dict[type, list[Any]] = defaultdict(list)
        loads, stores, attributes = self.loads, self.stores, self.attributes
        stack: list[Any] = statements[::-1]
        pop, push = stack.pop, stack.append
        # Every node of every file that is parsed comes by here: the commonest kinds first.
        while stack:
            node = pop()
            kind = type(node)
            if kind is ast.Name:
                if type(node.ctx) is ast.Load:
                    loads.add(node.id)
                else:
                    stores.append(node)
            elif kind is ast.Constant:
                pass
            elif kind is ast.Attribute:
                value = node.value
                if type(value) is ast.Name:
                    loads.add(value.id)
                    attributes.append((value.id, node))
                else:
                    push(value)
            elif kind is ast.Call:
                groups[kind].append(node)
                for keyword in reversed(node.keywords):
                    push(keyword.value)
                stack += node.args[::-1]
                push(node.func)
            elif kind is ast.Expr:
                push(node.value)
            elif kind in _SCOPES:
                groups[kind].append(node)
                # Decorators and bases belong to the scope around.
                stack.extend(reversed([*getattr(node, "decorator_list", ()), *getattr(node, "bases", ())]))
            elif kind in _FIELDS:
                if kind in _KEPT:
                    groups[kind].append(node)
                for field in _FIELDS[kind]:
                    value = getattr(node, field)
                    if type(value) is list:
                        stack += value[::-1]
                    elif value is not None:
                        push(value)
        self._groups = dict(groups)
        self.functions: list[FunctionNode] = [*self.of(ast.FunctionDef), *self.of(ast.AsyncFunctionDef)]
        """Functions and asynchronous functions, in source order each."""
        self.imports: list[ast.Import | ast.ImportFrom] = [*self.of(ast.Import), *self.of(ast.ImportFrom)]
        """Both forms of imports, in source order each."""

    def of(self, kind: type[_Node]) -> list[_Node]:
        """Return the nodes of exactly the type `kind`, one of those that are kept, in source order."""
        return self._groups.get(kind, _NONE)

    @property
    def stored(self) -> set[str]:
        """The names of `stores`."""
        if self._stored is None:
            self._stored = {node.id for node in self.stores}
        return self._stored

    @property
    def dicts(self) -> set[str]:
        """The names that an assignment gives a dict."""
        if self._dicts is None:
            plain = {dotted(t) for a in self.of(ast.Assign) if isinstance(a.value, ast.Dict) for t in a.targets}
            typed = {dotted(a.target) for a in self.of(ast.AnnAssign) if isinstance(a.value, ast.Dict)}
            self._dicts = plain | typed
        return self._dicts


@dataclass(slots=True)
class Scope:
    """A function's or the module's names. A value of None is a name that is bound to something unknown.

    `tables` are the references that a dict has as values; `chosen` are the names that hold one of a dict's values.
    Most functions hold nothing that anybody asks for: the names in `nodes` are bound when the first one is wanted.
    """

    name: str
    parent: Scope | None = None
    owner: str = ""
    instance: str = ""
    names: dict[str, list[str] | None] = dataclasses.field(default_factory=dict)
    mappings: dict[str, tuple[tuple[str, ...], bool]] = dataclasses.field(default_factory=dict)
    sequences: dict[str, int] = dataclasses.field(default_factory=dict)
    lists: set[str] = dataclasses.field(default_factory=set)
    strings: dict[str, str] = dataclasses.field(default_factory=dict)
    tables: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    chosen: set[str] = dataclasses.field(default_factory=set)
    nodes: Nodes | None = None
    pending: bool = False

    def ready(self) -> Scope:
        """Bind the names of this scope if they are `pending`, and return it."""
        if self.pending and self.nodes is not None:
            self.pending = False
            bind_all(self, self.nodes)
        return self

    def may_bind(self, name: str) -> bool:
        """Return False if no statement of this function or of one around it can give `name` a value."""
        scope: Scope | None = self
        while scope is not None and scope.parent is not None:
            nodes = scope.nodes if scope.pending else None
            if name in scope.names or (nodes and (nodes.imports or name in nodes.stored)):
                return True
            scope = scope.parent
        return False

    def bind(self, name: str, reference: str) -> None:
        """Add `reference` to the meanings of `name`; an empty one makes the name unknown."""
        known = self.names.setdefault(name, [])
        if not reference:
            self.names[name] = None
        elif known is not None and reference not in known:
            known.append(reference)

    def resolve(self, text: str) -> tuple[str, ...]:
        """Return the references that the dotted `text` may be from here; empty if nothing is known."""
        if not text:
            return ()
        head, dot, rest = text.partition(".")
        scope: Scope | None = self
        while scope is not None and scope.parent is not None:
            if scope.instance and head == scope.instance:
                return (f"@{scope.owner}.{rest}",) if rest else ()
            if head in scope.ready().names:
                references = scope.names[head]
                if references is None:
                    return ()
                return tuple(f"{reference}{dot}{rest}" for reference in references)
            scope = scope.parent
        return (f"${text}",)

    def read(self, node: ast.expr) -> tuple[str, ...]:
        """Return the references that `node`, a dotted name in this function, may be where it stands."""
        text = dotted(node)
        references = self.resolve(text)
        head, dot, rest = text.partition(".")
        if len(references) < 2 or self.nodes is None or head not in self.names:
            return references
        values = {
            definition: tuple(f"{reference}{dot}{rest}" for reference in found)
            for definition, found in _definitions(self, self.nodes, head)
        }
        return kept(self.nodes.body, node, values, references)

    def choices(self, node: ast.AST) -> tuple[str, ...]:
        """Return the references that ``TABLE[key]`` or ``TABLE.get(key)`` may be; empty if `node` is anything else."""
        name = dotted(node.value) if isinstance(node, ast.Subscript) else ""
        if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
            name, _, method = dotted(node.func).rpartition(".")
            name = name if method == "get" else ""
        scope: Scope | None = self if name and "." not in name else None
        while scope is not None:
            if name in scope.ready().tables:
                found = [scope.resolve(text) for text in scope.tables[name]]
                return tuple(dict.fromkeys(r for one in found for r in one)) if all(found) else ()
            scope = scope.parent if name not in scope.names else None
        return ()

    def one(self, text: str) -> str:
        """Return the one reference that `text` is from here, else the empty string."""
        references = self.resolve(text)
        return references[0] if len(references) == 1 else ""


def function_scope(node: FunctionNode, name: str, parent: Scope, owner: str) -> tuple[Scope, Nodes]:
    """Return the scope of a function, and its own nodes.

    Args:
        node: the function.
        name: its qualified name.
        parent: scope around it.
        owner: class that defines it; empty outside of classes.
    """
    scope = Scope(name, parent, owner)
    decorators = {dotted(decorator) for decorator in node.decorator_list}
    arguments = node.args
    everything = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    if owner and everything and "staticmethod" not in decorators:
        scope.instance = everything[0].arg
    elif parent.instance and not owner:
        scope.owner = parent.owner
    for argument in (*everything, arguments.vararg, arguments.kwarg):
        if argument is not None and argument.arg != scope.instance:
            scope.names[argument.arg] = None
    scope.nodes, scope.pending = nodes_of(node), True
    return scope, scope.nodes


def nodes_of(node: FunctionNode | ast.ClassDef | ast.Lambda) -> Nodes:
    """Return the own nodes of a function or class, collected once for the scope around it and for its own."""
    known: Nodes | None = vars(node).get("own_nodes")
    if known is None:
        known = Nodes([ast.Expr(node.body)] if isinstance(node, ast.Lambda) else node.body)
        vars(node)["own_nodes"] = known
    return known


def names_inside(node: FunctionNode | ast.ClassDef | ast.Lambda) -> set[str]:
    """Return all names in a function or class and in the functions and classes inside it."""
    known: set[str] | None = vars(node).get("all_names")
    if known is None:
        known = set(names_in_body(node))
        outside = [node.args] if not isinstance(node, ast.ClassDef) else [*node.bases, *node.keywords]
        outside += getattr(node, "decorator_list", [])
        for part in outside:
            known.update(inner.id for inner in ast.walk(part) if isinstance(inner, ast.Name))
        vars(node)["all_names"] = known
    return known


def names_in_body(node: FunctionNode | ast.ClassDef | ast.Lambda) -> set[str]:
    """Return the names in a function or class without those in its own header."""
    known: set[str] | None = vars(node).get("body_names")
    if known is None:
        nodes = nodes_of(node)
        known = nodes.loads | nodes.stored
        for inner in (*nodes.functions, *nodes.of(ast.ClassDef), *nodes.of(ast.Lambda)):
            known |= names_inside(inner)
        vars(node)["body_names"] = known
    return known


def bind_all(scope: Scope, nodes: Nodes) -> None:
    """Bind every name that `nodes` bind in `scope`."""
    for statement in nodes.imports:
        for name, target in imported(statement):
            scope.bind(name, target)
    for assignment in nodes.of(ast.Assign):
        for goal in assignment.targets:
            _bind_target(scope, goal, assignment.value)
    for annotated in nodes.of(ast.AnnAssign):
        if annotated.value is not None:
            _bind_target(scope, annotated.target, annotated.value)
    for definition in (*nodes.functions, *nodes.of(ast.ClassDef)):
        scope.bind(definition.name, "")
    targets: list[ast.expr] = []
    for loop in nodes.of(ast.For):
        references = _elements(scope, loop)
        for reference in references:
            scope.bind(dotted(loop.target), reference)
            # The body may tell the elements apart.
            scope.chosen.add(dotted(loop.target))
        targets += [] if references else [loop.target]
    targets += [loop.target for loop in nodes.of(ast.AsyncFor)]
    targets += [loop.target for loop in nodes.of(ast.comprehension)]
    targets += [change.target for change in nodes.of(ast.NamedExpr)]
    targets += [change.target for change in nodes.of(ast.AugAssign)]
    for changed in targets:
        _spoil(scope, changed)
    for item in nodes.of(ast.withitem):
        if item.optional_vars is not None:
            _spoil(scope, item.optional_vars)
    for name_node in nodes.stores:
        if name_node.id not in scope.names:
            scope.bind(name_node.id, "")
    if scope.mappings or scope.sequences:
        _forget_changed(scope, nodes)
    outer = [d.names for d in nodes.of(ast.Global)] + [d.names for d in nodes.of(ast.Nonlocal)]
    for name in (name for names in outer for name in names):
        scope.names.pop(name, None)


_PURE = frozenset({
    "len", "print", "dict", "list", "tuple", "sorted", "isinstance", "repr", "str", "set", "sum", "max", "min", "zip",
    "enumerate", "any", "all", "id", "type", "range",
})  # fmt: skip
_GAINS = frozenset({"update", "setdefault", "__setitem__", "__ior__"})
_READS = frozenset({"get", "keys", "values", "items", "copy", "index", "count"})


def _forget_changed(scope: Scope, nodes: Nodes) -> None:
    """Forget the keys and lengths of dicts and lists that something may change after they are made."""
    _forget_used(scope, nodes, {*scope.mappings, *scope.sequences})


def _forget_used(scope: Scope, nodes: Nodes, names: set[str]) -> None:
    """Forget those of `names` that `nodes` may change; the nodes belong to `scope` or to a function inside it."""
    for change in nodes.of(ast.AugAssign):
        _forget(scope, names, dotted(change.target), gains=isinstance(change.op, ast.BitOr))
    for deletion in nodes.of(ast.Delete):
        for target in deletion.targets:
            _forget(scope, names, dotted(target.value if isinstance(target, ast.Subscript) else target))
    for call in nodes.of(ast.Call):
        function = call.func
        if isinstance(function, ast.Attribute) and function.attr not in _READS:
            _forget(scope, names, dotted(function.value), gains=function.attr in _GAINS)
        if dotted(function) not in _PURE:
            # `**meta` and `*args` hand over copies, `helper(meta)` the object itself.
            for argument in (*call.args, *(keyword.value for keyword in call.keywords if keyword.arg)):
                _forget(scope, names, dotted(argument), escapes=True)
    for assignment in nodes.of(ast.Assign):
        values = assignment.value.elts if isinstance(assignment.value, (ast.Tuple, ast.List)) else [assignment.value]
        for value in values:
            _forget(scope, names, dotted(value), escapes=True)
    for inner in nodes.functions:
        _forget_in_function(scope, inner, names)
    closures: list[ast.Lambda | ast.ClassDef] = [*nodes.of(ast.Lambda), *nodes.of(ast.ClassDef)]
    for closure in closures:
        for name in names & names_inside(closure):
            _forget(scope, names, name, escapes=True)


def _forget_in_function(scope: Scope, inner: FunctionNode, names: set[str]) -> None:
    """Forget names that a function inside may change or hand on; its own variables hide those around it."""
    if names.isdisjoint(names_in_body(inner)):
        return
    nodes = nodes_of(inner)
    outer = {name for declaration in nodes.of(ast.Global) for name in declaration.names}
    outer.update(name for declaration in nodes.of(ast.Nonlocal) for name in declaration.names)
    arguments = inner.args
    everything = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg)
    own = {argument.arg for argument in everything if argument is not None} | {name.id for name in nodes.stores}
    left = names - (own - outer)
    for name in left & outer:
        _forget(scope, left, name)
    for assignment in nodes.of(ast.Assign):
        for goal in assignment.targets:
            if isinstance(goal, ast.Subscript):
                _forget(scope, left, dotted(goal.value), gains=True)
    for result in nodes.of(ast.Return):
        _forget(scope, left, dotted(result.value), escapes=True)
    if left:
        _forget_used(scope, nodes, left)


def _forget(scope: Scope, names: set[str], name: str, *, gains: bool = False, escapes: bool = False) -> None:
    """Forget the targets of `name`: all of it, or only that it has no further keys if it `gains` some."""
    if name not in names:
        return
    if name in scope.mappings:
        scope.mappings[name] = (scope.mappings[name][0] if gains else (), True)
        scope.tables.pop(name, None)
    if name in scope.sequences and not (escapes and name not in scope.lists):
        del scope.sequences[name]
        scope.tables.pop(name, None)


def _elements(scope: Scope, loop: ast.For) -> list[str]:
    """Return the references that the variable of ``for name in (a, b)`` takes; nothing unless all are known."""
    if not isinstance(loop.target, ast.Name) or not isinstance(loop.iter, (ast.Tuple, ast.List)):
        return []
    found = [scope.resolve(dotted(element)) for element in loop.iter.elts]
    return [reference for references in found for reference in references] if all(found) else []


def _spoil(scope: Scope, target: ast.AST) -> None:
    if type(target) is ast.Name:
        scope.bind(target.id, "")
        return
    for node in ast.walk(target):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            scope.bind(node.id, "")


def _given(scope: Scope, value: ast.expr) -> Iterator[tuple[bool, tuple[str, ...]]]:
    """Yield the references that each choice of an assigned `value` is, and True for entries of a table."""
    for choice in [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]:
        entries = scope.choices(choice)
        yield bool(entries), entries or scope.resolve(dotted(choice))


def _definitions(scope: Scope, nodes: Nodes, name: str) -> Iterator[tuple[ast.stmt, list[str]]]:
    """Yield the statements that give `name` a value that is followed, and the references that it has there."""
    for statement in nodes.imports:
        found = [target for bound, target in imported(statement) if bound == name]
        if found:
            yield statement, found
    for loop in nodes.of(ast.For):
        if dotted(loop.target) == name:
            yield loop, _elements(scope, loop)
    assigned: list[ast.Assign | ast.AnnAssign] = [*nodes.of(ast.Assign), *nodes.of(ast.AnnAssign)]
    for assignment in assigned:
        targets = assignment.targets if isinstance(assignment, ast.Assign) else [assignment.target]
        value = assignment.value
        if value is not None and name in map(dotted, targets):
            module = module_named(value)
            yield assignment, [module] if module else [r for _, found in _given(scope, value) for r in found]


def _bind_target(scope: Scope, target: ast.expr, value: ast.expr) -> None:
    if isinstance(target, ast.Subscript):
        owner = dotted(target.value)
        if owner in scope.mappings:
            scope.tables.pop(owner, None)
            keys, unknown = scope.mappings[owner]
            key = target.slice.value if isinstance(target.slice, ast.Constant) else None
            # A key that is set under a condition may be there or not, so it only widens what is possible.
            scope.mappings[owner] = (keys, True) if not isinstance(key, str) or key not in keys else (keys, unknown)
        return
    if not isinstance(target, ast.Name):
        _spoil(scope, target)
        return
    seen = target.id in scope.names
    if isinstance(value, ast.Constant) and value.value is None:
        # Nobody launches None: what else the name may be counts.
        scope.names.setdefault(target.id, [])
        return
    if isinstance(value, ast.Constant) and isinstance(value.value, str) and not seen:
        scope.strings[target.id] = value.value
    module = module_named(value)
    if module:
        scope.bind(target.id, module)
        return
    for entries, references in _given(scope, value):
        if entries:
            scope.chosen.add(target.id)
        for reference in references:
            scope.bind(target.id, reference)
        if not references:
            scope.bind(target.id, "")
    mapping = mapping_of(value)
    if mapping is not None and not seen:
        scope.mappings[target.id] = mapping
        if isinstance(value, ast.Dict) and value.values and all(map(dotted, value.values)):
            scope.tables[target.id] = tuple(map(dotted, value.values))
    else:
        scope.mappings.pop(target.id, None)
        scope.tables.pop(target.id, None)
    if (
        isinstance(value, (ast.Tuple, ast.List))
        and not seen
        and not any(isinstance(e, ast.Starred) for e in value.elts)
    ):
        scope.sequences[target.id] = len(value.elts)
        if value.elts and all(map(dotted, value.elts)):
            scope.tables[target.id] = tuple(map(dotted, value.elts))
        if isinstance(value, ast.List):
            scope.lists.add(target.id)
    else:
        scope.sequences.pop(target.id, None)
