"""Binding and validation of a call by its contract, for every kernel of the reference.

Tensors may be torch's or NumPy's; neither is imported here before a tensor of it was passed. The
values of counts are looked at on the CPU only: elsewhere that would wait for the device.
"""

from __future__ import annotations

import inspect
import operator
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from verispec.reference.contracts._model import REQUIRED, Contract, Cumulative, Scalar, Tensor
from verispec.reference.contracts._view import View, injective, share_memory, span, view_of

_MISSING: Final = object()
_TENSOR: Final = "a strided torch tensor or an aligned NumPy array of native byte order"


class ContractError(TypeError, ValueError):
    """A call that breaks its op's contract; both a TypeError and a ValueError, since a caller may expect either."""

    def __init__(self, op: str, parameter: str, expected: str, got: str) -> None:
        self.op, self.parameter, self.expected, self.got = op, parameter, expected, got
        super().__init__(f"{op}: {parameter}: expected {expected}, got {got}")

    def __reduce__(self) -> tuple[Any, ...]:
        return ContractError, (self.op, self.parameter, self.expected, self.got)


def bind(contract: Contract, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments by parameter name, with defaults. Parameters that only tune may be left out.

    Raises ContractError for a parameter that is missing, unknown or given twice.
    """
    plan = _plan(contract)
    if len(args) > len(plan.names):
        raise ContractError(contract.name, "arguments", f"at most {len(plan.names)}", f"{len(args)} positional ones")
    bound = dict(zip(plan.names, args, strict=False))
    for name, value in kwargs.items():
        if name in bound:
            raise ContractError(contract.name, name, "one value", "it by position and by keyword")
        if name not in plan.defaults:
            raise ContractError(contract.name, name, f"a parameter among {', '.join(plan.names)}", "this name")
        bound[name] = value
    if len(bound) < len(plan.names):
        for name, default in plan.defaults.items():
            if name not in bound and default is not _MISSING:
                if default is REQUIRED:
                    raise ContractError(contract.name, name, "a value", "none: the argument is missing")
                bound[name] = default
    return bound


def signature(contract: Contract) -> inspect.Signature:
    """The contract's parameters as a Python signature, for whoever inspects a kernel."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Signature(
        [
            inspect.Parameter(p.name, kind, default=inspect.Parameter.empty if p.default is REQUIRED else p.default)
            for p in contract.params
        ]
    )


def check(contract: Contract, bound: Mapping[str, Any], device: str = "") -> dict[str, Any]:
    """Raise ContractError unless `bound` fits the contract: types, dtypes, shapes, devices, counts and overlap.

    `device` is the kind of device that the kernel runs on (``"cpu"``, ``"cuda"``); without it, all
    tensors must only agree. Returns the scalars as plain Python numbers and the tensors as `View`.
    """
    plan = _plan(contract)
    sizes: dict[str, int] = {}
    seen: dict[str, Any] = {}
    for scalar in plan.scalars:
        if scalar.name in bound:
            seen[scalar.name] = value = _scalar(contract, scalar, bound[scalar.name])
            if isinstance(value, int):
                sizes[scalar.name] = value
                if scalar.axis:
                    sizes[scalar.axis] = value
    views: dict[str, View] = {}
    for tensor in plan.tensors:
        seen[tensor.name] = view = _view(contract, tensor, bound[tensor.name], bound)
        if view is not None:
            views[tensor.name] = view
            device = device or view.device
            if view.device != device:
                raise ContractError(contract.name, tensor.name, f"a tensor on {device}", f"one on {view.device}")
    _check_shapes(contract, plan, views, sizes)
    for scalar in plan.related:
        if scalar.name in bound:
            _check_related(contract, scalar, seen[scalar.name], views, sizes)
    if device == "cpu":
        for tensor in plan.counted:
            if tensor.name in views:
                used = plan.axes[tensor.name][0].value(sizes)
                counts = _numpy(bound[tensor.name])[:used]
                if used and tensor.cumulative:
                    _check_cumulative(contract, tensor, tensor.cumulative, counts, sizes)
                if used and tensor.within:
                    _check_within(contract, tensor, counts, _numpy(bound[tensor.within])[: used + 1])
    _check_overlap(contract, plan, views)
    return seen


# Contracts are compiled once: what is on a kernel's path looks nothing up in them.


