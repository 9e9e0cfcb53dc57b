"""Edits of plain Python: calls of imported functions and classes, their definitions, enumerations and overrides."""

from __future__ import annotations

import ast
import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from edits import Edit, dotted

FAULTS = {
    "call: keyword renamed": "rename_keyword",
    "call: argument dropped": "drop_argument",
    "call: one argument more": "add_argument",
    "function: parameter renamed": "rename_parameter",
    "function: parameter added": "add_parameter",
    "import: name vanished": "rename_definition",
    "dataclass: field renamed": "rename_field",
    "enum: member renamed": "rename_member",
    "override: parameter dropped": "drop_override_parameter",
    "method: renamed": "rename_method",
}
"""Kinds of faults, and the method of `PlainSites` that makes them."""

HARMLESS = {
    "call: keywords in another order": "reorder_keywords",
    "call: positional by keyword": "positional_to_keyword",
    "call: keywords from a dict": "keywords_to_dict",
    "function: parameter with a default": "add_default",
    "function: functools.wraps": "wrap",
    "function: defined under a condition": "define_under_condition",
    "override: parameter with a default": "add_override_default",
    "file: laid out anew": "unparse",
}
"""Kinds of harmless edits, likewise."""

FILES = 300
"""Files whose calls are looked at: parsing all of a large tree takes minutes."""

Definition = ast.FunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Site:
    """A call of something that is imported by name from a module of the tree, which defines it once."""

    path: str
    call: ast.Call
    home: str
    node: Definition

    @property
    def params(self) -> list[tuple[str, bool]]:
        """The parameters by position, and whether each is required; fields for a dataclass."""
        if isinstance(self.node, ast.ClassDef):
            fields = [s for s in self.node.body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)]
            return [(field.target.id, field.value is None) for field in fields if isinstance(field.target, ast.Name)]
        args = self.node.args
        first = len(args.args) - len(args.defaults)
        named = [(arg.arg, number < first) for number, arg in enumerate(args.args)]
        return named + [(a.arg, d is None) for a, d in zip(args.kwonlyargs, args.kw_defaults, strict=True)]


