"""The facts of a Python file that takes part in launching, replacing or binding kernels, read from its syntax tree."""

from __future__ import annotations

import ast
import re
from typing import Final

from verispec.static.facts import (
    Binding,
    Call,
    Class,
    Conversion,
    Decorator,
    Forward,
    Function,
    Import,
    Overflow,
    PythonFacts,
    PythonOp,
    TritonUse,
)
from verispec.static.readers import (
    arguments,
    attributes,
    callees,
    forwards,
    functions,
    kernels,
    registrations,
    registries,
    triton_uses,
)
from verispec.static.readers.expressions import dotted, imported
from verispec.static.readers.guards import read_guards
from verispec.static.readers.overrides import Overrides
from verispec.static.readers.scope import FunctionNode, Nodes, Scope, bind_all, function_scope, nodes_of

_CHANGE: Final = re.compile(rb"\s*(?:\[[^\]\n]*\]\s*[|+]?=(?!=)|[|+]=|\.(?!get|keys|values|items|copy)\w+\()")
_WORD: Final = re.compile(rb"\w")


def parse(data: bytes) -> ast.Module:
    """Return the syntax tree of the source `data`.

    Raises:
        SyntaxError: the source is invalid.
        ValueError: it contains null bytes.
        RecursionError: it is nested too deeply.
        MemoryError: it is nested too deeply for the parser.
    """
    return ast.parse(data)


def read(tree: ast.Module, data: bytes, *, every_call: bool = False) -> PythonFacts:
    """Return the summary of a Python source.

    Args:
        tree: syntax tree of the source.
        data: the source.
        every_call: True includes the calls of plain functions and methods.

    Raises:
        RecursionError: the source is nested too deeply.
    """
    return _Reader(tree, data, every_call).facts()


