"""The facts of a Python file that takes part in launching, replacing or binding kernels, read from its syntax tree."""

from __future__ import annotations

import ast
import re
from typing import Final

from verispec.static import kernel_facts
from verispec.static.facts import (
    Binding,
    Call,
    Class,
    Conversion,
    Decorator,
    Function,
    LaunchSpec,
    Overflow,
    Override,
    Param,
    PythonFacts,
    TritonUse,
)
from verispec.static.python_scope import (
    FunctionNode,
    Nodes,
    Scope,
    bind_all,
    dotted,
    function_scope,
    imported,
    mapping_of,
)

# Patterns that begin with a rare character, since they are searched for in every file of a tree.
_SETATTR: Final = re.compile(rb"(?<![\w.])setattr\(\s*[\w.]+,\s*[\w\"']+,")
_DOTTED_KEY: Final = re.compile(rb"\.\w+\.\w+[\"']\s*:\s*\(?\s*[A-Za-z_][\w.]*\s*[,)}]")
_PATCH: Final = re.compile(rb"\.\w+[ \t]*=[ \t]*(?:\([ \t]*\n|[A-Za-z_][\w.]*[ \t]*(?:#.*)?\n)")
_DOTTED_NAME: Final = re.compile(rb"[ \t]*([A-Za-z_]\w*)[\w.]*")
_IMPORTED: Final = re.compile(
    rb"^[ \t]*(?:import[ \t]+[\w.]+[ \t]+as[ \t]+(\w+)|import[ \t]+(\w+)"
    rb"|from[ \t]+[\w.]+[ \t]+import[ \t]+([^\n(]+|\([^)]*\)))",
    re.MULTILINE,
)
_WORDS: Final = re.compile(rb"\w+")
_DTYPE_METHODS: Final = frozenset(
    {"float", "double", "half", "bfloat16", "int", "long", "short", "bool", "type", "char"}
)


def takes_part(data: bytes) -> bool:
    """Whether the file may define a kernel or an override; few files of a tree do.

    Files that only use what others define are found by their words (see `Outline`) and read when it is known.
    """
    if b".jit" in data or b"import jit" in data or _DOTTED_KEY.search(data):
        return True
    if b"setattr(" in data and _SETATTR.search(data):
        return True
    roots = {_root(data, match.start()) for match in _PATCH.finditer(data)} - {b"", b"self", b"cls"}
    return bool(roots) and any(
        not roots.isdisjoint(_WORDS.findall(name)) for names in _IMPORTED.findall(data) for name in names
    )


def _root(data: bytes, dot: int) -> bytes:
    """The first name of the dotted name that its line begins with and that goes on at `dot`, else nothing."""
    name = _DOTTED_NAME.fullmatch(data, data.rfind(b"\n", 0, dot) + 1, dot)
    return name[1] if name else b""


def read(data: bytes) -> PythonFacts:
    """The facts of the source `data`. Raises SyntaxError, ValueError, RecursionError or MemoryError."""
    return _Reader(ast.parse(data), b"self.jit" in data).facts()


