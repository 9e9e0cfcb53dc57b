"""Argument binding and validation by contract, for every kernel of the reference.

Tensors may be torch's or NumPy's. This module imports neither. It reads the values of counts on the CPU only, because
reading them from another device would wait for it.
"""

from __future__ import annotations

import inspect
import operator
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from verispec.reference.contracts._axes import parse
from verispec.reference.contracts._compiled import MISSING, CompiledContract, Layout, plan_of
from verispec.reference.contracts._model import REQUIRED, Contract, Cumulative, Scalar, Tensor
from verispec.reference.contracts._view import TensorView, injective, share_memory, span, view_of

_COMPARED: Final = frozenset({int, float, bool, type(None), type(MISSING)})
_MOST_KNOWN: Final = 256
_FEW: Final = 64
"""Counts for which plain Python is faster than NumPy."""
_TENSOR: Final = "a strided torch tensor or an aligned NumPy array of native byte order"


class ContractError(TypeError, ValueError):
    """Raised for a call that breaks its op's contract; a TypeError and a ValueError, as callers may expect either."""

    def __init__(self, op: str, parameter: str, expected: str, got: str) -> None:
        self.op, self.parameter, self.expected, self.got = op, parameter, expected, got
        super().__init__(f"{op}: {parameter}: expected {expected}, got {got}")

    def __reduce__(self) -> tuple[Any, ...]:
        return ContractError, (self.op, self.parameter, self.expected, self.got)


def bind(contract: Contract, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments by parameter name, defaults included. Callers may omit tuning parameters.

    Args:
        contract: contract of the op.
        args: positional arguments, in the contract's order.
        kwargs: keyword arguments.

    Raises:
        ContractError: a parameter is missing, unknown or given twice.
    """
    plan = plan_of(contract)
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
            if name not in bound and default is not MISSING:
                if default is REQUIRED:
                    raise ContractError(contract.name, name, "a value", "no value: the argument is missing")
                bound[name] = default
    return bound


def signature(contract: Contract) -> inspect.Signature:
    """Return the contract's parameters as a Python signature, for callers that inspect a kernel."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Signature(
        [
            inspect.Parameter(p.name, kind, default=inspect.Parameter.empty if p.default is REQUIRED else p.default)
            for p in contract.params
        ]
    )


def check(contract: Contract, bound: Mapping[str, Any], device: str = "") -> dict[str, Any]:
    """Validate a call: types, dtypes, shapes, devices, counts and overlap.

    Args:
        contract: contract of the op.
        bound: arguments by parameter name, from `bind`.
        device: type of device that the kernel runs on ("cpu", "cuda"). If empty, all tensors must be on the same one.

    Returns:
        Scalars as plain Python numbers and tensors as `TensorView`, by parameter name.

    Raises:
        ContractError: the call breaks the contract.
    """
    return check_layout(contract, bound, device)[0]


def check_layout(contract: Contract, bound: Mapping[str, Any], device: str = "") -> tuple[dict[str, Any], Layout]:
    """Validate a call as `check` does; return its result, and the part that all calls of the same layout share."""
    plan = plan_of(contract)
    views = {tensor.name: view_of(bound.get(tensor.name)) for tensor in plan.tensors}
    for name in plan.columns:
        view = views[name]
        if view is not None and len(view.shape) == 2 and view.shape[1] == 1:
            views[name] = view._replace(shape=view.shape[:1], strides=view.strides[:1])
    signature = _signature(plan, bound, views, device)
    layout = None if signature is None else plan.known.get(signature)
    if layout is None:
        layout = _layout(plan, bound, views, device)
        if signature is not None:
            if len(plan.known) == _MOST_KNOWN:
                plan.known.clear()
            plan.known[signature] = layout
    if layout.device == "cpu":
        for tensor in plan.counted:
            if views[tensor.name] is not None:
                used = plan.axes[tensor.name][0].value(layout.sizes)
                given, rule = bound[tensor.name], tensor.cumulative
                is_short = not tensor.within and used <= _FEW and given.ndim == 1
                if rule and is_short and _rises(rule, given[:used], layout.sizes):
                    continue
                counts = _numpy(given)[:used]
                if used and tensor.cumulative:
                    _check_cumulative(contract, tensor, tensor.cumulative, counts, layout.sizes)
                if used and tensor.within:
                    _check_within(contract, tensor, counts, _numpy(bound[tensor.within])[: used + 1])
    _check_overlap(plan, views, layout)
    return layout.scalars | views, layout