class _Axis(NamedTuple):
    """One entry of a shape: the sum of `terms`, each a sign and factors that are axes or numbers."""

    text: str
    at_least: bool
    terms: tuple[tuple[int, tuple[str | int, ...]], ...]

    def value(self, sizes: Mapping[str, int]) -> int:
        total = 0
        for sign, factors in self.terms:
            product = sign
            for factor in factors:
                product *= factor if isinstance(factor, int) else sizes[factor]
            total += product
        return total


@dataclass(frozen=True, slots=True)
class _Plan:
    contract: Contract
    names: tuple[str, ...]
    defaults: dict[str, Any]
    scalars: tuple[Scalar, ...]
    related: tuple[Scalar, ...]
    tensors: tuple[Tensor, ...]
    written: frozenset[str]
    aliases: frozenset[tuple[str, str]]
    counted: tuple[Tensor, ...]
    axes: dict[str, tuple[_Axis, ...]]
    solved: tuple[tuple[str, str, int, int], ...]
    """Dimensions that are one axis and a constant: axis, tensor, dimension, constant."""
    bounded: tuple[tuple[str, int, _Axis], ...]
    """All other dimensions: tensor, dimension, expression."""
    like: tuple[Tensor, ...]


_plans: dict[int, _Plan] = {}


def _plan(contract: Contract) -> _Plan:
    # By identity: hashing a contract would cost more than the check. The plan keeps its contract alive.
    plan = _plans.get(id(contract))
    if plan is None:
        plan = _plans[id(contract)] = _compile(contract)
    return plan


def _compile(contract: Contract) -> _Plan:
    scalars = tuple(p for p in contract.params if isinstance(p, Scalar))
    axes = {t.name: tuple(_parse(str(axis)) for axis in t.shape) for t in contract.tensors}
    solved: list[tuple[str, str, int, int]] = []
    bounded: list[tuple[str, int, _Axis]] = []
    # Inputs come first, so that a wrong output is blamed and not the inputs that agree.
    for tensor in sorted(contract.tensors, key=lambda t: t.written):
        for dimension, axis in enumerate(axes[tensor.name]):
            (_, first), *rest = axis.terms
            constants = [sign * factors[0] for sign, factors in rest if isinstance(factors[0], int)]
            if not axis.at_least and len(first) == 1 and isinstance(first[0], str) and len(constants) == len(rest):
                solved.append((first[0], tensor.name, dimension, sum(constants)))
            else:
                bounded.append((tensor.name, dimension, axis))
    return _Plan(
        contract=contract,
        names=tuple(p.name for p in contract.params),
        defaults={
            p.name: _MISSING if isinstance(p, Scalar) and p.tuning and p.default is REQUIRED else p.default
            for p in contract.params
        },
        scalars=scalars,
        related=tuple(s for s in scalars if s.stride_of or s.like or isinstance(s.minimum, str)),
        tensors=contract.tensors,
        written=frozenset(t.name for t in contract.outputs),
        aliases=frozenset((t.name, t.may_alias) for t in contract.tensors if t.may_alias),
        counted=tuple(t for t in contract.tensors if t.cumulative or t.within),
        axes=axes,
        solved=tuple(solved),
        bounded=tuple(bounded),
        like=tuple(t for t in contract.tensors if t.like),
    )


def _parse(text: str) -> _Axis:
    terms = [
        (-1 if sign == "-" else 1, tuple(int(f) if f.isdigit() else f for f in term.split("*")))
        for sign, term in re.findall(r"([+-]?)([^+-]+)", text.removeprefix(">="))
    ]
    return _Axis(text, text.startswith(">="), tuple(terms))


def _scalar(contract: Contract, scalar: Scalar, value: Any) -> Any:
    """`value` as a plain Python number of the scalar's type."""
    if value is None and scalar.optional:
        return None
    kind = scalar.type
    plain = value
    if type(value) is not kind:
        # bool is an int to Python and a mistake to us, and the other way round.
        is_bool = isinstance(value, bool) or type(value).__name__ == "bool"
        try:
            if kind is bool:
                plain = bool(value) if is_bool else _MISSING
            elif kind is int:
                plain = _MISSING if is_bool else operator.index(value)
            elif kind is float:
                plain = _MISSING if isinstance(value, str) else float(value)
                if isinstance(value, int) and plain != value:
                    plain = _MISSING
            elif kind is list:
                plain = list(value)
        except (TypeError, ValueError):
            plain = _MISSING
        if plain is _MISSING:
            raise ContractError(contract.name, scalar.name, _article(kind.__name__), repr(value))
    minimum = scalar.minimum
    if minimum is not None and not isinstance(minimum, str) and not plain >= minimum:
        raise ContractError(contract.name, scalar.name, f"at least {minimum}", repr(value))
    return plain


