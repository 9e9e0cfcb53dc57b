"""Calls at the edge of every comparison of an oracle: equal, just below and just above.

The module records the oracle's comparisons, those of `min` and `max` among them. If an operand is an input value, the
input is set to the other operand, or to a neighbour of it. So is an input that is one more or less than the operand,
such as a number of columns whose last index is compared. The call is kept if the comparison then has the requested
result. A new op therefore gets its boundary cases from its oracle. Values that float32 cannot represent are omitted,
since an implementation that computes in float32 may decide them differently.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import sys
import textwrap
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

Call = dict[str, Any]
BESIDE = 2.0**-10
"""Relative distance of "just above" for reals: far above float32's rounding."""
MOST_ELEMENTS = 256
"""Elements of a comparison of arrays that are looked at."""
RELATIONS = ("below", "equal", "above")
OFFSETS = (0, 1, -1)
"""Differences of an input value and the operand that is computed from it."""
_COMPARED = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)


@dataclass(frozen=True, slots=True)
class Boundary:
    """A call in which comparison `site` of the oracle, written as `text`, has `relation`."""

    site: int
    text: str
    relation: str
    values: Call


@dataclass(slots=True)
class _Watch:
    """The operand pairs that each comparison saw in one run of the oracle."""

    seen: dict[int, list[tuple[float, float]]] = field(default_factory=dict)

    def compare(self, site: int, left: Any, right: Any, result: Any) -> Any:
        pairs = self.seen.setdefault(site, [])
        if len(pairs) < MOST_ELEMENTS:
            pairs += _numbers(left, right)
        return result


def boundaries(
    oracle: Callable[..., Any],
    base: list[Call],
    fixed: Collection[str] = (),
    most: int = 200,
    fits: Callable[[Call], bool] = lambda _: True,
    places: int = 1,
    rng: np.random.Generator | None = None,
) -> list[Boundary]:
    """Return calls at the boundary of every comparison of `oracle` that an input can reach.

    Args:
        oracle: The oracle's function.
        base: Calls to start from, by parameter name, NumPy arrays and scalars.
        fixed: Parameters that must stay: one value of them follows from others.
        most: Calls to return at most.
        fits: True for a changed call that still keeps to the contract. The oracle defines no other.
        places: maximum number of places of a comparison in a call, such as its steps and requests.
        rng: order in which places are tried; None for the order of the oracle.
    """
    watched, texts, watch = _watched(oracle)
    found: dict[tuple[int, str], list[Boundary]] = {}
    for values in base:
        seen = _run(watched, watch, values)
        for site, pairs in seen.items():
            for relation in RELATIONS:
                if len(found.get((site, relation), [])) >= places:
                    continue
                here = found.setdefault((site, relation), [])
                if any(_relation(*pair) == relation and _is_near(*pair) for pair in pairs):
                    here.append(Boundary(site, texts[site], relation, values))
                ordered = pairs if rng is None else [pairs[i] for i in rng.permutation(len(pairs))]
                for changed in _attempts(values, ordered, relation, fixed) if len(here) < places else ():
                    again = _run(watched, watch, changed).get(site, []) if fits(changed) else []
                    if any(_relation(*pair) == relation and _is_near(*pair) for pair in again):
                        here.append(Boundary(site, texts[site], relation, changed))
                        if len(here) >= places:
                            break
                if sum(map(len, found.values())) >= most:
                    return [boundary for group in found.values() for boundary in group]
    return [boundary for group in found.values() for boundary in group]


def _run(watched: Callable[..., Any], watch: _Watch, values: Call) -> dict[int, list[tuple[float, float]]]:
    watch.seen = {}
    copied = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in values.items()}
    try:
        watched(**copied)
    except (IndexError, ValueError, AssertionError, ZeroDivisionError, OverflowError):
        return {}  # A changed value left the contract.
    return watch.seen


def _relation(left: float, right: float) -> str:
    return "below" if left < right else "above" if left > right else "equal"


def _is_near(left: float, right: float) -> bool:
    """Return True if two operands are equal or neighbours and float32 represents both."""
    if not (np.isfinite(left) and np.isfinite(right)):
        return False
    if left != int(left) or right != int(right):
        if float(np.float32(left)) != left or float(np.float32(right)) != right:
            return False
        return abs(left - right) <= 4 * BESIDE * max(abs(left), abs(right))
    return abs(left - right) <= 1


def _numbers(left: Any, right: Any) -> list[tuple[float, float]]:
    try:
        a, b = np.broadcast_arrays(np.asarray(left), np.asarray(right))
        if a.dtype.kind not in "iufb" or b.dtype.kind not in "iufb":
            return []
        flat = zip(a.reshape(-1)[:MOST_ELEMENTS].tolist(), b.reshape(-1)[:MOST_ELEMENTS].tolist(), strict=True)
        return [(float(x), float(y)) for x, y in flat]
    except (TypeError, ValueError):
        return []


