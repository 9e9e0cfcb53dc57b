"""In Triton's interpreter: launches of every op's kernel, and the bytes that loads and stores ask for, as JSON."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from counts import calls
from triton.runtime.interpreter import GridExecutor, InterpreterBuilder

COUNTS: Counter[str] = Counter()


def counted(owner: type, method: str, count: Any) -> None:
    """Wrap a method, so that `count` sees the arguments of each call."""
    original = getattr(owner, method)

    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        count(*args)
        return original(self, *args, **kwargs)

    setattr(owner, method, wrapped)


def _launch(*_: Any) -> None:
    COUNTS["launches"] += 1


def _load(pointers: Any, mask: Any, *_: Any) -> None:
    COUNTS["read"] += _bytes(pointers, mask)


def _store(pointers: Any, _value: Any, mask: Any, *_: Any) -> None:
    COUNTS["written"] += _bytes(pointers, mask)


def _bytes(pointers: Any, mask: Any) -> int:
    return int(mask.data.sum()) * pointers.get_element_ty().primitive_bitwidth // 8


def main() -> None:
    """Count every call."""
    from op_running import run

    from verispec.engines import triton_interpreter
    from verispec.reference.triton import op as kernel

    triton_interpreter.prepare("reference:triton")
    counted(GridExecutor, "__call__", _launch)
    counted(InterpreterBuilder, "create_masked_load", _load)
    counted(InterpreterBuilder, "create_masked_store", _store)
    found = {}
    for name, op, case in calls():
        COUNTS.clear()
        run(case, kernel(op), "cpu")
        found[name] = {kind: COUNTS[kind] for kind in ("launches", "read", "written")}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
