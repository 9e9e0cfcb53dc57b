"""Write a sampler's step, or generated text, as a test of the engine alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from verispec.engines import Engine, StandaloneBody, StandaloneGenerator, StandaloneSampler, Unsupported
from verispec.saved_calls.file import SavedCase
from verispec.saved_calls.source_lines import cannot, head, numbers, wrapped


def step_lines(saved: SavedCase, engine: Engine) -> Iterator[str]:
    """Yield the lines of a test that runs the saved step and asserts the tokens of its wrong request.

    Raises:
        VerispecError: V-REPRO-EXPORT, the engine does not say how its users run a step.
    """
    from verispec.saved_calls.steps import from_arrays

    batch, step = from_arrays(saved.tensors, saved.step["batch"]), saved.step
    found = _asked(saved, engine, StandaloneSampler, "standalone_step", batch, step["family"] or "flat")
    body = [f"logits = {_logits(batch.logits)}"]
    probs = None if batch.draft_probs is None else numbers(batch.draft_probs.tolist(), batch.draft_probs.dtype)
    body.append(f"draft_probs = {f'torch.tensor({probs})' if probs else None}")
    if step["error"]:
        found = replace(found, lines=(f"# Raises {_type(step['error'])}.", *found.lines))
        check = []
    else:
        n, expected = step["request"], list(step["expected"])
        check = [f"assert list(tokens[{n}]) == {expected}, tokens  # seen: {list(step['got'])}"]
    setup = tuple(line for line in found.setup if line != "import torch")
    yield from _test(saved, engine, replace(found, setup=("import torch", *setup)), [*body, *found.lines, *check], [])


def text_lines(saved: SavedCase, engine: Engine) -> Iterator[str]:
    """Yield the lines of a test that generates and asserts the text of the wrong request.

    Raises:
        VerispecError: V-REPRO-EXPORT, the engine does not say how its users generate.
    """
    from verispec.saved_calls.texts import from_json

    text = saved.text
    options, requests = from_json(text)
    found = _asked(saved, engine, StandaloneGenerator, "standalone_text", options, requests)
    folders = {"TARGET": text["target"], "DRAFT": text["options"].get("draft")}
    names = [f"{name} = str(Path(__file__).with_name({Path(path).name!r}))" for name, path in folders.items() if path]
    if text["error"]:
        found = replace(found, lines=(f"# Raises {_type(text['error'])}.", *found.lines))
        check = []
    else:
        n, expected = text["request"], list(text["expected"])
        check = [f"assert list(tokens[{n}])[:{len(expected)}] == {expected}, tokens[{n}]"]
    found = replace(found, setup=("from pathlib import Path", *found.setup))
    yield from _test(saved, engine, found, [*found.lines, *check], names)


def _asked(saved: SavedCase, engine: Engine, protocol: type, method: str, *arguments: Any) -> StandaloneBody:
    if not isinstance(engine, protocol):
        raise cannot(
            saved,
            f"the engine {saved.engine!r} does not say how its users do this without verispec",
            f"give the engine {method}(); see docs/reference/engine-protocol.md",
        )
    found: StandaloneBody | Unsupported = getattr(engine, method)(*arguments)
    if isinstance(found, Unsupported):
        raise cannot(saved, found.reason, "send the file of the case: verispec repro FILE")
    return found


def _test(saved: SavedCase, engine: Engine, found: StandaloneBody, body: list[str], names: list[str]) -> Iterator[str]:
    yield from head(saved, engine)
    yield from found.setup
    yield ""
    yield from names
    yield from [""] * (1 + bool(names))
    yield f"def test_{saved.case.split('/')[1].split(':')[0]}():"
    for line in body:
        yield from wrapped(line)


def _type(error: str) -> str:
    """Return the type of an exception from its type and text."""
    return error.partition(":")[0]


def _logits(logits: Any) -> str:
    """Return rows of one high logit each as such, other rows by their numbers."""
    import torch

    best = logits.argmax(dim=1)
    peak = float(logits.max())
    if torch.equal(logits, torch.zeros_like(logits).scatter_(1, best[:, None], peak)):
        return f"{peak!r} * torch.eye({logits.shape[1]})[{best.tolist()}]"
    return f"torch.tensor({numbers(logits.tolist(), logits.dtype)})"