def _check_related(
    contract: Contract, scalar: Scalar, value: Any, views: Mapping[str, View], sizes: Mapping[str, int]
) -> None:
    if scalar.stride_of in views:
        stride = views[scalar.stride_of].strides[0]
        if value != stride:
            expected = f"{stride}, the first stride of {scalar.stride_of} in elements"
            raise ContractError(contract.name, scalar.name, expected, str(value))
    if scalar.like in views:
        dtype = views[scalar.like].dtype
        if not dtype.startswith(("float", "bfloat")) and not _holds(dtype, value):
            raise ContractError(contract.name, scalar.name, f"a value that {dtype} holds exactly", repr(value))
    if isinstance(scalar.minimum, str) and value < sizes[scalar.minimum]:
        expected = f"at least {sizes[scalar.minimum]}, the {contract.axes[scalar.minimum]}"
        raise ContractError(contract.name, scalar.name, expected, str(value))


def _holds(dtype: str, value: float) -> bool:
    if dtype == "bool":
        return value in (0, 1)
    bits = {"uint8": 8, "int32": 31, "int64": 63}[dtype]
    low = 0 if dtype == "uint8" else -(2**bits)
    return float(value).is_integer() and low <= int(value) < 2**bits


def _view(contract: Contract, tensor: Tensor, value: Any, bound: Mapping[str, Any]) -> View | None:
    if value is None:
        flag = tensor.required_if.removeprefix("not ")
        if tensor.optional and (not flag or bool(bound[flag]) == (flag != tensor.required_if)):
            return None
        why = f" with {flag}={bound[flag]}" if tensor.optional else ""
        raise ContractError(contract.name, tensor.name, f"a tensor{why}", "None")
    view = view_of(value)
    if view is None:
        raise ContractError(contract.name, tensor.name, _TENSOR, type(value).__name__)
    if view.dtype not in tensor.dtypes:
        raise ContractError(contract.name, tensor.name, f"dtype {' or '.join(tensor.dtypes)}", view.dtype)
    rank = len(tensor.shape)
    if len(view.shape) != rank and not (tensor.shape[-1] == 1 and len(view.shape) == rank - 1):
        raise ContractError(contract.name, tensor.name, f"shape {_shape(tensor.shape)}", _shape(view.shape))
    if tensor.written and not _writeable(value):
        raise ContractError(contract.name, tensor.name, "memory that may be written", "a read-only array")
    return view


def _writeable(value: Any) -> bool:
    flags = getattr(value, "flags", None)
    return flags is None or bool(flags.writeable)


def _check_shapes(contract: Contract, plan: _Plan, views: Mapping[str, View], sizes: dict[str, int]) -> None:
    for axis, name, dimension, offset in plan.solved:
        if name in views:
            size = views[name].shape[dimension] - offset
            if sizes.setdefault(axis, size) != size:
                raise _odd_one_out(plan, axis, views, sizes)
    for name, dimension, entry in plan.bounded:
        if name in views and dimension < len(views[name].shape):
            got, want = views[name].shape[dimension], entry.value(sizes)
            if got < want if entry.at_least else got != want:
                raise _wrong_shape(plan, name, views, sizes)
    for tensor in plan.like:
        if tensor.name in views and views[tensor.name].dtype != views[tensor.like].dtype:
            expected = f"the dtype of {tensor.like}, {views[tensor.like].dtype}"
            raise ContractError(contract.name, tensor.name, expected, views[tensor.name].dtype)


def _odd_one_out(plan: _Plan, axis: str, views: Mapping[str, View], sizes: dict[str, int]) -> ContractError:
    """Tensors disagree on a size: a scalar is right, else most tensors are."""
    votes = {name: views[name].shape[i] - offset for a, name, i, offset in plan.solved if a == axis and name in views}
    if not any(scalar.axis == axis for scalar in plan.scalars):
        sizes[axis] = Counter(votes.values()).most_common(1)[0][0]
    return _wrong_shape(plan, next(name for name, size in votes.items() if size != sizes[axis]), views, sizes)


