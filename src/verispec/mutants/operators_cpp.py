"""List the faults of a C++ file: tree-sitter finds the sites, each with its alternatives.

A site is an expression, a statement or a declaration. The lists here know C++, not the reference; the operators
at the end (layout, width, stale state, shared buffers) are those of batched kernels.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from verispec.mutants.cpp_sites import (
    ARITHMETIC,
    ASSIGNMENTS,
    BLOCK_SIZE,
    BLOCKS,
    COMPARISONS,
    INTEGER_TYPES,
    LOGICAL,
    ROWS,
    SIZES_OF_HEADS,
    Alternative,
    CppScope,
    Site,
    descendants,
)

_SKIPPED: Final = frozenset({
    "comment", "preproc_include", "preproc_def", "preproc_function_def", "preproc_ifdef", "preproc_if",
    "attribute_declaration", "template_argument_list", "template_parameter_list", "parameter_list", "array_declarator",
    "enum_specifier", "lambda_capture_specifier", "static_assert_declaration", "using_declaration", "type_descriptor",
    "primitive_type", "sized_type_specifier", "namespace_identifier",
})  # fmt: skip
_BUILT: Final = re.compile(r"^(?:NB_MODULE|void bind_\w+|const Registration )")


_CONSTANT: Final = r"\b(k[A-Z]\w*) = (\d+)[,;]"


def sites(source: bytes, headers: str = "") -> list[Site]:
    """Return all sites of a C++ file, outer ones first.

    Args:
        source: text of the file.
        headers: text of the headers, whose constants may end its loops.
    """
    return list(_Finder(source, shared_constants(headers)).find())


def shared_constants(headers: str) -> dict[str, str]:
    """Return the integer constants that headers define for every file; those of a class are its own."""
    return dict(re.findall(rf"^constexpr [\w ]*{_CONSTANT}", headers, re.MULTILINE))


def _leaves(node: Any) -> bool:
    """Return True if a statement below a node may end the loop around it; those of a lambda end the lambda alone."""
    if node is None or node.type == "lambda_expression":
        return False
    return node.type in ("break_statement", "return_statement", "throw_statement") or any(map(_leaves, node.children))


class _Finder:
    def __init__(self, source: bytes, constants: Mapping[str, str]) -> None:
        import tree_sitter
        import tree_sitter_cpp

        self._source = source
        parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_cpp.language()))
        self._root = parser.parse(source).root_node
        # Python calls these, so that they start in thread 0.
        self._entries = set(re.findall(r"m\.def\([^,]*, &(\w+)", source.decode()))
        made = re.findall(r"nb::class_<(\w+)>", source.decode())
        self._entries |= {f"{name}::{name}" for name in made}
        # Nothing but Python calls a class of a file, and no thread of its own starts there.
        self._has_one_thread = bool(made) and b"#pragma omp parallel" not in source
        self._constants: dict[str, str] = {**constants, **dict(re.findall(_CONSTANT, source.decode()))}

    def find(self) -> Iterator[Site]:
        yield from self._visit(self._root, CppScope())

    def _text(self, node: Any) -> str:
        return self._source[node.start_byte : node.end_byte].decode()

    def _site(self, node: Any, kind: str, scope: CppScope, alternatives: list[tuple[str, str]]) -> Iterator[Site]:
        text = self._text(node)
        loops = len(scope.loops)
        pairs = [(operator, new) for operator, new in alternatives if "//" not in new and new != text]
        made = [Alternative(operator, " ".join(new.split()), loops=loops, never=scope.never) for operator, new in pairs]
        if made:
            line, column = node.start_point[0] + 1, node.start_point[1] + 1
            before = " ".join(text.split())
            yield Site(node.start_byte, node.end_byte, kind, line, column, scope.loops, made, before)

    def _children(self, node: Any, scope: CppScope) -> Iterator[Site]:
        for child in node.named_children:
            yield from self._visit(child, scope)

    def _visit(self, node: Any, scope: CppScope) -> Iterator[Site]:
        kind = node.type
        if kind in _SKIPPED or (kind in ("function_definition", "declaration") and _BUILT.match(self._text(node))):
            return
        method = getattr(self, f"_{kind}", None)
        yield from method(node, scope) if method else self._children(node, scope)

    # Structure: scopes, loops, statements.

    def _function_definition(self, node: Any, scope: CppScope) -> Iterator[Site]:
        integers, tensors = list(scope.integers), []
        for parameter in descendants(node.child_by_field_name("declarator"), "parameter_declaration"):
            name = re.findall(r"\w+", self._text(parameter))[-1]
            type_text = self._text(parameter)
            if re.match(r"(const )?(int64_t|int32_t|int|size_t|uint32_t) \w+$", type_text):
                integers.append(name)
            elif re.match(r"const Tensor& \w+$", type_text):
                tensors.append(name)
        # The argument selects the row of the batch that a helper works on.
        rows = tuple(name for name in integers if name in ROWS)
        inner = CppScope(
            tuple(integers), tuple(tensors), rows, tuple(BLOCKS if name == "block" else None for name in rows),
            tuple(SIZES_OF_HEADS.items()), scope.parallel, self._starts_serially(node), in_function=True,
        )  # fmt: skip
        for child in node.named_children:
            if child.type in ("compound_statement", "field_initializer_list"):
                yield from self._visit(child, inner)

    def _starts_serially(self, node: Any) -> bool:
        """Return True if thread 0 runs a function's code outside of parallel regions."""
        name = self._text(node.child_by_field_name("declarator")).partition("(")[0]
        return self._has_one_thread or name in self._entries or "#pragma omp parallel" in self._text(node)

    def _lambda_expression(self, node: Any, scope: CppScope) -> Iterator[Site]:
        parameters = map(self._text, descendants(node.child_by_field_name("declarator"), "parameter_declaration"))
        own = tuple(text.split()[-1] for text in parameters if re.match(r"(const )?int\w* \w+$", text))
        # A lambda is called for one row, or one step, of the loops around it; its own integers name those of a caller.
        loops, bounds = (*scope.loops, *own), (*scope.bounds, *(None,) * len(own))
        limits = tuple((name, limit) for name, limit in scope.limits if name not in own)
        inner = replace(
            scope, integers=scope.integers + own, loops=loops, bounds=bounds, limits=limits, is_serial=False,
            in_function=True,
        )  # fmt: skip
        yield from self._visit(node.child_by_field_name("body"), inner)

    def _compound_statement(self, node: Any, scope: CppScope) -> Iterator[Site]:
        pragma = ""
        for child in node.named_children:
            if child.type == "preproc_call":
                pragma = self._text(child)
                yield from self._pragma(child, scope)
                continue
            inner = scope
            if "omp parallel" in pragma:
                inner = replace(scope, parallel=True)
            if child.type == "for_statement":
                yield from self._loop(child, inner, canonical=2 if "collapse(2)" in pragma else int("omp" in pragma))
            else:
                yield from self._visit(child, inner)
            if child.type != "comment":
                pragma = ""
            scope = self._declare(child, scope)

    def _declare(self, node: Any, scope: CppScope) -> CppScope:
        """Return the scope after a declaration of integers."""
        if node.type != "declaration":
            return scope
        declared = node.child_by_field_name("type")
        if declared is None or self._text(declared) not in INTEGER_TYPES:
            return scope
        names = [
            self._text(child.child_by_field_name("declarator"))
            for child in node.named_children
            if child.type == "init_declarator"
        ]
        plain = tuple(name for name in names if name.isidentifier())
        limits = scope.limits + tuple(
            (name, limit) for name in plain if (limit := self._limit(self._text(node), name)) is not None
        )
        return replace(scope, integers=scope.integers + plain, limits=limits)

    def _limit(self, declaration: str, name: str) -> int | None:
        """Return the largest value of a constant: the size of a block, or a minimum with a constant; None otherwise."""
        value = re.search(rf"\b{name} = ([^;]*)", declaration)
        if value is None or not declaration.startswith("const "):
            return None
        if re.match(r"[\w.()]*\bblock_size\(\w+\)(?:,|$)", value[1]):
            return BLOCK_SIZE
        least = re.match(r"std::min(?:<\w+>)?\((\w+), ", value[1])
        end = self._constants.get(least[1], "") if least else ""
        return int(end) if end else None

    def _pragma(self, node: Any, scope: CppScope) -> Iterator[Site]:
        """Yield a parallel region that is always or never entered, and loops with another schedule."""
        text = self._text(node).rstrip("\n")
        found = re.search(r"\bif \((.*)\)$", text)
        if found:
            start = node.start_byte + len(text[: found.start(1)].encode())
            end = start + len(found[1].encode())
            line = node.start_point[0] + 1
            alternatives = [Alternative("parallel", "true"), Alternative("parallel", "false")]
            yield Site(start, end, "pragma", line, found.start(1) + 1, (), alternatives, found[1])

    def _for_statement(self, node: Any, scope: CppScope) -> Iterator[Site]:
        yield from self._loop(node, scope, canonical=0)

    def _loop(self, node: Any, scope: CppScope, *, canonical: int) -> Iterator[Site]:
        """Yield the sites of a loop.

        The `canonical` outer loops belong to OpenMP, which requires ``var < bound``: only their bound may change.
        """
        initial, condition = node.child_by_field_name("initializer"), node.child_by_field_name("condition")
        update, body = node.child_by_field_name("update"), node.child_by_field_name("body")
        if initial is not None and not canonical:
            yield from self._children(initial, scope)
        variable = re.search(r"\w+", self._text(update).replace("++", "")) if update is not None else None
        name = variable[0] if variable else ""
        integers = scope.integers + ((name,) if name not in scope.integers else ())
        rounds = self._rounds(condition, name, self._text(body) if body is not None else "", scope)
        inner = replace(scope, integers=integers, loops=(*scope.loops, name), bounds=(*scope.bounds, rounds))
        # The condition is evaluated once more, after the last round.
        checked = replace(inner, bounds=(*scope.bounds, rounds + 1 if rounds is not None else None))
        if condition is not None and canonical:
            bound = condition.child_by_field_name("right")
            none = replace(scope, loops=(), bounds=())
            text = self._text(bound)
            yield from self._site(bound, "expression", none, [
                ("loop bound", f"{text} - 1"), ("loop bound", f"{text} + 1"),
                ("loop bound", f"std::min<int64_t>({text}, 64)"), ("loop bound", f"std::min<int64_t>({text}, 256)"),
            ])  # fmt: skip
            yield from self._children(bound, none)
        elif condition is not None:
            yield from self._checked(condition, body, checked)
            if condition.type == "binary_expression" and self._text(condition.children[1]) in ("<", "<="):
                bound = condition.child_by_field_name("right")
                text = self._text(bound)
                yield from self._site(bound, "expression", checked, [
                    ("loop bound", f"{text} - 1"), ("loop bound", f"std::min<int64_t>({text}, 64)"),
                    ("loop bound", f"std::min<int64_t>({text}, 1024)"),
                ])  # fmt: skip
        if body is not None and canonical > 1:
            nested = body if body.type == "for_statement" else body.named_children[0]
            yield from self._loop(nested, inner, canonical=canonical - 1)
        elif body is not None:
            yield from self._visit(body, inner)

    def _checked(self, condition: Any, body: Any, scope: CppScope) -> Iterator[Site]:
        """Yield the sites of a loop's condition.

        Where nothing in the body leaves the loop, the condition is never just true: a loop without an end can only
        crash or hang, whatever a case compares.
        """
        for site in self._visit(condition, scope):
            if (site.start, site.end) == (condition.start_byte, condition.end_byte) and not _leaves(body):
                site.alternatives = [a for a in site.alternatives if a.text != "true"]
            yield site

    def _rounds(self, condition: Any, name: str, body: str, scope: CppScope) -> int | None:
        """Return the number that ends a loop, or the limit of it, `BLOCKS` for blocks of a row, None if neither."""
        text = self._text(condition) if condition is not None else ""
        found = re.match(r"(?:\w+ <|\w+ \+ \d+ <=) ([^ ]+)(?= && |$)", text)
        end: str = self._constants.get(found[1], found[1]) if found else ""
        if end.isdigit():
            return int(end)
        if end in dict(scope.limits):
            return dict(scope.limits)[end]
        is_block = re.search(r"\bblocks(\(\))?$", end) or re.search(rf"\bblock(_size)?\({name}\b", body)
        return BLOCKS if is_block else None

    def _for_range_loop(self, node: Any, scope: CppScope) -> Iterator[Site]:
        yield from self._visit(node.child_by_field_name("body"), scope)

    def _case_statement(self, node: Any, scope: CppScope) -> Iterator[Site]:
        value = node.child_by_field_name("value")
        for child in node.named_children:
            if value is None or child.id != value.id:
                yield from self._visit(child, scope)

    def _if_statement(self, node: Any, scope: CppScope) -> Iterator[Site]:
        for child in node.named_children:
            if child.type == "condition_clause":
                yield from self._condition(child.child_by_field_name("value"), scope, ("true", "false"))
            yield from self._visit(child, scope)

    def _while_statement(self, node: Any, scope: CppScope) -> Iterator[Site]:
        condition = node.child_by_field_name("condition")
        yield from self._condition(condition.child_by_field_name("value"), scope, ("false",))
        yield from self._children(node, scope)

    def _condition(self, node: Any, scope: CppScope, constants: tuple[str, ...]) -> Iterator[Site]:
        if node is None or node.type in ("declaration", "init_declarator"):
            return
        text = self._text(node)
        changed = [("condition", constant) for constant in constants]
        if node.type != "binary_expression" and "true" in constants:
            changed.append(("condition", f"!({text})"))
        yield from self._site(node, "expression", scope, changed)

    def _expression_statement(self, node: Any, scope: CppScope) -> Iterator[Site]:
        text = self._text(node)
        inner = node.named_children[0] if node.named_children else None
        if inner is None or inner.type == "comma_expression":
            return
        changed = [("statement dropped", "")]
        if inner.type == "update_expression":
            swapped = text.replace("++", "--") if "++" in text else text.replace("--", "++")
            changed += [("statement doubled", f"{text} {text}"), ("arithmetic", swapped)]
        elif inner.type == "assignment_expression":
            operator = self._text(inner.children[1])
            left, right = self._text(inner.children[0]), self._text(inner.children[2])
            changed += [("arithmetic", f"{left} {new} {right};") for new in ASSIGNMENTS.get(operator, ())]
            if operator != "=":
                changed.append(("statement doubled", f"{text} {text}"))
        elif ".push_back(" in text:
            changed.append(("statement doubled", f"{text} {text}"))
        yield from self._site(node, "statement", scope, changed)
        yield from self._children(node, scope)

    def _assignment_expression(self, node: Any, scope: CppScope) -> Iterator[Site]:
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        yield from self._assigned(left, scope)
        yield from self._visit(right, scope)

    def _assigned(self, node: Any, scope: CppScope) -> Iterator[Site]:
        """Yield indices inside the left side of an assignment, which must stay an lvalue."""
        for child in node.named_children:
            if child.type in ("argument_list", "subscript_argument_list"):
                yield from self._visit(child, scope)
            else:
                yield from self._assigned(child, scope)

    def _update_expression(self, node: Any, scope: CppScope) -> Iterator[Site]:
        yield from self._assigned(node, scope)

    def _pointer_expression(self, node: Any, scope: CppScope) -> Iterator[Site]:
        yield from self._assigned(node, scope) if self._text(node).startswith("&") else self._children(node, scope)

    def _continue_statement(self, node: Any, scope: CppScope) -> Iterator[Site]:
        yield from self._site(node, "statement", scope, [("statement dropped", ""), ("jump", "break;")])

    def _break_statement(self, node: Any, scope: CppScope) -> Iterator[Site]:
        if node.parent is not None and node.parent.type != "case_statement":
            yield from self._site(node, "statement", scope, [("statement dropped", ""), ("jump", "continue;")])

    def _return_statement(self, node: Any, scope: CppScope) -> Iterator[Site]:
        if node.parent is not None and node.parent.type not in ("compound_statement", "case_statement"):
            yield from self._site(node, "statement", scope, [("statement dropped", "")])
        yield from self._children(node, scope)

    def _declaration(self, node: Any, scope: CppScope) -> Iterator[Site]:
        if "constexpr" in self._text(node).split("=")[0]:
            return
        yield from self._kept_locals(node, scope)
        declared = node.child_by_field_name("type")
        type_text = self._text(declared) if declared is not None else ""
        for child in node.named_children:
            if child.type == "function_declarator" and scope.in_function:
                yield from self._views(child, scope)
            if child.type != "init_declarator":
                continue
            value = child.child_by_field_name("value")
            if value is None:
                continue
            if scope.in_function and value.type not in ("argument_list", "initializer_list", "lambda_expression"):
                yield from self._initial(value, type_text, scope)
            yield from self._visit(value, scope)

    # Expressions.

    def _binary_expression(self, node: Any, scope: CppScope) -> Iterator[Site]:
        left, right = self._text(node.children[0]), self._text(node.children[2])
        operator = self._text(node.children[1])
        changed: list[tuple[str, str]] = []
        if operator in COMPARISONS:
            changed += [("comparison", f"{left} {new} {right}") for new in COMPARISONS[operator]]
            changed += [("condition", "true"), ("condition", "false")]
        elif operator in LOGICAL:
            changed += [("logical", f"{left} {LOGICAL[operator]} {right}")]
            changed += [("guard dropped", f"bool({left})"), ("guard dropped", f"bool({right})")]
        elif operator in ARITHMETIC:
            changed += [("arithmetic", f"{left} {new} {right}") for new in ARITHMETIC[operator]]
            changed += [("operand dropped", left), ("operand dropped", right)]
        yield from self._site(node, "expression", scope, changed)
        yield from self._children(node, scope)

    def _unary_expression(self, node: Any, scope: CppScope) -> Iterator[Site]:
        text = self._text(node)
        if text[0] in "!-~":
            operator = "condition" if text[0] == "!" else "arithmetic"
            inner = text[1:]
            changed = [(operator, f"bool({inner})" if text[0] == "!" else inner)]
            yield from self._site(node, "expression", scope, changed)
        yield from self._children(node, scope)

    def _number_literal(self, node: Any, scope: CppScope) -> Iterator[Site]:
        text = self._text(node)
        changed: list[str] = []
        if found := re.fullmatch(r"(0x[0-9A-Fa-f]+|\d+)([uUlL]*)", text):
            value, suffix = int(found[1], 0), found[2]
            changed = [f"{value + 1}{suffix}", *([f"{value - 1}{suffix}"] if value else [])]
            if value > 1:
                changed.append(f"0{suffix}")
            if self._is_modulus(node):  # a remainder of zero only ends the process
                changed = [new for new in changed if new != f"0{suffix}"]
        elif found := re.fullmatch(r"([\d.]+)(f?)", text):
            real = float(found[1])
            changed = [f"{new!r}{found[2]}" for new in ([real / 2, real * 2] if real else [1.0])]
        elif re.fullmatch(r"0x[\d.]+p[-+]\d+f?", text):
            changed = [f"2.0{text[-1] if text.endswith('f') else ''} * {text}"]
        yield from self._site(node, "expression", scope, [("constant", new) for new in changed])

    def _is_modulus(self, node: Any) -> bool:
        parent = node.parent
        is_binary = parent is not None and parent.type == "binary_expression"
        return is_binary and self._text(parent.children[1]) == "%" and parent.children[2] == node

    def _true(self, node: Any, scope: CppScope) -> Iterator[Site]:
        yield from self._site(node, "expression", scope, [("constant", "false")])

    def _false(self, node: Any, scope: CppScope) -> Iterator[Site]:
        yield from self._site(node, "expression", scope, [("constant", "true")])

    def _conditional_expression(self, node: Any, scope: CppScope) -> Iterator[Site]:
        condition, then, other = (self._text(child) for child in node.named_children[:3])
        yield from self._site(node, "expression", scope, [
            ("branch", then), ("branch", other), ("branch", f"({condition}) ? ({other}) : ({then})"),
        ])  # fmt: skip
        yield from self._children(node, scope)

    def _call_expression(self, node: Any, scope: CppScope) -> Iterator[Site]:
        function, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
        name, given = self._text(function), [a for a in arguments.named_children if a.type != "comment"]
        texts = [self._text(argument) for argument in given]
        changed: list[tuple[str, str]] = []
        for i in range(len(texts) - 1):
            if texts[i] != texts[i + 1]:
                swapped = [*texts[:i], texts[i + 1], texts[i], *texts[i + 2 :]]
                changed.append(("arguments exchanged", f"{name}({', '.join(swapped)})"))
        bare = re.sub(r"<[^<>]*>", "", name)
        if bare in ("std::min", "std::max") and len(texts) == 2:
            other = name.replace("min", "max") if "min" in bare else name.replace("max", "min")
            changed = [("bound", f"{other}({texts[0]}, {texts[1]})"), *(("bound dropped", text) for text in texts)]
        elif bare == "std::isnan":
            changed = [("condition", "false")]
        yield from self._site(node, "expression", scope, changed)
        if function.type == "field_expression":
            yield from self._visit(function.child_by_field_name("argument"), scope)
        yield from self._arguments(given, scope, index=function.type == "field_expression")

    def _subscript_expression(self, node: Any, scope: CppScope) -> Iterator[Site]:
        yield from self._visit(node.child_by_field_name("argument"), scope)
        indices = node.child_by_field_name("indices")
        if indices is not None:
            yield from self._arguments(indices.named_children, scope, index=True)

    def _arguments(self, arguments: list[Any], scope: CppScope, *, index: bool) -> Iterator[Site]:
        for argument in arguments:
            text = self._text(argument)
            if argument.type == "identifier" and text in scope.integers:
                changed = [("off by one", f"{text} - 1"), ("off by one", f"{text} + 1"), ("wrong index", "0")]
                others = [name for name in scope.integers if name != text][-3:]
                changed += [("wrong index", name) for name in others]
                same = f"std::decay_t<decltype({text})>"
                casted = [(operator, f"static_cast<{same}>({new})") for operator, new in changed]
                yield from self._site(argument, "expression", scope, casted if index else casted[:2])
            elif argument.type == "identifier" and text in scope.tensors:
                yield from self._view(argument, scope)
            else:
                yield from self._visit(argument, scope)

    # What batched kernels get wrong.

    def _views(self, declarator: Any, scope: CppScope) -> Iterator[Site]:
        """Yield the sites of ``Integers output(tensor)``, which parses like the declaration of a function."""
        for parameter in descendants(declarator, "parameter_declaration"):
            yield from self._view(parameter, scope)

    def _view(self, node: Any, scope: CppScope) -> Iterator[Site]:
        """Yield a tensor that is taken for a dense one, or for one of narrower elements."""
        text = self._text(node)
        if text not in scope.tensors:
            return
        yield from self._site(node, "expression", scope, [
            ("stride", f"verispec_mutants::packed({text})"), ("stride", f"verispec_mutants::transposed({text})"),
            ("width", f"verispec_mutants::narrow({text})"),
        ])  # fmt: skip

    def _initial(self, value: Any, type_text: str, scope: CppScope) -> Iterator[Site]:
        """Yield a local that is too narrow, or holds the value of an earlier step, request or call."""
        text = self._text(value)
        changed = []
        if type_text == "int64_t":
            changed.append(("narrow", f"static_cast<int64_t>(static_cast<int32_t>({text}))"))
        elif type_text == "double":
            changed.append(("narrow", f"static_cast<double>(static_cast<float>({text}))"))
        if value.type not in ("number_literal", "true", "false") and type_text in (
            "int64_t",
            "double",
            "bool",
            "float",
        ):
            changed.append(("stale", f"verispec_mutants::previous<@>(static_cast<{type_text}>({text}))"))
            changed.append(("stale", f"verispec_mutants::first<@>(static_cast<{type_text}>({text}))"))
        yield from self._site(value, "expression", scope, changed)

    def _kept_locals(self, node: Any, scope: CppScope) -> Iterator[Site]:
        """Yield a local that is not made anew: kept from before, or shared by all threads."""
        text = self._text(node)
        found = re.fullmatch(r"(int64_t|double|float|bool|Row|std::vector<[\w:]+>) (\w+)( = [^,;]+|\([^;]*\))?;", text)
        if not scope.in_function or not found or node.parent is None or node.parent.type != "compound_statement":
            return
        name = found[2]
        kept = [("stale", name, "verispec_mutants::kept<@>")]
        if scope.parallel:
            kept.append(("shared", name, "verispec_mutants::shared<@>"))
        alternatives = [Alternative(operator, function) for operator, _, function in kept]
        line, column = node.start_point[0] + 1, node.start_point[1] + 1
        yield Site(node.start_byte, node.end_byte, f"local {name}", line, column, scope.loops, alternatives, text)