class _Reader:
    def __init__(self, tree: ast.Module, has_placeholder: bool) -> None:
        self.has_placeholder = has_placeholder
        self.module = Scope("")
        self.tree = tree
        self.functions: list[Function] = []
        self.classes: list[Class] = []
        self.bindings: list[Binding] = []
        self.calls: list[Call] = []
        self.overrides: list[Override] = []
        self.conversions: list[Conversion] = []
        self.overflows: list[Overflow] = []
        self.promotes: list[str] = []
        self.triton_uses: list[TritonUse] = []
        self.placeholders: list[tuple[str, tuple[str, ...]]] = []
        self.imports: dict[str, str] = {}
        self.from_imports: set[str] = set()
        self.instances: set[str] = set()

    def facts(self) -> PythonFacts:
        nodes = Nodes(self.tree.body)
        self._bind_module(nodes)
        self._body(nodes, self.module, "")
        return PythonFacts(
            tuple(self.functions),
            tuple(self.classes),
            tuple(self.bindings),
            tuple(self.calls),
            tuple(self.overrides),
            tuple(self.conversions),
            tuple(self.overflows),
            tuple(self.promotes),
            tuple(self.triton_uses),
            tuple(self.placeholders),
        )

    # Names

    def _bind_module(self, nodes: Nodes) -> None:
        for statement in nodes.imports:
            for name, target in imported(statement):
                self._bind(name, "import", target, statement)
                self.imports[name] = target
                if isinstance(statement, ast.ImportFrom):
                    self.from_imports.add(name)
        for function in nodes.functions:
            self._bind(function.name, "def", f"${function.name}", function)
            if any(isinstance(decorator, ast.Call) for decorator in function.decorator_list):
                self.instances.add(function.name)
        for definition in nodes.of(ast.ClassDef):
            self._bind(definition.name, "class", f"${definition.name}", definition)
        for assignment in nodes.of(ast.Assign):
            for goal in assignment.targets:
                if isinstance(goal, ast.Name):
                    self._bind_value(goal.id, assignment.value, assignment)
        for annotated in nodes.of(ast.AnnAssign):
            if isinstance(annotated.target, ast.Name) and annotated.value is not None:
                self._bind_value(annotated.target.id, annotated.value, annotated)
        bound = {binding.name for binding in self.bindings}
        for name_node in nodes.of(ast.Name):
            if isinstance(name_node.ctx, ast.Store) and name_node.id not in bound:
                self._bind(name_node.id, "other", "", name_node)
        # Module-level mappings and sequences can be followed like local ones.
        shadow = Scope("")
        bind_all(shadow, nodes)
        self.module.mappings, self.module.sequences = shadow.mappings, shadow.sequences

    def _bind(self, name: str, kind: str, value: str, node: ast.stmt | ast.expr, args: tuple[str, ...] = ()) -> None:
        self.bindings.append(Binding(name, kind, value, args, node.lineno))

    def _bind_value(self, name: str, value: ast.expr, node: ast.stmt) -> None:
        choices = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
        for choice in choices:
            reference = dotted(choice)
            if reference:
                self._bind(name, "alias", f"${reference}", node)
            elif isinstance(choice, ast.Call) and dotted(choice.func):
                args = tuple(f"${dotted(a)}" if dotted(a) else "" for a in choice.args)
                self._bind(name, "call", f"${dotted(choice.func)}", node, args)
                self.instances.add(name)
            else:
                self._bind(name, "other", "", node)

    def _absolute(self, text: str) -> str:
        """`text` with its first name replaced by what the module imports under it."""
        head, dot, rest = text.partition(".")
        return f"{self.imports.get(head, head)}{dot}{rest}"

    # Structure

    def _body(self, nodes: Nodes, scope: Scope, owner: str) -> None:
        prefix = f"{scope.name}." if scope.name else ""
        kernel = bool(self.functions and self.functions[-1].name == scope.name and self.functions[-1].jit)
        for call in nodes.of(ast.Call):
            self._call(call, scope)
        for assignment in nodes.of(ast.Assign):
            self._assign(assignment, scope)
        if not kernel:
            for attribute in nodes.of(ast.Attribute):
                self._triton_use(attribute, scope)
        for function in nodes.functions:
            self._function(function, f"{prefix}{function.name}", scope, owner)
        for definition in nodes.of(ast.ClassDef):
            self._class(definition, f"{prefix}{definition.name}", scope)

    def _class(self, node: ast.ClassDef, name: str, scope: Scope) -> None:
        bases = tuple(
            base
            for expression in node.bases
            for base in scope.resolve(dotted(expression.value if isinstance(expression, ast.Subscript) else expression))
        )
        self.classes.append(Class(name, node.lineno, bases, kernel_facts.item_of(node)))
        inner = Scope(name, scope, name)
        nodes = Nodes(node.body)
        bind_all(inner, nodes)
        for assignment in nodes.of(ast.Assign):
            target = assignment.targets[0]
            reference = scope.one(dotted(assignment.value))
            if isinstance(target, ast.Name) and reference:
                self._bind(f"{name}.{target.id}", "alias", reference, assignment)
        given = kernel_facts.placeholder_attributes(node) if self.has_placeholder else ()
        if given:
            self.placeholders.append((name, given))
        for call in nodes.of(ast.Call):
            self._call(call, inner)
        # Methods do not see the names of their class, so the scope around is their parent.
        for function in nodes.functions:
            self._function(function, f"{name}.{function.name}", scope, name)
        for definition in nodes.of(ast.ClassDef):
            self._class(definition, f"{name}.{definition.name}", scope)

    def _function(self, node: FunctionNode, name: str, parent: Scope, owner: str) -> None:
        scope, nodes = function_scope(node, name, parent, owner)
        decorators = tuple(self._decorator(decorator, parent) for decorator in node.decorator_list)
        jit, given, opaque = self._kernel(node)
        params = _params(node, drop_first=bool(scope.instance and owner))
        names = {param.name for param in params}
        reads = _reads(nodes)
        function = Function(
            name,
            node.lineno,
            node.end_lineno or node.lineno,
            params,
            decorators,
            jit,
            given,
            opaque,
            tuple(p.name for p in params if p.kind in "pk" and p.name not in reads),
            kernel_facts.tested(nodes, names) if jit else (),
            _specs(nodes, scope),
            _converts(node, nodes),
            any(dotted(n) == "sys.modules" for n in nodes.of(ast.Attribute)),
        )
        self.functions.append(function)
        if jit:
            found, promotes = kernel_facts.overflows(node, name)
            self.overflows.extend(found)
            if promotes:
                self.promotes.append(name)
        elif names:
            self.conversions.extend(_conversions(name, nodes, names, scope))
        self._body(nodes, scope, "")

    def _decorator(self, node: ast.expr, scope: Scope) -> Decorator:
        call = node if isinstance(node, ast.Call) else None
        text = dotted(call.func if call else node)
        keywords: list[tuple[str, str]] = []
        for keyword in call.keywords if call else ():
            reference = scope.one(dotted(keyword.value))
            if keyword.arg and reference:
                keywords.append((keyword.arg, reference))
        return Decorator(scope.one(text), text, call is not None, tuple(keywords))

    def _kernel(self, node: FunctionNode) -> tuple[str, tuple[str, ...] | None, bool]:
        """A function's kernel dialect, the arguments that its decorators give, and whether one is not understood."""
        jit, opaque = "", False
        given: set[str] | None = set()
        for decorator in node.decorator_list:
            call = decorator if isinstance(decorator, ast.Call) else None
            absolute = self._absolute(dotted(call.func if call else decorator))
            kind = kernel_facts.dialect(absolute)
            if kind:
                jit = kind
            elif absolute.endswith(("triton.autotune", "triton.heuristics", "triton.runtime.autotune")) and call:
                more = kernel_facts.given_by(call, self.tree)
                given = None if given is None or more is None else given | more
            elif absolute != "staticmethod":
                opaque = True
        return jit, None if given is None else tuple(sorted(given)), opaque

    # Uses

    def _call(self, node: ast.Call, scope: Scope) -> None:
        callee = node.func
        grid = isinstance(callee, ast.Subscript)
        text = dotted(callee.value if isinstance(callee, ast.Subscript) else callee)
        if not text:
            return
        if text == "setattr" and len(node.args) == 3:
            self._setattr(node, scope)
            return
        self._registry(node, text, scope)
        targets = scope.resolve(text)
        head = text.partition(".")[0]
        if not grid and not text.startswith("torch.ops."):
            # Plain calls matter only when the callee may be a launcher: a decorated function, an instance, an import.
            local = {t.partition(".")[0].lstrip("$") for t in targets if t.startswith("$")}
            launcher = not local.isdisjoint(self.instances | self.from_imports) or (
                bool(targets) and not targets[0].startswith("$") and head in scope.names
            )
            if not launcher or (head[:1].isupper() and not head.isupper()) or "." in text:
                return
        if not targets:
            return
        self.calls.append(self._bound(node, targets, scope, grid))

    def _bound(self, node: ast.Call, targets: tuple[str, ...], scope: Scope, grid: bool) -> Call:
        positional: list[str] = []
        keywords: list[str] = []
        open_positional = open_keywords = False
        for argument in node.args:
            if not isinstance(argument, ast.Starred):
                positional.append(_short(argument))
                continue
            length = _length(argument.value, scope)
            if length is None:
                open_positional = True
            else:
                positional.extend("..." for _ in range(length))
        for keyword in node.keywords:
            if keyword.arg:
                keywords.append(keyword.arg)
                continue
            mapping = mapping_of(keyword.value) or _mapping(dotted(keyword.value), scope)
            if mapping is None:
                open_keywords = True
            else:
                keywords.extend(mapping[0])
                open_keywords = open_keywords or mapping[1]
        return Call(
            targets,
            scope.name,
            node.lineno,
            node.end_lineno or node.lineno,
            grid,
            tuple(positional),
            tuple(keywords),
            open_positional,
            open_keywords,
        )

    def _setattr(self, node: ast.Call, scope: Scope) -> None:
        key = node.args[1]
        name = key.value if isinstance(key, ast.Constant) else scope.strings.get(dotted(key))
        owner = self._owner(dotted(node.args[0]), scope)
        if owner and isinstance(name, str):
            value = scope.one(dotted(node.args[2]))
            self.overrides.append(Override(f"{owner}.{name}", value, "", scope.name, node.lineno))

    def _owner(self, text: str, scope: Scope) -> str:
        """The import that `text` leads to, "" when its first name is anything else."""
        reference = scope.one(text)
        if not reference or reference.startswith("@"):
            return ""
        if reference.startswith("$"):
            head, dot, rest = reference[1:].partition(".")
            return f"{self.imports[head]}{dot}{rest}" if head in self.imports else ""
        return reference

    def _assign(self, node: ast.Assign, scope: Scope) -> None:
        for target in node.targets:
            if not isinstance(target, ast.Attribute):
                continue
            owner = self._owner(dotted(target.value), scope)
            if owner:
                value = scope.one(dotted(node.value))
                self.overrides.append(Override(f"{owner}.{target.attr}", value, "", scope.name, node.lineno))

    def _registry(self, node: ast.Call, text: str, scope: Scope) -> None:
        for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
            if not isinstance(argument, ast.Dict):
                continue
            for key, value in zip(argument.keys, argument.values, strict=True):
                name = key.value if isinstance(key, ast.Constant) else None
                reference = scope.one(dotted(value))
                if isinstance(name, str) and reference and re.fullmatch(r"[A-Za-z_]\w*(\.\w+){2,}", name):
                    self.overrides.append(
                        Override(name, reference, scope.one(text), scope.name, key.lineno if key else node.lineno)
                    )

    def _triton_use(self, node: ast.Attribute, scope: Scope) -> None:
        if not isinstance(node.value, ast.Name):
            return
        reference = scope.one(node.value.id)
        head = reference.removeprefix("$")
        target = self.imports.get(head, "") if reference.startswith("$") else head
        if target.rpartition(".")[2] == "triton" and isinstance(node.ctx, ast.Load):
            self.triton_uses.append(TritonUse(scope.name, target, node.attr, node.lineno))


