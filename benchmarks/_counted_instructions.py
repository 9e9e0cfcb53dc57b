"""Under callgrind: every call of a file through its C++ kernel, between two marks that split the counts.

Its first pair of marks has nothing between them: the cost of the marks themselves. Each kernel runs once before on
copies, because the first call of a function also looks its name up. Prints the names of the calls.
"""

from __future__ import annotations

import copy
import gc
import json
import os
import pickle
import sys
from pathlib import Path
from typing import Any

from verispec.reference import contracts, cpu
from verispec.reference.contracts import Scalar
from verispec.reference.contracts._check import bind, check


def arguments(op: str, values: dict[str, Any], inplace: dict[str, str]) -> list[Any]:
    """Return the kernel's own arguments, addresses of `values`, which must outlive the call."""
    contract = contracts.load(op)
    values = values | {output: values[source] for output, source in inplace.items()}
    for p in contract.params:
        if isinstance(p, Scalar) and p.stride_of:
            tensor = values[p.stride_of]
            values[p.name] = tensor.strides[0] // tensor.itemsize
    seen = check(contract, bind(contract, (), values), "cpu")
    return [seen[p.name] for p in contract.params if not getattr(p, "tuning", False)]


def main() -> None:
    """Run the calls of the file that the first argument names."""
    names = []
    gc.disable()
    os.getppid()
    os.getppid()
    for name, op, values, inplace in pickle.loads(Path(sys.argv[1]).read_bytes()):
        kernel, copies = cpu.kernel(op), copy.deepcopy(values)
        kernel(*arguments(op, copies, inplace))
        given = arguments(op, values, inplace)
        os.getppid()
        kernel(*given)
        os.getppid()
        names.append(name)
    print(json.dumps(names))


if __name__ == "__main__":
    main()
