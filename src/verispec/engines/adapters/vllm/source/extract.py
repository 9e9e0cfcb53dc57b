"""Take functions out of a source tree by syntax tree, with everything that they need and nothing else.

Starting from a function (a Triton kernel, a host function), the closure over the module-level names
that it uses is collected: helper functions, constants, classes, and the same in other modules of the
tree that these are imported from. Every module of the tree that contributes becomes one small module
of a new package; names of the tree that cannot run outside of it (platform, logger, launch warm-up)
come from `verispec.engines.adapters.vllm.source.stubs`. Nothing is executed here.
"""

from __future__ import annotations

import ast
import builtins
import symtable
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

STANDINS = "verispec.engines.adapters.vllm.source.stubs"

STOOD_IN: Mapping[str, frozenset[str]] = {
    "vllm.triton_utils": frozenset({"tl", "triton", "tldevice", "HAS_TRITON", "LOG2E", "LOGE2"}),
    "vllm.platforms": frozenset({"current_platform"}),
    "vllm.logger": frozenset({"init_logger"}),
    "vllm.utils.platform_utils": frozenset({"num_compute_units"}),
    "vllm.utils.gpu_sync_debug": frozenset({"gpu_sync_allowed"}),
    "vllm.model_executor.warmup.jit_warmup_triton_helper": frozenset({"triton_kernel_dispatcher_with_warmup"}),
}
"""Names of the tree, by module, that the stubs supply."""

WARMUP = "triton_kernel_dispatcher_with_warmup"


class CannotExtract(Exception):
    """A name that the function needs is not in the tree or cannot be taken out of it; the text says which and where."""


@dataclass(slots=True)
class TreeModule:
    """One module of the tree: its statements, and which of them binds each name."""

    name: str
    path: str
    future: bool
    bound: dict[str, ast.stmt] = field(default_factory=dict)
    order: dict[int, int] = field(default_factory=dict)

    @classmethod
    def parse(cls, name: str, path: str, source: str) -> TreeModule:
        """Return the module of a tree, parsed.

        Args:
            name: dotted name.
            path: path in the tree.
            source: its text.

        Raises:
            CannotExtract: the text does not parse.
        """
        try:
            tree = ast.parse(source)
        except SyntaxError as error:
            raise CannotExtract(f"{path}:{error.lineno} does not parse: {error.msg}") from error
        module = cls(name, path, False)
        _make_absolute(tree, name, is_package=path.endswith("__init__.py"))
        for statement in tree.body:
            module.order[id(statement)] = len(module.order)
            if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
                module.future = True
                continue
            for bound in _binds(statement):
                module.bound[bound] = statement
        return module


def _make_absolute(tree: ast.Module, name: str, *, is_package: bool) -> None:
    """Turn relative imports into absolute ones."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            parents = name.split(".")[: -node.level + is_package or None]
            node.module, node.level = ".".join([*parents, *filter(None, [node.module])]), 0


def _binds(statement: ast.stmt) -> Iterator[str]:
    """Yield the module-level names that a statement binds."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
    elif isinstance(statement, ast.Import | ast.ImportFrom):
        for alias in statement.names:
            yield alias.asname or alias.name.partition(".")[0]
    elif isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        for target in targets:
            names = (node for node in ast.walk(target) if isinstance(node, ast.Name))
            yield from (name.id for name in names if isinstance(name.ctx, ast.Store))
    elif isinstance(statement, ast.If | ast.Try):
        for child in ast.iter_child_nodes(statement):
            if isinstance(child, ast.ExceptHandler):
                for inner in child.body:
                    yield from _binds(inner)
            elif isinstance(child, ast.stmt):
                yield from _binds(child)