def _reads(nodes: Nodes) -> set[str]:
    """The names that are read in `nodes`, nested functions included."""
    found = {n.id for n in nodes.of(ast.Name) if isinstance(n.ctx, ast.Load)}
    for inner in [*nodes.functions, *nodes.of(ast.Lambda), *nodes.of(ast.ClassDef)]:
        found.update(n.id for n in ast.walk(inner) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))
    return found


def _short(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return repr(node.value)[:24]
    return dotted(node) or "..."


def _mapping(name: str, scope: Scope) -> tuple[tuple[str, ...], bool] | None:
    where: Scope | None = scope
    while where is not None:
        if name in where.mappings:
            return where.mappings[name]
        if name in where.names:
            return None
        where = where.parent
    return None


def _length(node: ast.expr, scope: Scope) -> int | None:
    if isinstance(node, (ast.Tuple, ast.List)):
        return None if any(isinstance(e, ast.Starred) for e in node.elts) else len(node.elts)
    name = dotted(node)
    where: Scope | None = scope
    while where is not None and name:
        if name in where.sequences:
            return where.sequences[name]
        if name in where.names:
            return None
        where = where.parent
    return None


def _params(node: FunctionNode, *, drop_first: bool) -> tuple[Param, ...]:
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
    defaults.extend(arguments.defaults)
    params = [_param(a, "p", d) for a, d in zip(positional, defaults, strict=True)]
    if drop_first:
        del params[0]
    if arguments.vararg:
        params.append(_param(arguments.vararg, "*", None))
    params.extend(_param(a, "k", d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True))
    if arguments.kwarg:
        params.append(_param(arguments.kwarg, "**", None))
    return tuple(params)


def _param(argument: ast.arg, kind: str, default: ast.expr | None) -> Param:
    annotation = argument.annotation
    if isinstance(annotation, ast.Subscript):
        annotation = annotation.value
    text = annotation.value if isinstance(annotation, ast.Constant) else dotted(annotation)
    return Param(
        argument.arg,
        kind,
        "" if default is None else _short(default),
        isinstance(text, str) and text.endswith("constexpr"),
    )


def _specs(nodes: Nodes, scope: Scope) -> tuple[LaunchSpec, ...]:
    specs: list[LaunchSpec] = []
    for node in nodes.of(ast.Return):
        if node.value is None:
            continue
        if not isinstance(node.value, ast.Tuple) or len(node.value.elts) not in (2, 3):
            return ()
        second = node.value.elts[1]
        mapping = mapping_of(second) or scope.mappings.get(dotted(second))
        if mapping is None:
            return ()
        specs.append(LaunchSpec(*mapping))
    return tuple(specs)


def _converts(node: FunctionNode, nodes: Nodes) -> bool:
    """Whether the function only returns its first parameter, as it is or converted."""
    if len(node.args.args) < 1:
        return False
    returns = [n.value for n in nodes.of(ast.Return)]
    first = node.args.args[0].arg
    return (
        bool(returns)
        and any(_conversion_of(value, first) for value in returns)
        and all(
            (isinstance(value, ast.Name) and value.id == first) or _conversion_of(value, first) for value in returns
        )
    )


def _conversion_of(value: ast.expr | None, name: str) -> str:
    """The method by which `value` is a converted `name`: ".to", ".contiguous", ... or the empty string."""
    if isinstance(value, ast.IfExp):
        parts = [value.body, value.orelse]
        found = [_conversion_of(part, name) for part in parts]
        plain = [isinstance(part, ast.Name) and part.id == name for part in parts]
        return next((f for f in found if f), "") if all(f or p for f, p in zip(found, plain, strict=True)) else ""
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        return ""
    if not isinstance(value.func.value, ast.Name) or value.func.value.id != name:
        return ""
    method = value.func.attr
    if method == "to":
        # Only a change of dtype is told from a move between devices.
        arguments = [*value.args, *(k.value for k in value.keywords if k.arg == "dtype")]
        return ".to" if any(dotted(a).startswith("torch.") or "dtype" in dotted(a) for a in arguments) else ""
    return f".{method}" if method in _DTYPE_METHODS or method == "contiguous" else ""


def _conversions(function: str, nodes: Nodes, params: set[str], scope: Scope) -> list[Conversion]:
    """Converted parameters that reach an op call while nothing brings the result back."""
    ops = [call for call in nodes.of(ast.Call) if dotted(call.func).startswith("torch.ops.")]
    if not ops:
        return []
    converted: dict[str, tuple[str, str]] = {}
    kept: set[str] = set()
    returned: set[str] = set()

    def conversion(value: ast.expr) -> tuple[str, str] | None:
        for name in params:
            method = _conversion_of(value, name)
            if method:
                return name, method
        if not isinstance(value, ast.Call) or len(value.args) != 1 or not isinstance(value.args[0], ast.Name):
            return None
        via = dotted(value.func)
        return (value.args[0].id, scope.one(via)) if value.args[0].id in params and via and "." not in via else None

    for assignment in nodes.of(ast.Assign):
        target, found = assignment.targets[0], conversion(assignment.value)
        if isinstance(target, ast.Name) and found and found[1]:
            converted[target.id] = found
        if isinstance(target, ast.Subscript):
            kept.add(dotted(target.value))
    for call in nodes.of(ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr == "copy_":
            kept.add(dotted(call.func.value))
    for result in nodes.of(ast.Return):
        if result.value is not None:
            returned.update(n.id for n in ast.walk(result.value) if isinstance(n, ast.Name))
    for name, (param, _) in converted.items():
        if name in returned:
            kept.add(param)
    found_all: list[Conversion] = []
    for node in ops:
        for index, argument in enumerate(node.args):
            found = converted.get(argument.id) if isinstance(argument, ast.Name) else conversion(argument)
            if found and found[1] and found[0] not in kept:
                dtype = found[1] not in (".contiguous",)
                found_all.append(
                    Conversion(function, found[0], found[1], dtype, dotted(node.func), index, argument.lineno)
                )
    return found_all
