"""The digest of an engine's code: the modules beside it count, once each, and no others."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from verispec.run.code_digest import code_digest

Load = Callable[[str], Any]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Return a function that imports a module from the folder ``mine``; they are forgotten after the test."""
    (tmp_path / "mine").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path / "mine"))
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        del sys.modules[name]


def write(path: Path, text: str = "here = 1") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_loaded_modules_beside_the_engine_count(tmp_path: Path, load: Load) -> None:
    folder = tmp_path / "mine"
    write(folder / "engine_of_digest.py", "class Engine: ...")
    write(folder / "below/digest_sampler.py")
    write(folder / ".venv/lib/site-packages/digest_library.py")
    write(tmp_path / "elsewhere/digest_target.py")
    (folder / "digest_link.py").symlink_to(tmp_path / "elsewhere/digest_target.py")
    engine = load("engine_of_digest").Engine()
    digests = [code_digest(engine)]
    for path in ("below", "", ".venv/lib/site-packages"):
        sys.path.insert(0, str(folder / path))
    for name in ("digest_sampler", "digest_link", "digest_library"):
        load(name)
        digests.append(code_digest(engine))
    alone, with_sampler, with_link, with_library = digests
    del sys.path[:3]
    assert alone != with_sampler == with_link == with_library, "links lead elsewhere, and libraries are others' code"
    write(folder / "below/digest_sampler.py", "changed = True")
    assert code_digest(engine) not in digests


def test_a_folder_behind_a_link_is_the_engine_s(tmp_path: Path, load: Load) -> None:
    folder = tmp_path / "mine"
    write(tmp_path / "real/engine_behind_link.py", "import digest_part\nclass Engine: ...")
    write(tmp_path / "real/digest_part.py")
    (folder / "linked").symlink_to(tmp_path / "real")
    sys.path.insert(0, str(folder / "linked"))
    engine = load("engine_behind_link").Engine()
    del sys.path[0]
    before = code_digest(engine)
    write(tmp_path / "real/digest_part.py", "changed = True")
    assert code_digest(engine) != before
