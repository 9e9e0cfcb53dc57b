"""Write a saved call as a test of the engine alone: pytest, torch and the engine, without verispec."""

from __future__ import annotations

import inspect
import keyword
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from verispec.cases import CaseId
from verispec.engines import Engine, KernelSites, Standalone, StandaloneCall, Unsupported
from verispec.run.record import category_of
from verispec.saved_calls.file import SavedCase
from verispec.saved_calls.source_lines import LINES, cannot, head, numbers, wrapped

GUARD = 64
"""Elements on both sides of an output, for a failure that writes outside of it."""


def source(saved: SavedCase, engine: Engine) -> str:
    """Return the test as Python source.

    The test makes the saved call and compares the wrong output with that of verispec's oracle.

    Raises:
        VerispecError: V-REPRO-EXPORT, the file has no call, the failure needs two calls, the test is too long; or
            the engine does not say how its users call the op.
    """
    from verispec.judge import OpUnderTest
    from verispec.reference import contracts, oracle

    if saved.step or saved.text:
        from verispec.saved_calls.export_whole import step_lines, text_lines

        return _short(saved, list((step_lines if saved.step else text_lines)(saved, engine)))
    if not saved.op:
        raise cannot(saved, _why_no_call(saved), "send the file of the case: verispec repro FILE")
    kind = saved.failure.get("kind", "crash")
    if kind in ("depends on stale memory", "relation broken", "bad input accepted"):
        raise cannot(saved, f"a failure of kind {kind!r} needs more than one call", "send the file of the case")
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
    return _short(saved, lines)


def _short(saved: SavedCase, lines: list[str]) -> str:
    """Return the lines as one text. Raises VerispecError V-REPRO-EXPORT if it is too long to be read."""
    if len(lines) >= LINES:
        raise cannot(
            saved, f"the test would have {len(lines)} lines, and people read {LINES}", "send the file of the case"
        )
    return "\n".join(lines) + "\n"


def _why_no_call(saved: SavedCase) -> str:
    """Return why a case that is no call of an op has no test, by its kind."""
    case, kind = CaseId.parse(saved.case), saved.failure.get("kind", "")
    if kind in ("crash", "timeout"):
        ended = str(saved.failure.get("message") or kind)
        return f"it ended before it could say which step or requests it was given: {ended}"
    if category_of(case) == "law" or kind == "law":
        return "the case is a statistical test of thousands of requests, none of which is wrong alone"
    if "sampler" in case.subject:
        return "no request of the last step has one right answer: it is sampled, has processors, or takes two steps"
    if case.suite == "e2e":
        return "no request has one right text: only greedy ones without further parameters have"
    return "the case is no single call of an op"


def _lines(
    saved: SavedCase,
    engine: Engine,
    native: StandaloneCall,
    tensors: Mapping[str, Any],
    variables: Mapping[str, str],
    expected: Mapping[str, Any],
) -> Iterator[str]:
    kind = saved.failure.get("kind", "")
    made = [line for name in tensors for line in _tensor(variables[name], tensors[name], guarded=_guarded(name, saved))]
    yield from head(saved, engine)
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
        yield from wrapped(line)


def _comparison(saved: SavedCase, variable: str, tensor: Any, expected: Any) -> Iterator[str]:
    """Yield the comparison: exact, or where the contract allows rounding the first wrong element alone."""
    if saved.failure.get("compare") != "bound":
        yield f"expected = torch.tensor({numbers(expected.tolist(), tensor.dtype)}, dtype={tensor.dtype})"
        yield f"torch.testing.assert_close({variable}, expected, rtol=0, atol=0, equal_nan=True)"
        return
    index = saved.failure.get("index")
    if index is None:
        message = "the contract's bound is one of several elements together, so that none is wrong alone"
        raise cannot(saved, message, "send the file of the case")
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
        made = f"torch.full({tuple(values.shape)}, {numbers(flat[0], values.dtype)}, dtype={values.dtype}{where})"
    else:
        made = f"torch.tensor({numbers(values.tolist(), values.dtype)}, dtype={values.dtype}{where})"
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
            raise cannot(saved, found.reason, "send the file of the case")
        return found
    place = engine.kernel_sites().get(saved.op, "") if isinstance(engine, KernelSites) else ""
    function = engine.op(saved.op)
    if not place and inspect.isfunction(function) and "." not in function.__qualname__:
        place = f"{function.__module__}:{function.__name__}"
    if not place or place.startswith("verispec."):
        raise cannot(
            saved,
            f"the engine {saved.engine!r} does not say how its users call {saved.op}",
            "give the engine standalone_call() or kernel_sites(); see docs/reference/engine-protocol.md",
        )
    module, _, attribute = place.partition(":")
    given = ", ".join(f"{name}={variables.get(name) or repr(value)}" for name, value in arguments.items())
    return StandaloneCall((f"from {module} import {attribute}",), f"{attribute}({given})")
