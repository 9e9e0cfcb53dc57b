"""Targets with sliding windows: no token sees further back, whatever is drafted (contract GEN)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from verispec.cases import case
from verispec.suites.e2e._reference_model import reference_model
from verispec.suites.e2e._setups import LAYOUTS, METHODS, Load, greedy
from verispec.suites.e2e._windowed import save_windowed

LENGTH = 40
PROMPTS = 6
REACH = "a model with sliding windows"


@pytest.fixture(scope="session")
def windowed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the folders of the target and the draft model with sliding windows."""
    return save_windowed(tmp_path_factory.mktemp("windowed"))


@case("GEN-41", target="windowed", draft=METHODS, reach=REACH)
def test_every_token_sees_its_window(
    load: Load, windowed: dict[str, Path], prompts: Any, draft: str, memory: str = ""
) -> None:
    """Greedy texts that outgrow the window, with drafts and rejections at its edge; the draft model has one too."""
    chosen = prompts[:PROMPTS]
    drafter = windowed["draft"] if draft.startswith("draft_model") else None
    results = load(draft, memory, target=windowed["target"], drafter=drafter).generate(greedy(chosen, LENGTH))
    for n, result in enumerate(results):
        reference_model(windowed["target"]).judge_greedy(chosen[n], result.token_ids, f"prompt {n}")


@case("GEN-41", target="windowed", memory=LAYOUTS, draft=METHODS, reach=f"{REACH}, and chunked prefill or preemption")
def test_every_token_sees_its_window_in_any_layout(
    load: Load, windowed: dict[str, Path], prompts: Any, memory: str, draft: str
) -> None:
    """Blocks that a window has left may be used again, those that a rejection brings back may not."""
    test_every_token_sees_its_window(load, windowed, prompts, draft, memory)