def _wrong_shape(plan: _Plan, name: str, views: Mapping[str, View], sizes: Mapping[str, int]) -> ContractError:
    axes = plan.axes[name]
    scalars = {s.axis: s.name for s in plan.scalars if s.axis}
    origin: dict[str, str] = {}
    for axis, source, dimension, offset in plan.solved:
        if source in views and views[source].shape[dimension] - offset == sizes.get(axis):
            origin.setdefault(axis, source)
    words = {w for axis in axes for _, factors in axis.terms for w in factors if isinstance(w, str)}
    sources = [f"{w} is {sizes[w]}" + _from(scalars.get(w) or origin.get(w)) for w in sorted(words & sizes.keys())]
    want = [f"{'>=' if a.at_least else ''}{a.value(sizes)}" for a in axes]
    expected = f"shape {_shape([a.text for a in axes])} = {_shape(want)}" + f" ({', '.join(sources)})" * bool(sources)
    return ContractError(plan.contract.name, name, expected, _shape(views[name].shape))


def _from(source: str | None) -> str:
    return f" from {source}" if source else ""


def _shape(entries: Sequence[object]) -> str:
    return f"[{', '.join(str(e) for e in entries)}]"


def _article(word: str) -> str:
    return f"an {word}" if word[0] in "aeiou" else f"a {word}"


def _numpy(value: Any) -> Any:
    return value if hasattr(value, "ctypes") else value.numpy()


def _check_cumulative(
    contract: Contract, tensor: Tensor, rule: Cumulative, counts: Any, sizes: Mapping[str, int]
) -> None:
    first, last = int(counts[0]), int(counts[-1])
    limit = sizes[rule.limit] if rule.limit else last
    step = sizes[rule.step] if rule.step else 2 ** (8 * counts.itemsize - 1) - 1
    steps = counts[1:] - counts[:-1]
    # As unsigned numbers falls are larger than any step, so one maximum finds both.
    if 0 <= first <= step and last <= limit and int(steps.view(f"u{counts.itemsize}").max(initial=0)) <= step:
        return
    expected = f"steps of at most {step}, the {contract.axes.get(rule.step, rule.step)}"
    got = f"one of {max(first, int(steps.max(initial=0)))}"
    if first < 0:
        expected, got = "counts from 0 up", f"{first} at [0]"
    elif (steps < 0).any():
        at = int(steps.argmin()) + 1
        expected, got = "sums that never fall", f"{int(counts[at])} after {int(counts[at - 1])} at [{at}]"
    elif last > limit:
        expected = f"sums of at most {limit}, the {contract.axes.get(rule.limit, rule.limit)}"
        got = f"{last} at [{len(counts) - 1}]"
    raise ContractError(contract.name, tensor.name, expected, got)


def _check_within(contract: Contract, tensor: Tensor, values: Any, starts: Any) -> None:
    outside = (values < starts[:-1]) | (values >= starts[1:])
    if outside.any():
        at = int(outside.argmax())
        expected = f"a value from {int(starts[at])} to {int(starts[at + 1]) - 1} at [{at}], by {tensor.within}"
        raise ContractError(contract.name, tensor.name, expected, str(int(values[at])))


def _check_overlap(contract: Contract, plan: _Plan, views: Mapping[str, View]) -> None:
    """No output shares memory with another tensor, nor two of its elements with each other."""
    spans = []
    for name, view in views.items():
        if 0 not in view.shape:
            if not view.dense and name in plan.written and not injective(view):
                got = f"shape {_shape(view.shape)} with strides {_shape(view.strides)}"
                raise ContractError(contract.name, name, "memory of its own for every element", got)
            spans.append(span(view))
    spans.sort()
    end = 0
    for low, high in spans:
        if low < end:
            _check_pairs(contract, plan, views)
            return
        end = high


def _check_pairs(contract: Contract, plan: _Plan, views: Mapping[str, View]) -> None:
    """Every output against every other tensor, exactly: interleaved views of one buffer are fine."""
    for name in plan.written & views.keys():
        for other, view in views.items():
            if other == name or not share_memory(views[name], view):
                continue
            same = views[name][:4] == view[:4]
            if not (same and ((name, other) in plan.aliases or (other, name) in plan.aliases)):
                got = "the same memory" if same else "memory that both share"
                raise ContractError(contract.name, name, f"memory of its own, apart from {other}", got)
