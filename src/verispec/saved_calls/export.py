"""Write a saved call as a test of the engine alone: pytest, torch and the engine, without verispec."""

from __future__ import annotations

import inspect
import keyword
import math
import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from verispec import exits
from verispec.engines import Engine, KernelSites, Standalone, StandaloneCall, Unsupported
from verispec.errors import VerispecError
from verispec.saved_calls.file import SavedCase
from verispec.saved_calls.places import MADE_BY

LINES = 40
"""Lines of a test that people read in an issue."""
COLUMNS = 110
GUARD = 64
"""Elements on both sides of an output, for a failure that writes outside of it."""


def source(saved: SavedCase, engine: Engine) -> str:
    """Return the test as Python source.

    The test makes the saved call and compares the wrong output with what verispec's oracle expects.

    Raises:
        VerispecError: V-REPRO-EXPORT, the file has no call, the failure needs two calls, the engine does not say how
            its users call the op, or the test would be too long to read.
    """
    from verispec.judge import OpUnderTest
    from verispec.reference import contracts, oracle

    if not saved.op:
        raise _cannot(saved, "the case is not a single call of an op", "send the file of the case: verispec repro FILE")
    kind = saved.failure.get("kind", "crash")
    if kind in ("depends on stale memory", "relation broken", "bad input accepted"):
        raise _cannot(saved, f"a failure of kind {kind!r} needs more than one call", "send the file of the case")
    contract, call = contracts.load(saved.op), saved.call
    under_test = OpUnderTest(contract, lambda **_: None)
    inputs, _ = under_test.call(call.values, dtypes=call.dtypes, layouts=call.layouts, shapes=call.shapes)
    expected = oracle.load(saved.op)(**{k: v.copy() if hasattr(v, "copy") else v for k, v in inputs.items()})
    tensors = under_test.arguments(call)
    variables = {name: _variable(name) for name in tensors}
    arguments = {**{k: v for k, v in inputs.items() if k not in tensors}, **tensors}
    native = _native(saved, engine, arguments, variables)
    outputs = [name for name in expected if name in tensors]
    wrong = [saved.failure["output"]] if saved.failure.get("output") in outputs else outputs
    lines = list(_lines(saved, engine, native, tensors, variables, {name: expected[name] for name in wrong}))
    if len(lines) >= LINES:
        elements = sum(tensor.numel() for tensor in tensors.values())
        raise _cannot(saved, f"the test would have {len(lines)} lines for {elements:,} elements", "shrink it first")
    return "\n".join(lines) + "\n"


def _lines(
    saved: SavedCase,
    engine: Engine,
    native: StandaloneCall,
    tensors: Mapping[str, Any],
    variables: Mapping[str, str],
    expected: Mapping[str, Any],
) -> Iterator[str]:
    from verispec.reference import contracts

    about, clause = engine.describe(), saved.case.split(":")[1]
    kind = saved.failure.get("kind", "")
    made = [line for name in tensors for line in _tensor(variables[name], tensors[name], guarded=_guarded(name, saved))]
    norm = next((c.text for c in contracts.by_clause(clause).clauses if c.id == clause), "")
    yield f'"""{about.name} {about.version} on {about.device}: {clause}, {saved.op}.'
    yield ""
    yield from textwrap.wrap(norm, COLUMNS)
    if saved.failure.get("message"):
        told = _safe(f"Seen: {saved.failure['message']}")
        yield from textwrap.wrap(textwrap.shorten(told, 3 * COLUMNS, placeholder=" ..."), COLUMNS)
    yield MADE_BY
    yield '"""'
    yield ""
    names = sorted({name for line in made for name in re.findall(r"\b(?:inf|nan)\b", line)})
    if names or any("nan" in str(v) or "inf" in str(v) for e in expected.values() for v in e.ravel().tolist()):
        yield "from math import inf, nan"
    yield "import torch"
    yield from native.setup
    yield ""
    yield ""
    yield f"def test_{saved.op}():"
    body = [*made]
    if kind == "input changed":
        changed = variables.get(saved.failure["output"], "")
        body += [f"before = {changed}.clone()", native.call, f"assert torch.equal({changed}, before)"]
    elif kind == "outside":
        name = variables[saved.failure["output"]]
        body += [f"before = {name}_buffer.clone()", native.call]
        body += [f"assert torch.equal({name}_buffer[:{GUARD}], before[:{GUARD}])"]
        body += [f"assert torch.equal({name}_buffer[-{GUARD}:], before[-{GUARD}:])"]
    else:
        body.append(native.call)
        for name, values in expected.items():
            body += _comparison(saved, variables[name], tensors[name], values)
    for line in body:
        yield from textwrap.wrap(
            line, COLUMNS, initial_indent="    ", subsequent_indent="        ", break_long_words=False,
            break_on_hyphens=False,
        )  # fmt: skip