def _attempts(values: Call, pairs: list[tuple[float, float]], relation: str, fixed: Collection[str]) -> Iterator[Call]:
    """Yield calls with one input value replaced so that an observed pair would stand in `relation`."""
    for offset in OFFSETS:
        yield from itertools.islice(_replaced(values, pairs[:24], relation, fixed, offset), 40)


def _replaced(
    values: Call, pairs: list[tuple[float, float]], relation: str, fixed: Collection[str], offset: int
) -> Iterator[Call]:
    """Yield the attempts at inputs that are `offset` more than an operand."""
    for left, right in dict.fromkeys(pairs):
        for old, target, sign in ((left, right, 1), (right, left, -1)):
            if not np.isfinite(target) or (offset and not (old.is_integer() and target.is_integer())):
                continue
            for name, index in _places(values, old + offset):
                new = None if name in fixed else _beside(values[name], target, relation, sign)
                if new is not None and new != old:
                    yield _with(values, name, index, new + offset)


def _beside(value: Any, target: float, relation: str, sign: int) -> Any:
    """Return the replacement of an operand; `sign` is -1 for the right one."""
    step = {"below": -1, "equal": 0, "above": 1}[relation] * sign
    is_real = isinstance(value, float) or (isinstance(value, np.ndarray) and value.dtype.kind == "f")
    if isinstance(value, bool) or (isinstance(value, np.ndarray) and value.dtype.kind == "b"):
        return None
    if is_real:
        return float(np.float32(target * (1 + step * BESIDE) if target else step * BESIDE))
    return int(target) + step if target == int(target) else None


def _places(values: Call, old: float) -> Iterator[tuple[str, Any]]:
    """Return the places of `old` in the inputs, at most three per input."""
    for name, value in values.items():
        if isinstance(value, np.ndarray):
            if value.dtype.kind in "iuf":
                for index in np.argwhere(value == old)[:3]:
                    yield name, tuple(int(i) for i in index)
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and value == old:
            yield name, None


def _with(values: Call, name: str, index: Any, new: Any) -> Call:
    changed = dict(values)
    if index is None:
        changed[name] = type(values[name])(new)
    else:
        changed[name] = values[name].copy()
        changed[name][index] = new
    return changed


@cache
def _watched(oracle: Callable[..., Any]) -> tuple[Callable[..., Any], dict[int, str], _Watch]:
    """Return the oracle with recorded comparisons, the comparisons' texts, and the recorder."""
    module = sys.modules[oracle.__module__]
    tree = ast.parse(textwrap.dedent(inspect.getsource(module)))
    texts: dict[int, str] = {}
    ast.fix_missing_locations(_Watcher(texts).visit(tree))
    watch = _Watch()
    fresh = ModuleType(module.__name__)
    fresh.__dict__.update({k: v for k, v in vars(module).items() if k.startswith("__")})
    fresh.__dict__["_compared"] = watch.compare
    sys.modules[module.__name__] = fresh  # dataclasses look their module up
    try:
        exec(compile(tree, str(module.__file__), "exec"), fresh.__dict__)
    finally:
        sys.modules[module.__name__] = module
    function: Callable[..., Any] = getattr(fresh, oracle.__name__)
    return function, texts, watch


class _Watcher(ast.NodeTransformer):
    """Wraps comparisons of numbers: ``a < b`` becomes ``_compared(site, a, b, a < b)``, ``min(a, b)`` likewise."""

    def __init__(self, texts: dict[int, str]) -> None:
        self._texts = texts

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        text = ast.unparse(node)
        self.generic_visit(node)
        if not all(isinstance(operator, _COMPARED) for operator in node.ops):
            return node
        operands = [node.left, *node.comparators]
        parts = [
            self._compared(text, left, right, ast.Compare(left, [operator], [right]))
            for left, operator, right in zip(operands[:-1], node.ops, operands[1:], strict=True)
        ]
        return parts[0] if len(parts) == 1 else ast.BoolOp(ast.And(), parts)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        text = ast.unparse(node)
        self.generic_visit(node)
        wrapped: ast.expr = node
        if isinstance(node.func, ast.Name) and node.func.id in ("min", "max") and not node.keywords:
            for left, right in itertools.pairwise(node.args):
                wrapped = self._compared(text, left, right, wrapped)
        return wrapped

    def _compared(self, text: str, left: ast.expr, right: ast.expr, result: ast.expr) -> ast.expr:
        site = len(self._texts)
        self._texts[site] = text
        return ast.Call(ast.Name("_compared", ast.Load()), [ast.Constant(site), left, right, result], [])