class PlainSites:
    """The places of a tree whose plain Python can be edited."""

    def __init__(self, sources: dict[str, bytes], rng: random.Random) -> None:
        self.sources = sources
        self.trees: dict[str, ast.Module] = {}
        defined = Counter(m[1] for d in sources.values() for m in re.finditer(rb"\n[ \t]*(?:def|class) (\w+)", d))
        self.once = {name.decode() for name, number in defined.items() if number == 1}
        self.sites: list[Site] = []
        self.imported: list[tuple[str, str, Definition]] = []
        for path in rng.sample(sorted(sources), min(FILES, len(sources))):
            self._read(path)
        rng.shuffle(self.sites)

    def _tree(self, path: str) -> ast.Module:
        if path not in self.trees:
            self.trees[path] = ast.parse(self.sources[path])
        return self.trees[path]

    def _definition(self, module: str, name: str) -> tuple[str, Definition] | None:
        home = f"{module.replace('.', '/')}.py"
        home = home if home in self.sources else f"python/{home}"
        for node in self._tree(home).body if home in self.sources and name in self.once else ():
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name:
                return home, node
        return None

    def _read(self, path: str) -> None:
        names: dict[str, tuple[str, Definition]] = {}
        for node in self._tree(path).body:
            for alias in node.names if isinstance(node, ast.ImportFrom) and node.module and not node.level else ():
                found = self._definition(node.module, alias.name)
                if found is not None and alias.asname is None and found[0] != path:
                    names[alias.name] = found
                    self.imported.append((path, *found))
        for call in (n for n in ast.walk(self._tree(path)) if isinstance(n, ast.Call)):
            name = dotted(call.func)
            starred = any(isinstance(a, ast.Starred) for a in call.args) or any(not k.arg for k in call.keywords)
            if name in names and not starred and self._plain(names[name][1]):
                self.sites.append(Site(path, call, *names[name]))

    @staticmethod
    def _plain(node: Definition) -> bool:
        """Return whether the parameters of a definition can be read off it."""
        if isinstance(node, ast.ClassDef):
            decorators = [dotted(d.func if isinstance(d, ast.Call) else d) for d in node.decorator_list]
            return decorators == ["dataclass"] and not node.bases
        return not (node.decorator_list or node.args.vararg or node.args.kwarg or node.args.posonlyargs)

    # Text

    def _replaced(self, path: str, node: ast.AST, text: str, symbol: str) -> Edit:
        lines = self.sources[path].splitlines(keepends=True)
        first, last = node.lineno - 1, node.end_lineno - 1
        data = b"".join([
            *lines[:first], lines[first][: node.col_offset], text.encode(), lines[last][node.end_col_offset :],
            *lines[last + 1 :],
        ])  # fmt: skip
        return Edit(path, data, symbol, node.lineno, text[:160])

    def _header(
        self, path: str, node: ast.FunctionDef, args: ast.arguments, symbol: str, name: str = ""
    ) -> Edit | None:
        lines = self.sources[path].splitlines(keepends=True)
        start = node.body[0].lineno
        if start <= node.lineno or lines[start - 1].strip().startswith(b"#"):
            return None
        returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
        head = f"{' ' * node.col_offset}def {name or node.name}({ast.unparse(args)}){returns}:\n"
        data = b"".join([*lines[: node.lineno - 1], head.encode(), *lines[start - 1 :]])
        try:
            ast.parse(data)
        except SyntaxError:
            return None
        return Edit(path, data, symbol, node.lineno, head.strip()[:160])

    def _call(self, site: Site, args: list[str], keywords: list[str]) -> Edit:
        text = f"{ast.unparse(site.call.func)}({', '.join([*args, *keywords])})"
        return self._replaced(site.path, site.call, text, site.node.name)

    @staticmethod
    def _args(site: Site) -> tuple[list[str], list[str]]:
        keywords = [f"{k.arg}={ast.unparse(k.value)}" for k in site.call.keywords]
        return [ast.unparse(a) for a in site.call.args], keywords

    @staticmethod
    def _copy(node: ast.FunctionDef) -> ast.arguments:
        return ast.parse(f"def f({ast.unparse(node.args)}): ...").body[0].args

    # Faults

    def rename_keyword(self, rng: random.Random) -> Iterator[Edit]:
        """Pass an argument under another name."""
        for site in self.sites:
            args, keywords = self._args(site)
            if keywords:
                at = rng.randrange(len(keywords))
                keywords[at] = f"new_{keywords[at]}"
                yield self._call(site, args, keywords)

    def drop_argument(self, rng: random.Random) -> Iterator[Edit]:
        """Drop a required argument."""
        for site in self.sites:
            args, keywords = self._args(site)
            required = {name for name, needed in site.params if needed}
            own = [i for i, keyword in enumerate(site.call.keywords) if keyword.arg in required]
            if own:
                del keywords[rng.choice(own)]
                yield self._call(site, args, keywords)
            elif args and len(args) <= len(site.params) and site.params[len(args) - 1][1]:
                yield self._call(site, args[:-1], keywords)

    def add_argument(self, rng: random.Random) -> Iterator[Edit]:
        """Pass one positional argument more than there are places."""
        for site in self.sites:
            args, keywords = self._args(site)
            if isinstance(site.node, ast.FunctionDef) and len(args) == len(site.node.args.args) and not keywords:
                yield self._call(site, [*args, "None"], keywords)

    def _functions(self) -> Iterator[tuple[Site, ast.FunctionDef]]:
        seen: set[str] = set()
        for site in self.sites:
            if isinstance(site.node, ast.FunctionDef) and site.node.name not in seen:
                seen.add(site.node.name)
                yield site, site.node

    def rename_parameter(self, rng: random.Random) -> Iterator[Edit]:
        """Rename a parameter that a caller passes by keyword."""
        for site, node in self._functions():
            args = self._copy(node)
            for keyword in site.call.keywords[:1]:
                for arg in (*args.args, *args.kwonlyargs):
                    arg.arg = f"{arg.arg}_other" if arg.arg == keyword.arg else arg.arg
                yield from filter(None, [self._header(site.home, node, args, node.name)])

    def add_parameter(self, rng: random.Random) -> Iterator[Edit]:
        """Add a required parameter."""
        for site, node in self._functions():
            args = self._copy(node)
            args.kwonlyargs.append(ast.arg("added_by_seed"))
            args.kw_defaults.append(None)
            yield from filter(None, [self._header(site.home, node, args, node.name)])

    def rename_definition(self, rng: random.Random) -> Iterator[Edit]:
        """Rename a function that another file imports."""
        for site, node in self._functions():
            edit = self._header(site.home, node, node.args, node.name, f"{node.name}_moved")
            yield from filter(None, [edit])

    def rename_field(self, rng: random.Random) -> Iterator[Edit]:
        """Rename a field of a dataclass that a caller passes by keyword."""
        for site in self.sites:
            used = {keyword.arg for keyword in site.call.keywords}
            for field in site.node.body if isinstance(site.node, ast.ClassDef) else ():
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and field.target.id in used:
                    name = field.target.id
                    yield self._replaced(site.home, field.target, f"{name}_other", name)
                    break

    def rename_member(self, rng: random.Random) -> Iterator[Edit]:
        """Rename a member of an enumeration that another file uses."""
        for path, home, node in self.imported:
            if isinstance(node, ast.ClassDef) and any("Enum" in dotted(base) for base in node.bases):
                used = re.search(rb"\b" + node.name.encode() + rb"\.([A-Z]\w+)", self.sources[path])
                for statement in node.body if used else ():
                    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
                    if isinstance(target, ast.Name) and used and target.id == used[1].decode():
                        yield self._replaced(home, target, f"{target.id}_OTHER", target.id)

    def _overrides(self) -> Iterator[tuple[str, ast.FunctionDef]]:
        """Yield methods of classes that descend from a class of another file with the same method."""
        bases = {node.name: node for _, _, node in self.imported if isinstance(node, ast.ClassDef)}
        for path, tree in list(self.trees.items()):
            for node in (n for n in tree.body if isinstance(n, ast.ClassDef)):
                inherited = [bases[dotted(b)] for b in node.bases if dotted(b) in bases]
                for method in (m for m in node.body if isinstance(m, ast.FunctionDef)):
                    for base in inherited:
                        for old in (m for m in base.body if isinstance(m, ast.FunctionDef)):
                            same = [a.arg for a in old.args.args] == [a.arg for a in method.args.args]
                            plain = not (old.decorator_list or method.decorator_list or method.args.vararg)
                            if old.name == method.name and same and plain and not method.name.startswith("_"):
                                yield path, method

    def drop_override_parameter(self, rng: random.Random) -> Iterator[Edit]:
        """Drop the last parameter of an override."""
        for path, method in self._overrides():
            args = self._copy(method)
            if len(args.args) > 1 and not args.defaults and not args.kwarg:
                del args.args[-1]
                yield from filter(None, [self._header(path, method, args, method.name)])

    def rename_method(self, rng: random.Random) -> Iterator[Edit]:
        """Rename a method that its class calls on itself."""
        for path, tree in list(self.trees.items()):
            for node in (n for n in tree.body if isinstance(n, ast.ClassDef)):
                for method in (m for m in node.body if isinstance(m, ast.FunctionDef) and m.name in self.once):
                    called = f"self.{method.name}(".encode() in self.sources[path]
                    if called and not method.decorator_list:
                        edit = self._header(path, method, method.args, method.name, f"{method.name}_moved")
                        yield from filter(None, [edit])

    # Harmless edits

    def reorder_keywords(self, rng: random.Random) -> Iterator[Edit]:
        """Write the keywords in another order."""
        for site in self.sites:
            args, keywords = self._args(site)
            if len(keywords) > 1:
                yield self._call(site, args, keywords[::-1])

    def positional_to_keyword(self, rng: random.Random) -> Iterator[Edit]:
        """Pass the last positional argument by keyword."""
        for site in self.sites:
            args, keywords = self._args(site)
            if args and len(args) <= len(site.params):
                yield self._call(site, args[:-1], [f"{site.params[len(args) - 1][0]}={args[-1]}", *keywords])

    def keywords_to_dict(self, rng: random.Random) -> Iterator[Edit]:
        """Pass the keywords as ``**dict(...)``."""
        for site in self.sites:
            args, keywords = self._args(site)
            if keywords:
                yield self._call(site, args, [f"**dict({', '.join(keywords)})"])

    def add_default(self, rng: random.Random) -> Iterator[Edit]:
        """Add a parameter with a default."""
        for site, node in self._functions():
            args = self._copy(node)
            args.kwonlyargs.append(ast.arg("added_by_seed"))
            args.kw_defaults.append(ast.Constant(0))
            yield from filter(None, [self._header(site.home, node, args, node.name)])

    def wrap(self, rng: random.Random) -> Iterator[Edit]:
        """Put a decorator with functools.wraps around a function."""
        decorator = (
            "import functools as _functools\n\n\ndef _kept(function):\n    @_functools.wraps(function)\n"
            "    def wrapper(*args, **kwargs):\n        return function(*args, **kwargs)\n\n"
            "    return wrapper\n\n\n@_kept\n"
        )
        for site, node in self._functions():
            lines = self.sources[site.home].splitlines(keepends=True)
            data = b"".join([*lines[: node.lineno - 1], decorator.encode(), *lines[node.lineno - 1 :]])
            yield Edit(site.home, data, node.name, node.lineno, "functools.wraps")

    def define_under_condition(self, rng: random.Random) -> Iterator[Edit]:
        """Define a function in the branches of a condition."""
        for site, node in self._functions():
            text = ast.unparse(node)
            block = "\n".join(f"    {line}" for line in text.splitlines())
            if '"""' not in text:
                edit = self._replaced(site.home, node, f"if __name__:\n{block}\nelse:\n{block}", node.name)
                yield edit

    def add_override_default(self, rng: random.Random) -> Iterator[Edit]:
        """Add a parameter with a default to an override."""
        for path, method in self._overrides():
            args = self._copy(method)
            args.kwonlyargs.append(ast.arg("added_by_seed"))
            args.kw_defaults.append(ast.Constant(0))
            yield from filter(None, [self._header(path, method, args, method.name)])

    def unparse(self, rng: random.Random) -> Iterator[Edit]:
        """Lay a file out anew, without its comments."""
        for path, tree in list(self.trees.items()):
            yield Edit(path, f"{ast.unparse(tree)}\n".encode(), path, 1, "unparsed")
