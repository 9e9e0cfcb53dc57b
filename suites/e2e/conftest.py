"""One generator at a time: loading is the dear part, so cases with the same options follow each other and share one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from verispec import fixtures
from verispec.cases import CaseSpec
from verispec.engines import Engine, Unsupported, UnsupportedCall
from verispec.engines.protocol.generation import Generator, SpeculationMetrics
from verispec.engines.registry import is_address
from verispec.judge import offered
from verispec.reference.models import load_tokenizer
from verispec.reference.models.checkpoint import read_config
from verispec.suites.e2e._guard import GuardedGenerator, GuardedServer
from verispec.suites.e2e._reference_model import reference_model
from verispec.suites.e2e._served import ServedModel
from verispec.suites.e2e._setups import Load, options_of
from verispec.suites.e2e._tiny import save_tiny

HERE = Path(__file__).parent


SERVED = "test_served_"
"""Start of the files whose cases need a server."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the cases of this suite by the models that they load, in the order in which the options are first wanted.

    Cases of servers are left out unless the engine is one.
    """
    if not is_address(config.option.engine):
        items[:] = [item for item in items if item.path.parent != HERE or not item.path.name.startswith(SERVED)]
    places = [n for n, item in enumerate(items) if item.path.parent == HERE]
    ordered = sorted((items[n] for n in places), key=_setup)
    for place, item in zip(places, ordered, strict=True):
        items[place] = item


def _setup(item: pytest.Item) -> tuple[str, ...]:
    spec: CaseSpec = item.function.__verispec_case__  # type: ignore[attr-defined]
    params = {**spec.fixed, **(item.callspec.params if hasattr(item, "callspec") else {})}
    return tuple(str(params.get(name, "")) for name in ("target", "sampler", "memory", "draft", "method", "rates"))


@pytest.fixture(scope="session")
def held() -> list[tuple[object, GuardedGenerator | Unsupported]]:
    """Return the options and the generator that are loaded now: one entry or none."""
    return []


@pytest.fixture(autouse=True)
def acceptance(held: list[tuple[object, GuardedGenerator | Unsupported]], record: dict[str, Any]) -> Iterator[None]:
    """Put the accepted drafts of the case into its record, where the engine counts them."""
    before = dict(_counts(held))
    yield
    for generator, counts in _counts(held):
        found = counts.since(before[generator]) if generator in before else counts
        if found.num_drafts:
            record["acceptance"] = {"drafts": found.num_drafts, "accepted": list(found.accepted_per_position)}


def _counts(
    held: list[tuple[object, GuardedGenerator | Unsupported]],
) -> Iterator[tuple[GuardedGenerator, SpeculationMetrics]]:
    """Yield the loaded generator with its counts; a generator without counts is unsupported where they are needed."""
    for _, generator in held:
        if isinstance(generator, GuardedGenerator) and not generator.broken:
            with contextlib.suppress(Exception):
                counts = generator.metrics()
                if counts.accepted_per_position:
                    yield generator, counts


@pytest.fixture(scope="session")
def load(engine: Engine, held: list[tuple[object, GuardedGenerator | Unsupported]]) -> Iterator[Load]:
    """Load a target with a drafter and a memory layout; keep it while the options stay the same."""

    def close() -> None:
        while held:
            generator = held.pop()[1]
            if not isinstance(generator, Unsupported):
                generator.close()

    def answer(target: Path, options: dict[str, Any]) -> GuardedGenerator | Unsupported:
        try:
            generator = engine.load(target, **options)
        except UnsupportedCall as refusal:
            return Unsupported(refusal.reason)
        if isinstance(generator, Unsupported):
            return generator
        vocab_size = int(read_config(target)["vocab_size"])
        return GuardedGenerator(generator, vocab_size, reference_model(target).announce)

    def loaded(
        draft: str,
        memory: str = "",
        target: Path | None = None,
        drafter: Path | None = None,
        sampler: str = "flat",
        **more: Any,
    ) -> Generator:
        options = {**options_of(draft, memory, drafter), "sampler": sampler, **more}
        wanted = (target, options)
        if not held or held[0][0] != wanted or getattr(held[0][1], "broken", False):
            close()
            held.append((wanted, answer(target or fixtures.model("target"), options)))
        return offered(held[0][1])

    yield loaded
    close()


@pytest.fixture(scope="session")
def served(engine: Engine) -> ServedModel:
    """Return the model behind the server under test."""
    server = getattr(engine, "server", None)
    return ServedModel(GuardedServer(offered(server() if server else Unsupported("the engine is not a server"))))


@pytest.fixture(scope="session")
def prompts() -> list[tuple[int, ...]]:
    """Return the token ids of the held-back prompts, 64 each."""
    tokenizer = load_tokenizer(fixtures.model("target"))
    return [tuple(tokenizer.encode(text, add_special_tokens=False)) for text in fixtures.prompts()]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the folders of the target and the draft models over eight tokens."""
    return save_tiny(tmp_path_factory.mktemp("tiny"))
