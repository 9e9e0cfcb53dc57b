"""The inputs and outputs of a case's last call: a summary for the record, and all of it in a file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

SHOWN = 64
"""Elements of an array in a record; the file has all of them."""

REQUESTS = 32
"""Requests of a generation that are described."""
LONGEST = 80
"""Characters of a parameter of a request."""

PARTS = ("inputs", "outputs", "expected")


def captured(fixtures: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return inputs, outputs and expected outputs of the last call by part and name; empty if nothing was called."""
    for fixture in fixtures.values():
        if last := getattr(fixture, "last", None):
            inputs, outputs = last
            parts = {"inputs": {**inputs, **_target_probs(inputs)}, "outputs": outputs}
            expected = getattr(fixture, "expected", {})
            return parts | ({"expected": expected} if expected else {})
    return _generated(fixtures.get("held", ()))


def _generated(held: Sequence[tuple[Any, Any]]) -> dict[str, dict[str, Any]]:
    """Return the options of a generator and the requests of its last call; empty if none was called."""
    for (_, options), generator in held:
        if asked := getattr(generator, "requests", ()):
            requests = {f"request {n}": _fields(request) for n, request in enumerate(asked[:REQUESTS])}
            if len(asked) > REQUESTS:
                requests["requests"] = f"{len(asked):,} in all"
            return {"inputs": {"options": _named(options), **requests}}
    return {}


def _fields(request: Any) -> str:
    """Return the length of a request's prompt, and its parameters that are not the default."""
    told = {f: getattr(request, f.name) for f in fields(request) if f.name != "prompt_token_ids"}
    defaults = {f: f.default if f.default_factory is MISSING else f.default_factory() for f in told}
    changed = {f.name: value for f, value in told.items() if value != defaults[f]}
    return f"prompt of {len(request.prompt_token_ids)} tokens, {_named(changed)}"


def _named(values: Mapping[str, Any]) -> str:
    told = {name: str(value) for name, value in values.items()}
    return ", ".join(f"{name}={v if len(v) <= LONGEST else v[:LONGEST] + '...'}" for name, v in told.items())


def detail_of(fixtures: Mapping[str, Any]) -> dict[str, Any]:
    """Return a summary of the test's last call, or an empty dict."""
    call = captured(fixtures)
    return {part: {name: summary(value) for name, value in values.items()} for part, values in call.items()}


def save(fixtures: Mapping[str, Any], path: Path) -> None:
    """Write all values of the test's last call to an .npz file as ``part.name``; other values are JSON text."""
    import numpy as np

    arrays = {
        f"{part}.{name}": _array(value) for part, values in captured(fixtures).items() for name, value in values.items()
    }
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)


def read(path: Path) -> dict[str, dict[str, Any]]:
    """Return the values that `save` wrote, by part and name."""
    import numpy as np

    found: dict[str, dict[str, Any]] = {}
    with np.load(path) as arrays:
        for key in arrays.files:
            part, _, name = key.partition(".")
            value = arrays[key]
            found.setdefault(part, {})[name] = json.loads(str(value)) if value.dtype.kind == "U" else value
    return found


def summary(value: Any) -> dict[str, Any]:
    """Return an array as shape, dtype and its first values; anything else as it is."""
    if not hasattr(value, "dtype"):
        return {"value": value}
    described: dict[str, Any] = {"shape": list(value.shape), "dtype": str(value.dtype).removeprefix("torch.")}
    described["values"] = value.ravel()[:SHOWN].tolist()
    return described


def _array(value: Any) -> Any:
    import numpy as np

    if not hasattr(value, "dtype"):
        return np.array(json.dumps(value, default=str))
    host = value.detach().cpu() if hasattr(value, "detach") else value
    if str(host.dtype) == "torch.bfloat16":
        host = host.float()  # NumPy has no bfloat16; float32 holds its values
    return np.asarray(host)


def _target_probs(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return p, the float64 target distribution of every row of a sampler's batch; empty for other calls."""
    if not {"logits", "draft_token_ids", "temperature"} <= inputs.keys():
        return {}
    import numpy as np

    from verispec.cases.sampling import target_distribution
    from verispec.engines import SamplerBatch

    fields = {name: inputs[name] for name in SamplerBatch.__dataclass_fields__ if name in inputs}
    batch = SamplerBatch(**fields)
    rows = [target_distribution(batch, b, row) for b, count in enumerate(batch.counts) for row in range(count + 1)]
    return {"target_probs": np.asarray(rows)} if rows else {}
