"""One generator at a time: loading is the dear part, so cases with the same options share one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from verispec import fixtures
from verispec.engines import Engine, Unsupported, UnsupportedCall
from verispec.engines.generation import Generator
from verispec.reference.models import load_tokenizer

Load = Callable[..., Generator]

DRAFTS = {"draft_model": "draft", "eagle3": "eagle3"}


@pytest.fixture(scope="session")
def load(engine: Engine) -> Iterator[Load]:
    """Load the target fixture with options; the generator that is held is kept while the options stay the same."""
    held: dict[str, Any] = {}

    def close() -> None:
        if held:
            held.pop("generator").close()
            held.clear()

    def loaded(method: str = "none", *, target: Any = None, draft: Any = None, **options: Any) -> Generator:
        target = target or fixtures.model("target")
        if method in DRAFTS:
            options["draft"] = draft or fixtures.model(DRAFTS[method])
        wanted = (target, method, tuple(sorted(options.items(), key=str)))
        if held.get("options") != wanted:
            close()
            generator = engine.load(target, method=method, **options)
            if isinstance(generator, Unsupported):
                raise UnsupportedCall(generator.reason)
            held.update(options=wanted, generator=generator)
        return held["generator"]  # type: ignore[no-any-return]

    yield loaded
    close()


@pytest.fixture(scope="session")
def prompts() -> list[tuple[int, ...]]:
    """Token ids of the held-back prompts."""
    tokenizer = load_tokenizer(fixtures.model("target"))
    return [tuple(tokenizer.encode(text, add_special_tokens=False)) for text in fixtures.prompts()]