class Extractor:
    """Collects the definitions that functions of one tree need. `sources` maps posix paths of the tree to text."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._sources = sources
        self._modules: dict[str, TreeModule] = {}
        self._taken: dict[str, dict[int, ast.stmt]] = {}
        self._needed: dict[str, set[str]] = {}

    def take(self, dotted: str) -> tuple[str, str]:
        """Take the function `dotted` and all that it needs.

        Args:
            dotted: ``package.module.name`` or ``package.module.Class.name``.

        Returns:
            Module of the new package, and the name in it, which is dotted in a class.

        Raises:
            CannotExtract: the tree lacks the function or a part that it needs, or a method is bound to its class.
        """
        module_name, _, name = dotted.rpartition(".")
        if self._path(module_name) is None:
            module_name, _, class_name = module_name.rpartition(".")
            if self._path(module_name) is None:
                raise CannotExtract(f"the tree has no module for {dotted}")
            return self._take_method(self._module(module_name), class_name, name)
        module = self._module(module_name)
        if name not in module.bound:
            raise CannotExtract(f"{module.path} has no {name}")
        self._need(module, name)
        return flat(module_name), name

    def files(self) -> dict[str, str]:
        """Return the new package: source by module name."""
        return {flat(name): self._render(self._module(name), taken) for name, taken in sorted(self._taken.items())}

    def _take_method(self, module: TreeModule, class_name: str, name: str) -> tuple[str, str]:
        """Take a static method, and reduce its class to the members that the method uses."""
        whole = module.bound.get(class_name)
        if not isinstance(whole, ast.ClassDef):
            raise CannotExtract(f"{module.path} has no {class_name}.{name}")
        members = {bound: member for member in whole.body for bound in _binds(member)}
        wanted = [name]
        for member in wanted:
            if member not in members:
                raise CannotExtract(f"{module.path} has no {class_name}.{member}")
            if isinstance(members[member], ast.FunctionDef) and not _is_static(members[member]):
                raise CannotExtract(
                    f"{module.path}: {class_name}.{member} is bound to its class, it cannot be taken out"
                )
            wanted += [used for used in _attributes(members[member], class_name) if used not in wanted]
        body = [member for member in whole.body if any(bound in wanted for bound in _binds(member))]
        reduced = ast.copy_location(ast.ClassDef(class_name, [], [], body, []), whole)
        module.order[id(reduced)] = module.order[id(whole)]
        module.bound[class_name] = reduced
        self._need(module, class_name)
        return flat(module.name), f"{class_name}.{name}"

    def _path(self, module: str) -> str | None:
        stem = module.replace(".", "/")
        return next((path for path in (f"{stem}.py", f"{stem}/__init__.py") if path in self._sources), None)

    def _module(self, name: str) -> TreeModule:
        if name not in self._modules:
            path = self._path(name)
            if path is None:
                raise CannotExtract(f"the tree has no module {name}")
            self._modules[name] = TreeModule.parse(name, path, self._sources[path])
        return self._modules[name]

    def _need(self, module: TreeModule, name: str) -> None:
        statement = module.bound.get(name)
        if statement is None:
            if hasattr(builtins, name) or name in ("__name__", "__file__"):
                return
            raise CannotExtract(f"{module.path} uses {name}, which it does not define")
        needed = self._needed.setdefault(module.name, set())
        if name in needed:
            return
        needed.add(name)
        taken = self._taken.setdefault(module.name, {})
        if isinstance(statement, ast.Import | ast.ImportFrom):
            taken.setdefault(id(statement), statement)
            self._follow(module, statement, name)
            return
        if id(statement) in taken:
            return
        _strip(statement)
        taken[id(statement)] = statement
        for inner in ast.walk(statement):
            if isinstance(inner, ast.ImportFrom) and _of_tree(inner):
                for alias in inner.names:
                    self._follow(module, inner, alias.asname or alias.name)
        for used in _used(statement):
            self._need(module, used)

    def _follow(self, module: TreeModule, statement: ast.Import | ast.ImportFrom, name: str) -> None:
        """Take the definition that the import names `name`, if the tree has it; import other packages as usual."""
        if isinstance(statement, ast.Import):
            if any(alias.name.partition(".")[0] == "vllm" for alias in statement.names):
                raise CannotExtract(f"{module.path}:{statement.lineno} imports a whole module of the tree: {name}")
            return
        if not _of_tree(statement):
            return
        origin = str(statement.module)
        alias = next(a for a in statement.names if (a.asname or a.name) == name)
        if alias.name in STOOD_IN.get(origin, ()):
            return
        if self._path(origin) is None:
            raise CannotExtract(f"{module.path} needs {alias.name} from {origin}, which the tree does not have")
        if alias.name not in self._module(origin).bound and self._path(f"{origin}.{alias.name}") is not None:
            raise CannotExtract(f"{module.path}:{statement.lineno} imports a whole module of the tree: {alias.name}")
        self._need(self._module(origin), alias.name)

    def _render(self, module: TreeModule, taken: Mapping[int, ast.stmt]) -> str:
        lines = [f'"""Taken out of {module.path}."""']
        if module.future:
            lines.append("from __future__ import annotations")
        for statement in sorted(taken.values(), key=lambda s: module.order[id(s)]):
            if isinstance(statement, ast.Import | ast.ImportFrom):
                lines += _rewritten(statement, self._needed[module.name])
                continue
            for inner in ast.walk(statement):
                if isinstance(inner, ast.ImportFrom) and _of_tree(inner):
                    inner.module, inner.level = _new_home(str(inner.module), inner.names[0].name)
            lines.append(f"\n# {module.path}:{statement.lineno}\n{ast.unparse(statement)}")
        return "\n".join(lines) + "\n"


def _is_static(function: ast.stmt) -> bool:
    decorators = function.decorator_list if isinstance(function, ast.FunctionDef) else []
    return any(ast.unparse(decorator) == "staticmethod" for decorator in decorators)


def _attributes(node: ast.AST, owner: str) -> set[str]:
    """Return the names x of every ``owner.x`` in `node`."""
    accesses = (inner for inner in ast.walk(node) if isinstance(inner, ast.Attribute))
    return {a.attr for a in accesses if isinstance(a.value, ast.Name) and a.value.id == owner}


def flat(module: str) -> str:
    """Return the name of the tree's module `module` in the new package."""
    return module.replace(".", "__")


