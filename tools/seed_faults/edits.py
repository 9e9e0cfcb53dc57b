"""Edits of source text at launches, kernels, calls between kernels, and registrations of ops."""

from __future__ import annotations

import ast
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

FAULTS = {
    "launch: keyword dropped": "drop_keyword",
    "launch: keyword renamed": "rename_keyword",
    "launch: positional dropped": "drop_positional",
    "launch: positionals exchanged": "exchange",
    "kernel: parameter renamed": "rename_parameter",
    "kernel: parameter added": "add_parameter",
    "kernel: parameter dropped": "drop_parameter",
    "helper: argument dropped": "drop_helper_argument",
    "helper: parameter added": "add_helper_parameter",
    "fallback: parameter added": "add_fallback_parameter",
    "fallback: parameter dropped": "drop_fallback_parameter",
    "op: fake loses a parameter": "drop_fake_parameter",
    "op: mutates_args renamed": "rename_mutated",
    "op: call loses an argument": "drop_op_argument",
}
"""Kinds of faults, and the method of `Sites` that makes them."""

HARMLESS = {
    "keywords in another order": "reorder_keywords",
    "positional passed by keyword": "positional_to_keyword",
    "keywords from a dict": "keywords_to_dict",
    "positionals from a tuple": "positionals_to_tuple",
    "kernel under another name": "alias_kernel",
    "parameter with a default": "add_default",
    "comments and layout": "unparse",
    "helper argument by keyword": "helper_to_keyword",
    "fake with other names": "rename_fake_parameter",
}
"""Kinds of harmless edits, likewise."""

OPTIONS = {"num_warps", "num_stages", "num_ctas", "maxnreg"}


@dataclass(frozen=True)
class Edit:
    """The new content of a file; `symbol` is the kernel or op that the edit is about."""

    path: str
    data: bytes = field(repr=False)
    symbol: str
    line: int
    text: str
    kind: str = ""


@dataclass(frozen=True)
class Site:
    """A call of a function that is defined once in the tree."""

    path: str
    call: ast.Call
    name: str
    params: ast.arguments

    @property
    def places(self) -> list[str]:
        """The parameters that can be passed by position."""
        return [a.arg for a in (*self.params.posonlyargs, *self.params.args)]

    @property
    def required(self) -> set[str]:
        """The parameters without a default."""
        places = self.places
        keywords = [a.arg for a, d in zip(self.params.kwonlyargs, self.params.kw_defaults, strict=True) if d is None]
        return {*places[: len(places) - len(self.params.defaults)], *keywords}


def dotted(node: ast.AST) -> str:
    """Return ``a.b.c`` for names and attributes, else nothing."""
    return ast.unparse(node) if isinstance(node, (ast.Name, ast.Attribute)) else ""


def plain(name: str) -> str:
    """Return the name without case and pointer suffix."""
    return name.lower().removesuffix("_ptr")