class _Reader:
    def __init__(self, tree: ast.Module, data: bytes, every_call: bool) -> None:
        self.every_call = every_call
        self.plain_calls: list[Call] = []
        self.device_calls: list[Call] = []
        self.ops: list[PythonOp] = []
        self.forwards: list[Forward] = []
        self.has_placeholder = b"self.jit" in data
        self.has_triton = b"triton" in data
        self.renames_triton = self.has_triton and triton_uses.may_rename(data)
        self.has_ops = b"torch.ops" in data
        self.module = Scope("")
        self.tree = tree
        self.data = data
        self.functions: list[Function] = []
        self.classes: list[Class] = []
        self.bindings: list[Binding] = []
        self.calls: list[Call] = []
        self.conversions: list[Conversion] = []
        self.overflows: list[Overflow] = []
        self.promotes: list[str] = []
        self.triton_uses: list[TritonUse] = []
        self.placeholders: list[tuple[str, tuple[str, ...]]] = []
        self.imports: dict[str, str] = {}
        self.overrides = Overrides(data, self.imports, self.module, self.bindings)
        self.from_imports: set[str] = set()
        self.all_imports: list[Import] = []
        self.instances: set[str] = set()
        self.held: list[Binding] = []
        self.followed: set[str] = set()
        self.launchers: dict[str, callees.Callee] = {}  # Those that instances of the class around hold.
        self.passing: set[str] = set()
        """Methods that take any arguments, and may hand them on to a launch."""

    def facts(self) -> PythonFacts:
        nodes = Nodes(self.tree.body)
        self._bind_module(nodes)
        self._body(nodes, self.module, "")
        for name, values in self.module.tables.items() if self.has_triton else ():
            self.held += (Binding(f"{name}[]", "alias", f"${value}", (), 1) for value in values)
        followed = {binding.name for binding in self.held if binding.kind == "alias"}
        followed -= {
            name for name in followed if name.endswith("[]") and self._is_changed(name[:-2].rpartition(".")[2])
        }
        self.bindings += (binding for binding in self.held if binding.name in followed)
        return PythonFacts(
            tuple(self.functions),
            tuple(self.classes),
            tuple(self.bindings),
            tuple(self.calls),
            tuple(self.overrides.found),
            tuple(self.conversions),
            tuple(self.overflows),
            tuple(self.promotes),
            tuple(self.triton_uses),
            tuple(self.placeholders),
            read_guards(self.tree),
            tuple(self.all_imports),
            tuple(self.plain_calls) if self.every_call else None,
            tuple(self.device_calls),
            tuple(self.ops),
            tuple(self.forwards),
            registries.demands(self.tree, self.data),
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
            wraps = function.args.vararg is not None or function.args.kwarg is not None
            if wraps or any(isinstance(decorator, ast.Call) for decorator in function.decorator_list):
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
        self.followed = {binding.name for binding in self.bindings if binding.kind in {"def", "import"}}
        for name_node in nodes.stores:
            if isinstance(name_node.ctx, ast.Store) and name_node.id not in bound:
                self._bind(name_node.id, "other", "", name_node)
        # Module-level mappings and sequences can be followed like local ones.
        shadow = Scope("")
        bind_all(shadow, nodes)
        self.module.nodes = nodes
        self.module.mappings, self.module.sequences = shadow.mappings, shadow.sequences
        self.module.tables = shadow.tables
        for name in [name for name in (*shadow.mappings, *shadow.lists) if self._is_changed(name)]:
            self.module.mappings.pop(name, None)
            self.module.sequences.pop(name, None)
            self.module.tables.pop(name, None)

    def _is_changed(self, name: str) -> bool:
        """Return True if a line anywhere in the file looks like a change of the module-level dict or list `name`."""
        word = name.encode()
        at = self.data.find(word)
        while at >= 0:
            if _CHANGE.match(self.data, at + len(word)) and not _WORD.match(self.data, max(at - 1, 0), at):
                return True
            at = self.data.find(word, at + 1)
        return False

    def _bind(self, name: str, kind: str, value: str, node: ast.stmt | ast.expr, args: tuple[str, ...] = ()) -> None:
        self.bindings.append(Binding(name, kind, value, args, node.lineno))

    def _bind_value(self, name: str, value: ast.expr, node: ast.stmt) -> None:
        choices = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
        for choice in choices:
            reference = dotted(choice)
            if reference:
                self._bind(name, "alias", f"${reference}", node)
            elif isinstance(choice, ast.Subscript):
                self.instances.add(name)
                self._bind(name, "other", "", node)
            elif isinstance(choice, ast.Call) and dotted(choice.func):
                args = tuple(f"${dotted(a)}" if dotted(a) else "" for a in choice.args)
                self._bind(name, "call", f"${dotted(choice.func)}", node, args)
                self.instances.add(name)
            else:
                self._bind(name, "literal" if isinstance(choice, ast.Constant) else "other", "", node)

    def _absolute(self, text: str) -> str:
        """Return `text` with its first name replaced by the import that it stands for."""
        head, dot, rest = text.partition(".")
        return f"{self.imports.get(head, head)}{dot}{rest}"

    # Structure

    def _import(self, statement: ast.Import | ast.ImportFrom) -> None:
        if isinstance(statement, ast.Import):
            self.all_imports += (Import(alias.name, statement.lineno) for alias in statement.names)
        else:
            self.all_imports += (Import(target, statement.lineno) for _, target in imported(statement))

    def _body(self, nodes: Nodes, scope: Scope, owner: str) -> None:
        prefix = f"{scope.name}." if scope.name else ""
        for statement in nodes.imports:
            self._import(statement)
        kernel = bool(self.functions and self.functions[-1].name == scope.name and self.functions[-1].jit)
        if kernel:
            self._device_calls(nodes, scope)
        self._calls(nodes, scope)
        for assignment in nodes.of(ast.Assign):
            self.overrides.assigned(assignment, scope)
        if self.has_triton and not kernel:
            self.triton_uses += triton_uses.uses(nodes, scope, self.imports, self.renames_triton)
        for function in nodes.functions:
            self._function(function, f"{prefix}{function.name}", scope, owner)
        for closure in nodes.of(ast.Lambda):
            self._lambda(closure, scope)
        for definition in nodes.of(ast.ClassDef):
            self._class(definition, f"{prefix}{definition.name}", scope)

    def _class(self, node: ast.ClassDef, name: str, scope: Scope) -> None:
        bases = tuple(
            base
            for expression in node.bases
            for base in scope.resolve(dotted(expression.value if isinstance(expression, ast.Subscript) else expression))
        )
        self.classes.append(Class(name, node.lineno, bases, kernels.item_of(node)))
        nodes = nodes_of(node)
        inner = Scope(name, scope, name, nodes=nodes, pending=True)
        for assignment in nodes.of(ast.Assign):
            target = assignment.targets[0]
            reference = scope.one(dotted(assignment.value))
            if isinstance(target, ast.Name) and reference:
                self._bind(f"{name}.{target.id}", "alias", reference, assignment)
            elif isinstance(target, ast.Name) and self.has_triton:
                self.held += attributes.table(f"{name}.{target.id}", assignment.value, scope, assignment.lineno)
        around = self.launchers
        self.launchers = attributes.launchers(node, name, scope, self.data) if self.has_triton else {}
        given = kernels.placeholder_attributes(node) if self.has_placeholder else ()
        if given:
            self.placeholders.append((name, given))
        self._calls(nodes, inner)
        self.passing.update(f.name for f in nodes.functions if (f.args.vararg or f.args.kwarg) and not f.decorator_list)
        # Methods do not see the names of their class, so the scope around is their parent.
        for function in nodes.functions:
            self._function(function, f"{name}.{function.name}", scope, name)
        for definition in nodes.of(ast.ClassDef):
            self._class(definition, f"{name}.{definition.name}", scope)
        self.launchers = around

    def _function(self, node: FunctionNode, name: str, parent: Scope, owner: str) -> None:
        scope, nodes = function_scope(node, name, parent, owner)
        decorators = tuple(self._decorator(decorator, parent) for decorator in node.decorator_list)
        jit, given, opaque = kernels.decorated(node, self._absolute, self.tree)
        if jit and scope.instance:
            # A kernel is no function: an instance that it is read off is not its first argument.
            scope.names[scope.instance], scope.instance = None, ""
        params = functions.params_of(node, drop_first=bool(scope.instance and owner))
        names = {param.name for param in params}
        function = Function(
            name,
            node.lineno,
            node.end_lineno or node.lineno,
            params,
            decorators,
            jit,
            given,
            opaque,
            functions.unread(nodes, params),
            kernels.tested(nodes, names) if jit else (),
            functions.specs(nodes, scope),
            functions.converts(node, nodes),
            any(name == "sys" and attribute.attr == "modules" for name, attribute in nodes.attributes),
            kernels.sizes(node, nodes, self._absolute) if jit else (),
        )
        self.functions.append(function)
        if (node.args.vararg or node.args.kwarg) and not node.decorator_list:
            self._forwards(node, nodes, scope)
        if self.has_triton and owner and scope.instance:
            self.held += attributes.held(nodes, scope, self.followed)
        if self.has_triton and nodes.of(ast.Return):
            for reference in callees.returned(node, scope, self.followed):
                self.held.append(Binding(f"{name}()", "alias", reference, (), node.lineno))
        self.ops += registrations.decorated(node, name, parent)
        if jit:
            found, promotes = kernels.overflows(node, nodes, name)
            self.overflows.extend(found)
            if promotes:
                self.promotes.append(name)
        elif names and self.has_ops:
            self.conversions.extend(functions.conversions(name, nodes, names, scope))
        self._body(nodes, scope, "")

    def _lambda(self, node: ast.Lambda, parent: Scope) -> None:
        scope = Scope(parent.name, parent, parent.owner, nodes=nodes_of(node), pending=True)
        arguments = node.args
        everything = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg)
        scope.names.update((argument.arg, None) for argument in everything if argument is not None)
        if scope.nodes is not None:
            self._calls(scope.nodes, scope)

    def _forwards(self, node: FunctionNode, nodes: Nodes, scope: Scope) -> None:
        for launch in nodes.of(ast.Call):
            if not isinstance(launch.func, ast.Subscript):
                continue
            targets = scope.resolve(dotted(launch.func.value))
            kernel = "" if targets else forwards.parameter(node, nodes, launch.func.value)
            passed = forwards.forwarded(node, launch) if len(targets) == 1 or kernel else None
            if passed is not None:
                # Only what the function adds itself; the forwarded rest is added for each caller.
                own = arguments.bound(launch, targets, scope, True)._replace(open_positional=False, open_keywords=False)
                self.forwards.append(Forward(scope.name, own, *passed, kernel))

    def _decorator(self, node: ast.expr, scope: Scope) -> Decorator:
        call = node if isinstance(node, ast.Call) else None
        text = dotted(call.func if call else node)
        keywords: list[tuple[str, str]] = []
        for keyword in call.keywords if call else ():
            reference = scope.one(dotted(keyword.value))
            if keyword.arg and reference:
                keywords.append((keyword.arg, reference))
        return Decorator(scope.one(text), text, call is not None, tuple(keywords))

    # Uses

    def _calls(self, nodes: Nodes, scope: Scope) -> None:
        for call in nodes.of(ast.Call):
            self.overrides.registered(call, scope, nodes)
            self._call(call, scope)

    def _device_calls(self, nodes: Nodes, scope: Scope) -> None:
        for call in nodes.of(ast.Call):
            text = dotted(call.func)
            targets = scope.resolve(text) if text and not self._absolute(text).startswith("triton.") else ()
            if targets:
                self.device_calls.append(arguments.bound(call, targets, scope, False))

    def _call(self, node: ast.Call, scope: Scope) -> None:
        callee = node.func
        launched = callees.callee_of(node, scope) if self._may_launch(node, scope) else None
        launched = launched or callees.held(callee, scope, self.launchers)
        if launched is not None:
            self.calls.append(self._launch(node, launched, scope))
        text = dotted(callee)
        if not text or isinstance(callee, ast.Subscript):
            return
        op = registrations.registered(node, scope) if text.endswith("register_custom_op") else None
        if op is not None:
            self.ops.append(op)
        if text == "setattr" and len(node.args) == 3:
            self.overrides.set_by_name(node, scope)
            return
        if self.every_call:
            # An unknown receiver still has a method of a known name.
            references = scope.resolve(text) or ((f"?.{text.rpartition('.')[2]}",) if "." in text else ())
            if references:
                self.plain_calls.append(arguments.bound(node, references, scope, False))
        plain = not text.startswith("torch.ops.")
        # Plain calls matter only when the callee may be a launcher: a decorated function, an instance, an import.
        passes = "." in text and text.rpartition(".")[2] in self.passing
        if plain and not passes and ("." in text or (text[:1].isupper() and not text.isupper())):
            return
        if plain and not (passes or text in self.instances or text in self.from_imports or scope.may_bind(text)):
            return
        targets = scope.resolve(text)
        if not targets:
            return
        if plain and not passes and not (text in scope.names and not targets[0].startswith("$")):
            local = {t.partition(".")[0].lstrip("$") for t in targets if t.startswith("$")}
            if local.isdisjoint(self.instances) and local.isdisjoint(self.from_imports):
                return
        self.calls.append(arguments.bound(node, targets, scope, False))

    def _may_launch(self, node: ast.Call, scope: Scope) -> bool:
        """Return False for the calls, nearly all of them, that are no launch by their form."""
        callee = node.func
        if isinstance(callee, ast.Name):
            return callee.id in self.instances or scope.may_bind(callee.id)
        if isinstance(callee, ast.Attribute):
            return any(keyword.arg == "grid" for keyword in node.keywords)
        return isinstance(callee, (ast.Subscript, ast.Call))

    def _launch(self, node: ast.Call, launched: callees.Callee, scope: Scope) -> Call:
        call = arguments.bound(node, launched.targets, scope, True)
        return call._replace(
            positional=(*launched.positional, *call.positional),
            # A later keyword takes the place of one that a partial has.
            keywords=tuple(dict.fromkeys((*launched.keywords, *call.keywords))),
            chosen=launched.chosen,
            meta=callees.keys_of(launched.grid, scope),
        )