def _signature(
    plan: CompiledContract, bound: Mapping[str, Any], views: Mapping[str, TensorView | None], device: str
) -> tuple[Any, ...] | None:
    """Return all that decides if a call fits except values and addresses; None for types that are not compared."""
    values = [bound.get(scalar.name, MISSING) for scalar in plan.scalars]
    kinds = tuple(map(type, values))  # True, 1 and 1.0 are equal
    if not _COMPARED.issuperset(kinds):
        return None
    layouts = []
    for name, view in views.items():
        if view is None and bound.get(name) is not None:
            return None
        layouts.append(view and view[1:])
    return device, *values, *kinds, *layouts


def _layout(
    plan: CompiledContract, bound: Mapping[str, Any], views: Mapping[str, TensorView | None], device: str
) -> Layout:
    """Check everything that does not depend on values and addresses."""
    contract = plan.contract
    sizes: dict[str, int] = {}
    scalars: dict[str, Any] = {}
    for scalar in plan.scalars:
        if scalar.name in bound:
            scalars[scalar.name] = value = _scalar(contract, scalar, bound[scalar.name])
            if isinstance(value, int):
                sizes[scalar.name] = value
                if scalar.axis:
                    sizes[scalar.axis] = value
    present: dict[str, TensorView] = {}
    for tensor in plan.tensors:
        view = views[tensor.name]
        _check_tensor(contract, tensor, view, bound)
        if view is not None:
            present[tensor.name] = view
            device = device or view.device
            if view.device != device:
                raise ContractError(contract.name, tensor.name, f"a tensor on {device}", f"one on {view.device}")
    _check_shapes(contract, plan, present, sizes)
    for scalar in plan.related:
        if scalar.name in bound:
            _check_related(contract, scalar, scalars[scalar.name], present, sizes)
    reach = []
    for name, view in present.items():
        if 0 not in view.shape:
            low, high = span(view)
            reach.append((name, low - view.pointer, high - view.pointer))
            if not view.dense and name in plan.written and not injective(view):
                got = f"shape {_shape(view.shape)} with strides {_shape(view.strides)}"
                raise ContractError(contract.name, name, "separate memory for every element", got)
    return Layout(scalars, sizes, device, tuple(reach))


def _scalar(contract: Contract, scalar: Scalar, value: Any) -> Any:
    """Return `value` as a plain Python number of the scalar's type."""
    if value is None and scalar.optional:
        return None
    kind = scalar.type
    plain = value
    if type(value) is not kind:
        # Python takes bool for int; here mixing them up is an error.
        is_bool = isinstance(value, bool) or type(value).__name__ == "bool"
        try:
            if kind is bool:
                plain = bool(value) if is_bool else MISSING
            elif kind is int:
                plain = MISSING if is_bool else operator.index(value)
            elif kind is float:
                plain = MISSING if isinstance(value, str) else float(value)
                if isinstance(value, int) and plain != value:
                    plain = MISSING
            elif kind is list:
                plain = list(value)
        except (TypeError, ValueError):
            plain = MISSING
        if plain is MISSING:
            raise ContractError(contract.name, scalar.name, _article(kind.__name__), repr(value))
    minimum = scalar.minimum
    if minimum is not None and not isinstance(minimum, str) and not plain >= minimum:
        raise ContractError(contract.name, scalar.name, f"at least {minimum}", repr(value))
    return plain