class Sites:
    """The places of a tree that can be edited. Only names that are defined once and never bound again are used."""

    def __init__(self, sources: dict[str, bytes], rng: random.Random) -> None:
        self.sources = {p: d for p, d in sources.items() if b"jit" in d or b"custom_op" in d or b"torch.ops." in d}
        self.trees: dict[str, ast.Module] = {}
        for path, data in self.sources.items():
            try:
                self.trees[path] = ast.parse(data)
            except (SyntaxError, ValueError):
                continue
        self.kernels: dict[str, tuple[str, ast.FunctionDef]] = {}
        self.functions: dict[str, tuple[str, ast.FunctionDef]] = {}
        defined: Counter[str] = Counter()
        for path, tree in self.trees.items():
            for node in tree.body:
                if isinstance(node, ast.FunctionDef):
                    defined[node.name] += 1
                    self.functions[node.name] = path, node
                    decorators = [dotted(d.func if isinstance(d, ast.Call) else d) for d in node.decorator_list]
                    if decorators in (["triton.jit"], ["jit"], ["gluon.jit"]):
                        self.kernels[node.name] = path, node
        mentions: Counter[str] = Counter()
        for tree in self.trees.values():
            nested = [n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.ClassDef))]
            mentions.update(n.name for n in nested)
            mentions.update(n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
        self.kernels = {name: k for name, k in self.kernels.items() if mentions[name] == 1}
        self.functions = {name: f for name, f in self.functions.items() if mentions[name] == 1}
        self.launches: list[Site] = []
        self.helper_calls: list[Site] = []
        self.op_calls: list[tuple[str, ast.Call]] = []
        for path, tree in self.trees.items():
            for call in (n for n in ast.walk(tree) if isinstance(n, ast.Call)):
                self._site(path, call)
        self.launched = Counter(site.name for site in self.launches)
        for sites in (self.launches, self.helper_calls, self.op_calls):
            rng.shuffle(sites)

    def _site(self, path: str, call: ast.Call) -> None:
        starred = any(isinstance(a, ast.Starred) for a in call.args) or any(not k.arg for k in call.keywords)
        if dotted(call.func).startswith("torch.ops.") and not starred:
            self.op_calls.append((path, call))
        grid = isinstance(call.func, ast.Subscript)
        name = dotted(call.func.value if isinstance(call.func, ast.Subscript) else call.func)
        if starred or name not in self.kernels:
            return
        home, kernel = self.kernels[name]
        # A name of another file counts only if it is imported from there.
        if home != path and not self._imports(path, home, name):
            return
        (self.launches if grid else self.helper_calls).append(Site(path, call, name, kernel.args))

    def _imports(self, path: str, home: str, name: str) -> bool:
        stem = home.removesuffix(".py").rpartition("/")[2]
        return any(
            isinstance(n, ast.ImportFrom)
            and (n.module or "").rpartition(".")[2] == stem
            and any(a.name == name and a.asname is None for a in n.names)
            for n in ast.walk(self.trees[path])
        )

    # Text

    def _replaced(self, path: str, node: ast.AST, text: str) -> bytes:
        lines = self.sources[path].splitlines(keepends=True)
        first, last = node.lineno - 1, node.end_lineno - 1
        head = lines[first][: node.col_offset]
        tail = lines[last][node.end_col_offset :]
        return b"".join([*lines[:first], head + text.encode() + tail, *lines[last + 1 :]])

    def _call(self, site: Site, args: list[str], keywords: list[str], callee: str = "") -> Edit:
        text = f"{callee or ast.unparse(site.call.func)}({', '.join([*args, *keywords])})"
        data = self._replaced(site.path, site.call, text)
        return Edit(site.path, data, site.name, site.call.lineno, text[:160])

    def _signature(self, path: str, node: ast.FunctionDef, args: ast.arguments, symbol: str) -> Edit | None:
        """Return `node` with other parameters; only where its body begins on a line of its own."""
        lines = self.sources[path].splitlines(keepends=True)
        start = node.body[0].lineno
        if start <= node.lineno or lines[start - 1].strip().startswith(b"#"):
            return None
        returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
        indent = " " * node.col_offset
        head = f"{indent}def {node.name}({ast.unparse(args)}){returns}:\n"
        data = b"".join([*lines[: node.lineno - 1], head.encode(), *lines[start - 1 :]])
        try:
            ast.parse(data)
        except SyntaxError:
            return None
        return Edit(path, data, symbol, node.lineno, head.strip()[:160])

    @staticmethod
    def _args(site: Site) -> tuple[list[str], list[str]]:
        keywords = [f"{k.arg}={ast.unparse(k.value)}" for k in site.call.keywords]
        return [ast.unparse(a) for a in site.call.args], keywords

    # Faults of launches

    def drop_keyword(self, rng: random.Random) -> Iterator[Edit]:
        """Drop a keyword argument that the kernel requires."""
        for site in self.launches:
            args, keywords = self._args(site)
            own = [i for i, k in enumerate(site.call.keywords) if k.arg in site.required]
            if own:
                del keywords[rng.choice(own)]
                yield self._call(site, args, keywords)

    def rename_keyword(self, rng: random.Random) -> Iterator[Edit]:
        """Pass a required argument under another name."""
        for site in self.launches:
            args, keywords = self._args(site)
            own = [i for i, k in enumerate(site.call.keywords) if k.arg in site.required]
            if own:
                at = rng.choice(own)
                name, _, value = keywords[at].partition("=")
                keywords[at] = f"{rng.choice((f'{name}_NEW', f'NEW_{name}', name[:-1] or 'X'))}={value}"
                yield self._call(site, args, keywords)

    def drop_positional(self, rng: random.Random) -> Iterator[Edit]:
        """Drop a positional argument."""
        for site in self.launches:
            args, keywords = self._args(site)
            if args and set(site.places[: len(args)]) <= site.required:
                del args[rng.randrange(len(args))]
                yield self._call(site, args, keywords)

    def exchange(self, rng: random.Random) -> Iterator[Edit]:
        """Exchange two positional arguments that are named like their parameters."""
        for site in self.launches:
            args, keywords = self._args(site)
            named = [i for i, (a, p) in enumerate(zip(args, site.places, strict=False)) if plain(a) == plain(p)]
            if len(named) > 1 and len(set(args)) == len(args):
                one, other = sorted(rng.sample(named, 2))
                args[one], args[other] = args[other], args[one]
                yield self._call(site, args, keywords)

    # Faults of kernels

    def _launched_kernels(self) -> Iterator[tuple[str, ast.FunctionDef, Site]]:
        for site in self.launches:
            path, node = self.kernels[site.name]
            if self.launched[site.name] == 1:
                yield path, node, site

    def rename_parameter(self, rng: random.Random) -> Iterator[Edit]:
        """Rename a parameter that the launch passes by keyword."""
        for path, node, site in self._launched_kernels():
            named = [k.arg for k in site.call.keywords if k.arg in site.required]
            if named:
                name = rng.choice(named)
                yield from filter(None, [self._renamed(path, node, name or "", f"{name}_2", site.name)])

    def _renamed(self, path: str, node: ast.FunctionDef, name: str, new: str, symbol: str) -> Edit | None:
        args = ast.parse(f"def f({ast.unparse(node.args)}): ...").body[0].args
        for argument in (*args.posonlyargs, *args.args, *args.kwonlyargs):
            argument.arg = new if argument.arg == name else argument.arg
        return self._signature(path, node, args, symbol)

    def add_parameter(self, rng: random.Random) -> Iterator[Edit]:
        """Add a required parameter to a kernel that is launched once."""
        for path, node, site in self._launched_kernels():
            yield from self._added(path, node, site.name, rng)

    def _added(self, path: str, node: ast.FunctionDef, symbol: str, rng: random.Random) -> Iterator[Edit]:
        args = ast.parse(f"def f({ast.unparse(node.args)}): ...").body[0].args
        at = rng.randint(0, len(args.args) - len(args.defaults))
        args.args.insert(at, ast.arg("added_by_seed"))
        yield from filter(None, [self._signature(path, node, args, symbol)])

    def drop_parameter(self, rng: random.Random) -> Iterator[Edit]:
        """Drop a parameter that the launch passes."""
        for path, node, site in self._launched_kernels():
            if not node.args.vararg and not node.args.kwarg:
                passed = {*site.places[: len(site.call.args)], *(k.arg for k in site.call.keywords)}
                yield from self._dropped(path, node, site.name, passed & site.required, rng)

    def _dropped(
        self, path: str, node: ast.FunctionDef, symbol: str, names: set[str | None], rng: random.Random
    ) -> Iterator[Edit]:
        args = ast.parse(f"def f({ast.unparse(node.args)}): ...").body[0].args
        choices = [i for i, a in enumerate(args.args[: len(args.args) - len(args.defaults)]) if a.arg in names]
        if choices:
            del args.args[rng.choice(choices)]
            yield from filter(None, [self._signature(path, node, args, symbol)])

    # Faults of helpers

    def drop_helper_argument(self, rng: random.Random) -> Iterator[Edit]:
        """Drop an argument of a call between kernels."""
        for site in self.helper_calls:
            args, keywords = self._args(site)
            if args and set(site.places[: len(args)]) <= site.required:
                del args[rng.randrange(len(args))]
                yield self._call(site, args, keywords)

    def add_helper_parameter(self, rng: random.Random) -> Iterator[Edit]:
        """Add a required parameter to a kernel that others call."""
        for name in sorted({site.name for site in self.helper_calls}):
            yield from self._added(*self.kernels[name], name, rng)

    # Faults of fallbacks and ops

    def _fallbacks(self) -> Iterator[tuple[str, str, ast.FunctionDef]]:
        """Yield kernels with a plain function that a table of the tree puts in their place: {"a.b.kernel": f}."""
        values: dict[str, str] = {}
        for tree in self.trees.values():
            for node in ast.walk(tree):
                if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and len(node.value.args) == 1:
                    values[dotted(node.targets[0])] = dotted(node.value.args[0])
        for tree in self.trees.values():
            for node in (n for n in ast.walk(tree) if isinstance(n, ast.Dict)):
                for key, value in zip(node.keys, node.values, strict=True):
                    text = key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else ""
                    last = dotted(value).rpartition(".")[2]
                    name = values.get(last, last)
                    if text.count(".") > 1 and name in self.functions and name not in self.kernels:
                        path, function = self.functions[name]
                        yield text.rpartition(".")[2], path, function

    def add_fallback_parameter(self, rng: random.Random) -> Iterator[Edit]:
        """Add a required parameter to a fallback."""
        for symbol, path, node in self._fallbacks():
            yield from self._added(path, node, symbol, rng)

    def drop_fallback_parameter(self, rng: random.Random) -> Iterator[Edit]:
        """Drop a parameter of a fallback."""
        for symbol, path, node in self._fallbacks():
            yield from self._dropped(path, node, symbol, {a.arg for a in node.args.args}, rng)

    def _registrations(self) -> Iterator[tuple[str, ast.Call, str, dict[str | None, ast.expr]]]:
        for path, tree in self.trees.items():
            for call in (n for n in ast.walk(tree) if isinstance(n, ast.Call)):
                given = {k.arg: k.value for k in call.keywords}
                name = given.get("op_name")
                if dotted(call.func).endswith("register_custom_op") and isinstance(name, ast.Constant):
                    yield path, call, str(name.value), given

    def _fake(self, path: str, given: dict[str | None, ast.expr]) -> ast.FunctionDef | None:
        name = dotted(given["fake_impl"]) if "fake_impl" in given else ""
        home, node = self.functions.get(name, ("", None))
        return node if home == path else None

    def drop_fake_parameter(self, rng: random.Random) -> Iterator[Edit]:
        """Drop a parameter of a fake implementation."""
        for path, _, op, given in self._registrations():
            node = self._fake(path, given)
            if node is not None and not node.args.vararg:
                yield from self._dropped(path, node, op, {a.arg for a in node.args.args}, rng)

    def rename_mutated(self, rng: random.Random) -> Iterator[Edit]:
        """Rename an entry of mutates_args."""
        for path, _, op, given in self._registrations():
            value = given.get("mutates_args")
            if isinstance(value, ast.List) and value.elts and isinstance(value.elts[0], ast.Constant):
                text = (
                    f"[{', '.join(map(repr, [f'{value.elts[0].value}_new', *map(ast.literal_eval, value.elts[1:])]))}]"
                )
                yield Edit(path, self._replaced(path, value, text), op, value.lineno, text)

    def drop_op_argument(self, rng: random.Random) -> Iterator[Edit]:
        """Only calls of ops that Python registers, without defaults."""
        ops = {op: self.functions.get(dotted(given["op_func"])) for _, _, op, given in self._registrations()
               if "op_func" in given}  # fmt: skip
        for path, call in self.op_calls:
            name = dotted(call.func).split(".")[3] if dotted(call.func).count(".") >= 3 else ""
            found = ops.get(name)
            if found is None or found[1].args.defaults or not call.args:
                continue
            site = Site(path, call, name, found[1].args)
            args, keywords = self._args(site)
            del args[rng.randrange(len(args))]
            yield self._call(site, args, keywords)

    # Harmless edits

    def reorder_keywords(self, rng: random.Random) -> Iterator[Edit]:
        """Pass the keywords in another order."""
        for site in self.launches:
            args, keywords = self._args(site)
            if len(keywords) > 1:
                rng.shuffle(keywords)
                yield self._call(site, args, keywords)

    def positional_to_keyword(self, rng: random.Random) -> Iterator[Edit]:
        """Pass the last positional argument by keyword."""
        for site in (*self.launches, *self.helper_calls):
            args, keywords = self._args(site)
            if 1 < len(args) <= len(site.places):
                name = site.places[len(args) - 1]
                yield self._call(site, args[:-1], [f"{name}={args[-1]}", *keywords])

    def keywords_to_dict(self, rng: random.Random) -> Iterator[Edit]:
        """Pass the keywords as ``**dict(...)``."""
        for site in self.launches:
            args, keywords = self._args(site)
            if keywords:
                yield self._call(site, args, [f"**dict({', '.join(keywords)})"])

    def positionals_to_tuple(self, rng: random.Random) -> Iterator[Edit]:
        """Pass the positionals as ``*(...)``."""
        for site in self.launches:
            args, keywords = self._args(site)
            if len(args) > 1:
                yield self._call(site, [f"*({', '.join(args)})"], keywords)

    def alias_kernel(self, rng: random.Random) -> Iterator[Edit]:
        """Launch the kernel through an expression that gives it back."""
        for site in self.launches:
            if isinstance(site.call.func, ast.Subscript):
                callee = f"(lambda kernel: kernel)({site.name})[{ast.unparse(site.call.func.slice)}]"
                yield self._call(site, *self._args(site), callee)

    def add_default(self, rng: random.Random) -> Iterator[Edit]:
        """Add a parameter with a default."""
        for path, node, site in self._launched_kernels():
            args = ast.parse(f"def f({ast.unparse(node.args)}): ...").body[0].args
            if not args.vararg and not args.kwonlyargs:
                args.args.append(ast.arg("added_by_seed"))
                args.defaults.append(ast.Constant(0))
                yield from filter(None, [self._signature(path, node, args, site.name)])

    def unparse(self, rng: random.Random) -> Iterator[Edit]:
        """Lay a kernel out anew, without its comments."""
        for name, (path, node) in self.kernels.items():
            first = min(d.lineno for d in node.decorator_list) - 1
            lines = self.sources[path].splitlines(keepends=True)
            text = f"\n# laid out anew\n{ast.unparse(node)}\n".encode()
            data = b"".join([*lines[:first], text, *lines[node.end_lineno :]])
            yield Edit(path, data, name, node.lineno, "unparsed")

    def helper_to_keyword(self, rng: random.Random) -> Iterator[Edit]:
        """Pass all arguments of a call between kernels by keyword."""
        for site in self.helper_calls:
            args, keywords = self._args(site)
            if args and len(args) <= len(site.places):
                named = [f"{name}={value}" for name, value in zip(site.places, args, strict=False)]
                yield self._call(site, [], named + keywords)

    def rename_fake_parameter(self, rng: random.Random) -> Iterator[Edit]:
        """Rename a positional parameter of a fake implementation."""
        for path, _, op, given in self._registrations():
            node = self._fake(path, given)
            if node is not None and node.args.args and not node.args.kwonlyargs:
                name = rng.choice(node.args.args).arg
                yield from filter(None, [self._renamed(path, node, name, f"{name}_other", op)])
