"""Files that a change can break: the changed ones, and those that mention a name which it touches."""

from __future__ import annotations

import pytest

from verispec.static import MemoryTree
from verispec.static.affected import affected

FILES = {
    "pkg/__init__.py": "",
    "pkg/base.py": """
from dataclasses import dataclass

LIMIT = 3

@dataclass
class Config:
    tokens: int
    method: str = "ngram"

class Runner:
    def __init__(self, config: Config) -> None:
        self.config = config

    def step(self, ids: list[int]) -> list[int]:
        return ids

def advance(ids):
    return ids

def count(ids) -> int:
    return len(ids)
""",
    "pkg/config_user.py": "from pkg import base\nmade = base.Config(tokens=1)\n",
    "pkg/child.py": "from pkg.base import Runner\nclass Child(Runner): ...\n",
    "pkg/child_user.py": "from pkg.child import Child\nchild = Child(None)\n",
    "pkg/step_user.py": "def run(runner):\n    runner.step([1])\n",
    "pkg/advance_user.py": "from pkg import base\nbase.advance([1])\n",
    "pkg/other.py": "import os\n",
    "tests/test_it.py": "from pkg.base import advance\n",
}
CHANGES = {
    "nothing": ("", "", set()),
    "a comment": ("LIMIT = 3", "# limit\nLIMIT = 3", set()),
    "a body": ("return len(ids)", "return len(ids) + 1", set()),
    "a field": ("    tokens: int", "    width: int", {"config_user"}),
    "a method": ("step(self, ids:", "step(self, rows, ids:", {"step_user"}),
    "a constructor": ("self, config: Config", "self, config: Config, seed: int", {"child", "child_user"}),
    "a parameter": ("def advance(ids", "def advance(ids, seed", {"advance_user"}),
    "a result that has no annotation": (
        "    return ids\n\ndef count",
        "    return None\n\ndef count",
        {"advance_user"},
    ),
    "a name that vanishes": ("def advance", "def proceed", {"advance_user"}),
    "an attribute": ("self.config = config", "self.options = config", {"child", "child_user"}),
}


def changed(old: str, new: str) -> MemoryTree:
    assert old in FILES["pkg/base.py"]
    return MemoryTree({**FILES, "pkg/base.py": FILES["pkg/base.py"].replace(old, new)})


@pytest.mark.parametrize(("old", "new", "expected"), CHANGES.values(), ids=CHANGES)
def test_the_users_of_what_changes(old: str, new: str, expected: set[str]) -> None:
    paths = {f"pkg/{name}.py" for name in expected}
    before = MemoryTree(dict(FILES))
    own = {"pkg/base.py"} if new else set()
    assert affected(changed(old, new), before, None, None) == paths | own


def test_a_file_that_cannot_be_parsed() -> None:
    assert affected(changed("LIMIT = 3", "LIMIT ="), MemoryTree(dict(FILES)), None, None) is None


def test_a_module_that_vanishes() -> None:
    before = MemoryTree(dict(FILES))
    after = MemoryTree({path: text for path, text in FILES.items() if path != "pkg/base.py"})
    assert affected(after, before, None, None) == {
        "pkg/base.py", "pkg/config_user.py", "pkg/child.py", "pkg/child_user.py", "pkg/step_user.py",
        "pkg/advance_user.py",
    }  # fmt: skip


def test_a_change_of_the_host_is_looked_for_in_the_plugin() -> None:
    plugin = MemoryTree({"plug/__init__.py": "", "plug/a.py": "x.step(1)\n", "plug/b.py": "x = 1\n"})
    host = changed("step(self, ids:", "step(self, rows, ids:")
    assert affected(plugin, plugin, host, MemoryTree(dict(FILES))) == {"plug/a.py"}