def _check_related(
    contract: Contract, scalar: Scalar, value: Any, views: Mapping[str, TensorView], sizes: Mapping[str, int]
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
    if scalar.equals and value != (wanted := parse(scalar.equals).value(sizes)):
        raise ContractError(contract.name, scalar.name, f"{wanted}, {scalar.equals}", str(value))


def _holds(dtype: str, value: float) -> bool:
    if dtype == "bool":
        return value in (0, 1)
    bits = {"uint8": 8, "int32": 31, "int64": 63}[dtype]
    low = 0 if dtype == "uint8" else -(2**bits)
    return float(value).is_integer() and low <= int(value) < 2**bits


def _check_tensor(contract: Contract, tensor: Tensor, view: TensorView | None, bound: Mapping[str, Any]) -> None:
    if bound[tensor.name] is None:
        flag = tensor.required_if.removeprefix("not ")
        with_other = bool(tensor.required_with) and bound[tensor.required_with] is not None
        if tensor.optional and not with_other and (not flag or bool(bound[flag]) == (flag != tensor.required_if)):
            return
        condition = tensor.required_with if with_other else f"{flag}={bound[flag]}" if flag else ""
        why = f" with {condition}" if condition else ""
        raise ContractError(contract.name, tensor.name, f"a tensor{why}", "None")
    if view is None:
        raise ContractError(contract.name, tensor.name, _TENSOR, type(bound[tensor.name]).__name__)
    if view.dtype not in tensor.dtypes:
        raise ContractError(contract.name, tensor.name, f"dtype {' or '.join(tensor.dtypes)}", view.dtype)
    rank = len(tensor.shape)
    if len(view.shape) != rank and not (tensor.shape[-1] == 1 and len(view.shape) == rank - 1):
        raise ContractError(contract.name, tensor.name, f"shape {_shape(tensor.shape)}", _shape(view.shape))
    if tensor.written and not view.writeable:
        raise ContractError(contract.name, tensor.name, "memory that may be written", "a read-only array")


def _check_shapes(
    contract: Contract, plan: CompiledContract, views: Mapping[str, TensorView], sizes: dict[str, int]
) -> None:
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


def _odd_one_out(
    plan: CompiledContract, axis: str, views: Mapping[str, TensorView], sizes: dict[str, int]
) -> ContractError:
    """Return the error for tensors that disagree on a size: a scalar wins, else the majority."""
    votes = {name: views[name].shape[i] - offset for a, name, i, offset in plan.solved if a == axis and name in views}
    if not any(scalar.axis == axis for scalar in plan.scalars):
        sizes[axis] = Counter(votes.values()).most_common(1)[0][0]
    return _wrong_shape(plan, next(name for name, size in votes.items() if size != sizes[axis]), views, sizes)


def _wrong_shape(
    plan: CompiledContract, name: str, views: Mapping[str, TensorView], sizes: Mapping[str, int]
) -> ContractError:
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


def _rises(rule: Cumulative, counts: Any, sizes: Mapping[str, int]) -> bool:
    """Return True if `_check_cumulative` accepts the counts; for few of them."""
    last = 0
    step = sizes[rule.step] if rule.step else sys.maxsize
    for count in counts.tolist():
        if not 0 <= count - last <= step:
            return False
        last = count
    return not rule.limit or last <= sizes[rule.limit]


def _check_cumulative(
    contract: Contract, tensor: Tensor, rule: Cumulative, counts: Any, sizes: Mapping[str, int]
) -> None:
    first, last = int(counts[0]), int(counts[-1])
    limit = sizes[rule.limit] if rule.limit else last
    step = sizes[rule.step] if rule.step else 2 ** (8 * counts.itemsize - 1) - 1
    steps = counts[1:] - counts[:-1]
    # Seen as unsigned, a decrease is larger than any step. One maximum therefore finds both errors.
    if 0 <= first <= step and last <= limit and int(steps.view(f"u{counts.itemsize}").max(initial=0)) <= step:
        return
    expected = f"steps of at most {step}, the {contract.axes.get(rule.step, rule.step)}"
    got = f"one of {max(first, int(steps.max(initial=0)))}"
    if first < 0:
        expected, got = "counts from 0 up", f"{first} at [0]"
    elif (steps < 0).any():
        at = int(steps.argmin()) + 1
        expected, got = "sums that never decrease", f"{int(counts[at])} after {int(counts[at - 1])} at [{at}]"
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


def _check_overlap(plan: CompiledContract, views: Mapping[str, Any], layout: Layout) -> None:
    """Raise ContractError if an output shares memory with another tensor."""
    end = 0
    for low, high in sorted([(views[n][0] + low, views[n][0] + high) for n, low, high in layout.reach]):
        if low < end:
            _check_pairs(plan.contract, plan, {name: view for name, view in views.items() if view is not None})
            return
        end = high


def _check_pairs(contract: Contract, plan: CompiledContract, views: Mapping[str, TensorView]) -> None:
    """Compare every output with every other tensor exactly; interleaved views of one buffer are fine."""
    for name in plan.written & views.keys():
        for other, view in views.items():
            if other == name or not share_memory(views[name], view):
                continue
            same = views[name][:4] == view[:4]
            if not (same and ((name, other) in plan.aliases or (other, name) in plan.aliases)):
                got = "the same memory" if same else "memory that both share"
                raise ContractError(contract.name, name, f"separate memory from {other}", got)
