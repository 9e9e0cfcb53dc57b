"""Lines of a Python file that run for some versions of the host only, or whose TypeError is caught."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any, Final

from verispec.static.facts import Guard
from verispec.static.readers.expressions import dotted
from verispec.static.readers.scope import FUNCTIONS

_OPERATORS: Final = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_VERSION: Final = re.compile(r"v?\d+(?:\.\d+)+\S*")
_EQUAL: Final = re.compile(r"(?:^|_)(?:is|is_version|version_equal|is_equal)$")
_AT_LEAST: Final = re.compile(r"(?:at_least|_gte|_ge|or_newer|since)$")
_BELOW: Final = re.compile(r"(?:_lt|older_than|before)$")
_OTHERS: Final = re.compile(r"torch|triton|cuda|rocm|hip|python|sys|transformers|numpy|cann|driver|gcc|arch|capability")
_PLATFORM: Final = re.compile(r"(?:^|[._])is_(xpu|hpu|tpu|npu|rocm|hip|musa|neuron|cpu|cuda)$")
Names = dict[str, tuple[Any, ...]]
"""Version tests by the names that hold them."""

_SIMPLE: Final = frozenset({ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Import, ast.ImportFrom})
"""The commonest statements, which contain no others."""

_LEAVES: Final = (ast.Return, ast.Raise, ast.Continue, ast.Break)


def read_guards(tree: ast.Module) -> tuple[Guard, ...]:
    """Return the guarded lines of the file `tree`, without tests of the versions of packages other than the host."""
    return tuple(_guards(tree.body, _named_tests(tree.body)))


def _named_tests(statements: list[ast.stmt]) -> Names:
    """Return the module-level names that hold a version test: ``IS_NEW = not core_is("1.0")``."""
    names: Names = {}
    for statement in statements:
        if isinstance(statement, ast.Assign):
            test = version_test(statement.value, names)
            for target in statement.targets if test else ():
                names[dotted(target)] = test or ()
        elif isinstance(statement, ast.If) and (test := version_test(statement.test, names)):
            here, there = dict(_constants(statement.body)), dict(_constants(statement.orelse))
            for name in {*here, *there}:
                names[name] = _chosen(test, here.get(name), there.get(name))
    return names


def _chosen(test: tuple[Any, ...], here: bool | None, there: bool | None) -> tuple[Any, ...]:
    """Return the test for a name that is `here` where `test` holds and `there` elsewhere; None is not known."""
    if here is None or there is None:
        inside, value = (("not", test), there) if here is None else (test, here)
        return ("or", inside, ()) if value else ("and", ("not", inside), ())
    if here == there:
        return ()
    return test if here else ("not", test)


def _constants(block: list[ast.stmt]) -> Iterator[tuple[str, bool]]:
    for statement in block:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant):
            for target in statement.targets:
                if isinstance(statement.value.value, bool):
                    yield dotted(target), statement.value.value


def _guards(statements: list[ast.stmt], names: Names) -> Iterator[Guard]:
    blocks = [statements]
    while blocks:
        block = blocks.pop()
        looked_up: dict[str, str] = {}
        for number, statement in enumerate(block):
            if type(statement) in _SIMPLE:
                looked_up |= _looked_up(statement)
                continue
            if isinstance(statement, ast.If):
                rest = block[number + 1 :]
                yield from _of_if(statement, rest, names)
                if rest and isinstance(statement.body[-1], _LEAVES):
                    yield from (_lines(rest, "hasattr", (name,)) for name in _lacking(statement.test, looked_up))
                platform = _PLATFORM.search(dotted(getattr(statement.test, "func", None) or _first(statement.test)))
                if platform:
                    yield _lines(statement.body, "platform", (platform[1],))
                yield from (_lines(statement.body, "hasattr", (name,)) for name in _asked(statement.test, looked_up))
                blocks += [statement.body, statement.orelse]
            elif isinstance(statement, ast.Try):
                if any(_catches_type_error(handler.type) for handler in statement.handlers):
                    yield _lines(statement.body, "try")
                if statement.handlers:
                    yield _lines(statement.body, "caught")
                blocks += [statement.body, statement.orelse, statement.finalbody, *(h.body for h in statement.handlers)]
            elif isinstance(statement, (ast.With, ast.AsyncWith)):
                suppressed = [name for item in statement.items for name in _suppressed(item.context_expr)]
                if not {"TypeError", "Exception"}.isdisjoint(suppressed):
                    yield _lines(statement.body, "try")
                if suppressed:
                    yield _lines(statement.body, "caught")
                blocks.append(statement.body)
            elif isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
                blocks.append(statement.body)
            elif isinstance(statement, (ast.For, ast.AsyncFor, ast.While)):
                blocks += [statement.body, statement.orelse]


def _first(test: ast.expr) -> ast.expr | None:
    """Return the first callee of ``a() and b``."""
    first = test.values[0] if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else None
    return first.func if isinstance(first, ast.Call) else None


def _looked_up(statement: ast.stmt) -> dict[str, str]:
    """Return the attribute behind each name that `statement` sets: ``old = getattr(module, "name", None)``."""
    value = statement.value if isinstance(statement, ast.Assign) else None
    if not isinstance(statement, ast.Assign) or not isinstance(value, ast.Call):
        return {}
    name = value.args[1] if dotted(value.func) == "getattr" and len(value.args) == 3 else None
    if not isinstance(name, ast.Constant) or not isinstance(name.value, str):
        return {}
    return {dotted(target): name.value for target in statement.targets}


def _asked(test: ast.expr, looked_up: dict[str, str]) -> Iterator[str]:
    """Yield the names that a condition needs: ``hasattr(module, "name") and ...``, or a name that was looked up."""
    for part in test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]:
        if isinstance(part, ast.Call) and dotted(part.func) == "hasattr" and len(part.args) == 2:
            name = part.args[1].value if isinstance(part.args[1], ast.Constant) else None
            if isinstance(name, str):
                yield name
        elif isinstance(part, ast.Compare) and isinstance(part.ops[0], ast.IsNot) and _is_none(part.comparators[0]):
            yield from filter(None, [looked_up.get(dotted(part.left))])
        else:
            yield from filter(None, [looked_up.get(dotted(part))])


def _lacking(test: ast.expr, looked_up: dict[str, str]) -> Iterator[str]:
    """Yield the names of which one is missing if a condition holds: ``not hasattr(module, "name") or ...``."""
    for part in test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or) else [test]:
        if isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.Not):
            yield from _asked(part.operand, looked_up)
        elif isinstance(part, ast.Compare) and isinstance(part.ops[0], ast.Is) and _is_none(part.comparators[0]):
            yield from filter(None, [looked_up.get(dotted(part.left))])


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _of_if(statement: ast.If, rest: list[ast.stmt], names: Names) -> Iterator[Guard]:
    test = version_test(statement.test, names)
    if test is None:
        return
    yield _lines(statement.body, "version", test)
    opposite = ("not", test) if test else ()
    if statement.orelse:
        yield _lines(statement.orelse, "version", opposite)
    elif rest and isinstance(statement.body[-1], _LEAVES):
        yield _lines(rest, "version", opposite)


def _lines(block: list[ast.stmt], kind: str, test: tuple[Any, ...] = ()) -> Guard:
    first = min(
        [block[0].lineno, *(d.lineno for d in getattr(block[0], "decorator_list", ()))],
    )
    return Guard(first, block[-1].end_lineno or block[-1].lineno, kind, test)


def version_test(node: ast.expr, names: Names) -> tuple[Any, ...] | None:
    """Return `node` as a test of the host's version, () for a test that cannot be read, None for any other.

    Args:
        node: a condition.
        names: module-level names that hold such tests.
    """
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        inner = version_test(node.operand, names)
        return ("not", inner) if inner else inner
    if isinstance(node, ast.BoolOp):
        parts = [version_test(value, names) for value in node.values]
        if all(part is None for part in parts):
            return None
        return ("and" if isinstance(node.op, ast.And) else "or", *(part or () for part in parts))
    if isinstance(node, ast.Call):
        return _predicate(node)
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return _comparison(node.left, type(node.ops[0]), node.comparators[0])
    text = dotted(node)
    return names[text] if text in names else () if "version" in text.lower() else None


def _predicate(node: ast.Call) -> tuple[Any, ...] | None:
    name = dotted(node.func).rpartition(".")[2].lower()
    argument = node.args[0].value if len(node.args) == 1 and isinstance(node.args[0], ast.Constant) else None
    if not isinstance(argument, str) or not _VERSION.fullmatch(argument):
        return () if "version" in name else None
    if not _OTHERS.search(name):
        for pattern, operator in ((_EQUAL, "=="), (_AT_LEAST, ">="), (_BELOW, "<")):
            if pattern.search(name):
                return operator, argument
    return ()


def _comparison(left: ast.expr, kind: type[ast.cmpop], right: ast.expr) -> tuple[Any, ...] | None:
    texts = [_inner(left), _inner(right)]
    if not any("version" in text.lower() for text in texts):
        return None
    operator = _OPERATORS.get(kind, "")
    literal = next((number for number, text in enumerate(texts) if _VERSION.fullmatch(text)), None)
    if literal is None or not operator:
        return ()
    if _OTHERS.search(texts[1 - literal].lower()):
        return ()
    return operator if literal else _MIRRORED.get(operator, operator), texts[literal]


def _inner(node: ast.expr) -> str:
    """Return the name on a side of a comparison; unwrap ``Version("0.24.0")`` and ``parse(vllm.__version__)``."""
    while isinstance(node, ast.Call) and len(node.args) == 1:
        node = node.args[0]
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else dotted(node)


def _catches_type_error(node: ast.expr | None) -> bool:
    names = node.elts if isinstance(node, ast.Tuple) else [node]
    return any(dotted(name) == "TypeError" for name in names)


def _suppressed(node: ast.expr) -> list[str]:
    """Return the errors that ``suppress(...)`` catches."""
    is_suppress = isinstance(node, ast.Call) and dotted(node.func).endswith("suppress")
    return [dotted(argument) for argument in node.args] if is_suppress and isinstance(node, ast.Call) else []