def _of_tree(statement: ast.ImportFrom) -> bool:
    return (statement.module or "").partition(".")[0] == "vllm"


def _new_home(origin: str, name: str) -> tuple[str, int]:
    """Return (module, level) of the import that replaces ``from origin import name``."""
    return (STANDINS, 0) if name in STOOD_IN.get(origin, ()) else (flat(origin), 1)


def _rewritten(statement: ast.Import | ast.ImportFrom, needed: set[str]) -> Iterator[str]:
    """Return the import as the new package needs it, without names that nothing needs."""
    for alias in statement.names:
        if (alias.asname or alias.name.partition(".")[0]) not in needed:
            continue
        if isinstance(statement, ast.Import):
            yield ast.unparse(ast.Import([alias]))
            continue
        module, level = str(statement.module), statement.level
        if _of_tree(statement):
            module, level = _new_home(module, alias.name)
        yield ast.unparse(ast.ImportFrom(module, [alias], level))


def _used(statement: ast.stmt) -> set[str]:
    """Return the module-level names that a statement reads, also inside functions and classes."""
    names: set[str] = set()
    pending = [symtable.symtable(ast.unparse(statement), "<statement>", "exec")]
    while pending:
        table = pending.pop()
        outermost = table.get_type() == "module"
        for symbol in table.get_symbols():
            # A local of a function called "top" claims to be global as well: symtable takes that name for the module's.
            if symbol.is_referenced() and (outermost or (symbol.is_global() and not symbol.is_local())):
                names.add(symbol.get_name())
        pending += table.get_children()
    return names - set(_binds(statement))


def _strip(statement: ast.stmt) -> None:
    """Remove parts that only the tree's own tools need: annotations that are not Triton's, and launch warm-up."""
    for node in ast.walk(statement):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
            arguments = node.args
            for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
                if argument.annotation is not None and not ast.unparse(argument.annotation).startswith("tl."):
                    argument.annotation = None
            node.decorator_list = [d for d in map(_decorator, node.decorator_list) if d is not None]
        elif isinstance(node, ast.AnnAssign) and node is not statement:
            node.annotation = ast.Constant("")


def _decorator(node: ast.expr) -> ast.expr | None:
    """Return a decorator without warm-up; None for a kernel, whose decorator is then dropped.

    A dispatcher keeps the decorator, which names its kernel.
    """
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == WARMUP:
        node.keywords = [k for k in node.keywords if k.arg == "kernel"]
        return node if node.keywords else None
    return node
