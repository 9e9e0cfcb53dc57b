"""A case in one file: safetensors for the tensors, with JSON in its header for everything else.

A file of an op's call or of a sampler's step holds the call itself, so that any engine can be given the same one. A
file of any other case holds its id and seed, which determine it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verispec.errors import VerispecError
from verispec.whole_file import write_whole

if TYPE_CHECKING:
    from verispec.judge import OpCall

FORMAT = "verispec/call/1"


@dataclass(frozen=True, slots=True)
class SavedCase:
    """A case that a file holds.

    Attributes:
        case: its id.
        seed: seed of the run.
        engine: the engine that it failed on, as it was asked for.
        op: name of the op; empty where the file has no call.
        failure: kind and message of the failure, if it was seen.
        suite: folder of the suite, where that is not one of verispec's.
        step: fields of a sampler's step that are no tensors, and the sampler's family; empty for another case.
        text: requests, options and folders of a generation that fails; empty for another case.
        tensors: NumPy arrays by parameter name.
        scalars: other arguments by parameter name; None is an argument too.
        dtypes, layouts, shapes: fields of `verispec.judge.OpCall`.
    """

    case: str
    seed: int
    engine: str
    op: str = ""
    failure: Mapping[str, str] = field(default_factory=dict)
    suite: str = ""
    step: Mapping[str, Any] = field(default_factory=dict)
    text: Mapping[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, Any] = field(default_factory=dict)
    scalars: Mapping[str, Any] = field(default_factory=dict)
    dtypes: Mapping[str, str] = field(default_factory=dict)
    layouts: Mapping[str, str] = field(default_factory=dict)
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)

    @property
    def call(self) -> OpCall:
        """Return the call, without comparisons, which are the case's."""
        from verispec.judge import OpCall

        return OpCall({**self.tensors, **self.scalars}, self.dtypes, self.layouts, self.shapes)


def arguments_of(call: OpCall, op: str) -> dict[str, Any]:
    """Return the fields of `SavedCase` that hold `call`, whose tensors are converted to NumPy arrays."""
    import numpy as np

    from verispec.reference import contracts

    names = {tensor.name for tensor in contracts.load(op).tensors}
    tensors = {n: np.asarray(v) for n, v in call.values.items() if n in names and v is not None}
    scalars = {n: _plain(v) for n, v in call.values.items() if n not in tensors}
    return {
        "op": op,
        "tensors": tensors,
        "scalars": scalars,
        "dtypes": dict(call.dtypes),
        "layouts": dict(call.layouts),
        "shapes": {name: tuple(map(int, shape)) for name, shape in call.shapes.items()},
    }


def content(saved: SavedCase) -> bytes:
    """Return the bytes of the file."""
    import numpy as np
    from safetensors.numpy import save

    told = {
        "format": FORMAT,
        **{name: getattr(saved, name) for name in SavedCase.__dataclass_fields__ if name != "tensors"},
        "scalars": {name: _to_json(value) for name, value in saved.scalars.items()},
    }
    arrays = {name: np.ascontiguousarray(value).reshape(np.shape(value)) for name, value in saved.tensors.items()}
    return save(arrays, metadata={"verispec": json.dumps(told)})


def write(path: Path, saved: SavedCase) -> None:
    """Write `saved` to `path`, whole or not at all. Raises VerispecError V-CLI-WRITE."""
    write_whole(path, content(saved), what="the case")


def read(path: Path) -> SavedCase:
    """Return the case in `path`.

    Raises:
        VerispecError: V-CALL-READ, it cannot be read or is not a file of a case.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as file:
            told = json.loads((file.metadata() or {}).get("verispec", "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    except (OSError, SafetensorError, ValueError) as error:
        raise _wrong(path, "the file of a case cannot be read", str(error)) from error
    if not isinstance(told, dict) or told.pop("format", None) != FORMAT:
        raise _wrong(path, "this is not a file of a case", "its header has no verispec/call/1")
    try:
        told["scalars"] = {name: _from_json(value) for name, value in told["scalars"].items()}
        return SavedCase(tensors=tensors, **told)
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise _wrong(path, "the file of a case is damaged", str(error)) from error


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def _to_json(value: Any) -> Any:
    """Return a scalar as JSON; a float as its exact text, which may be nan or inf."""
    return {"float": float.hex(value)} if isinstance(value, float) else value


def _from_json(value: Any) -> Any:
    return float.fromhex(value["float"]) if isinstance(value, dict) else value


def _wrong(path: Path, message: str, cause: str) -> VerispecError:
    return VerispecError(
        "V-CALL-READ",
        message,
        where=str(path),
        cause=cause,
        hint="files of cases come from 'verispec repro CASE --shrink FILE' and 'verispec run --record FOLDER'",
    )