def _comparison(saved: SavedCase, variable: str, tensor: Any, expected: Any) -> Iterator[str]:
    """Yield the comparison: exact, or where the contract allows rounding the first wrong element alone."""
    if saved.failure.get("compare") != "bound":
        yield f"expected = torch.tensor({_numbers(expected.tolist(), tensor.dtype)}, dtype={tensor.dtype})"
        yield f"torch.testing.assert_close({variable}, expected, rtol=0, atol=0, equal_nan=True)"
        return
    index = saved.failure["index"]
    want, got = float(saved.failure["expected"]), float(saved.failure["got"])
    if math.isfinite(want) and math.isfinite(got):
        yield "# The contract's bound is smaller than half of the error that was seen."
        yield f"assert abs({variable}{index}.item() - {want!r}) < {abs(want - got) / 2:.3g}"
    else:
        yield f"assert str({variable}{index}.item()) == {str(want)!r}"


def _tensor(variable: str, tensor: Any, *, guarded: bool) -> Iterator[str]:
    """Yield lines that make `tensor`, with its strides."""
    values = tensor.detach().cpu()
    flat = values.ravel().tolist()
    where = f", device={str(tensor.device)!r}" if tensor.device.type != "cpu" else ""
    if flat and len({repr(v) for v in flat}) == 1 and len(flat) > 3:
        made = f"torch.full({tuple(values.shape)}, {_numbers(flat[0], values.dtype)}, dtype={values.dtype}{where})"
    else:
        made = f"torch.tensor({_numbers(values.tolist(), values.dtype)}, dtype={values.dtype}{where})"
        if not flat:
            made = f"torch.empty({tuple(values.shape)}, dtype={values.dtype}{where})"
    if guarded:
        yield f"{variable}_buffer = torch.zeros({values.numel() + 2 * GUARD}, dtype={values.dtype}{where})"
        yield f"{variable} = {variable}_buffer[{GUARD}:-{GUARD}].view({tuple(values.shape)})"
        yield f"{variable}.copy_({made})"
    elif flat and not tensor.is_contiguous():
        room = f"torch.empty_strided({tuple(tensor.shape)}, {tensor.stride()}, dtype={values.dtype}{where})"
        yield f"{variable} = {room}.copy_({made})"
    else:
        yield f"{variable} = {made}"


def _guarded(name: str, saved: SavedCase) -> bool:
    return saved.failure.get("kind") == "outside" and saved.failure.get("output") == name


def _numbers(value: Any, dtype: Any) -> str:
    """Return nested lists of numbers; floats by the shortest text that means the same in `dtype`."""
    import numpy as np

    if isinstance(value, list):
        return f"[{', '.join(_numbers(each, dtype) for each in value)}]"
    if isinstance(value, float) and str(dtype) != "torch.float64":  # float32 holds the narrower ones exactly
        return repr(float(str(np.float32(value))))
    return repr(value)


def _variable(name: str) -> str:
    bare = name.removesuffix("_ptr")
    return f"{bare}_" if keyword.iskeyword(bare) or bare in dir(__builtins__) or bare in ("input", "torch") else bare


def _native(
    saved: SavedCase, engine: Engine, arguments: Mapping[str, Any], variables: Mapping[str, str]
) -> StandaloneCall:
    """Return how the engine's users call the op: its own answer, else the function behind its site or its op."""
    if isinstance(engine, Standalone):
        found = engine.standalone_call(saved.op, arguments, variables)
        if isinstance(found, Unsupported):
            raise _cannot(saved, found.reason, "send the file of the case")
        return found
    place = engine.kernel_sites().get(saved.op, "") if isinstance(engine, KernelSites) else ""
    function = engine.op(saved.op)
    if not place and inspect.isfunction(function) and "." not in function.__qualname__:
        place = f"{function.__module__}:{function.__name__}"
    if not place or place.startswith("verispec."):
        raise _cannot(
            saved,
            f"the engine {saved.engine!r} does not say how its users call {saved.op}",
            "give the engine standalone_call() or kernel_sites(); see docs/reference/engine-protocol.md",
        )
    module, _, attribute = place.partition(":")
    given = ", ".join(f"{name}={variables.get(name) or repr(value)}" for name, value in arguments.items())
    return StandaloneCall((f"from {module} import {attribute}",), f"{attribute}({given})")


def _safe(text: str) -> str:
    """Return text that cannot end the docstring that it stands in."""
    return text.replace("\\", "/").replace('"""', "'''").rstrip('"')


def _cannot(saved: SavedCase, message: str, hint: str) -> VerispecError:
    return VerispecError("V-REPRO-EXPORT", message, where=saved.case, hint=hint, exit_code=exits.CANNOT_TELL)
