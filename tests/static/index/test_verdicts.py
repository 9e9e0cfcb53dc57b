"""The cached report of a whole tree, and everything that invalidates it."""

import pickle
from pathlib import Path

import pytest

from verispec.errors import Diagnostic
from verispec.static import MemoryTree, SourceFile, check_tree
from verispec.static import cache as report_cache
from verispec.static.cache import FactCache

KERNEL = "import triton\n@triton.jit\ndef k(a):\n    pass\n"
GOOD = "from p.k import k\ndef run(a):\n    k[(1,)](a)\n"
BAD = "from p.k import k\ndef run(a):\n    k[(1,)](a, B=1)\n"
SOURCES = {"p/__init__.py": "", "p/k.py": KERNEL, "p/run.py": BAD}


class Tree(MemoryTree):
    """A tree whose files have content names."""

    def files(self):
        for file in super().files():
            yield SourceFile(file.path, str(file.read()), file.read, file.size)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "facts"
    check_tree(Tree(SOURCES), cache=path)
    return path


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The number of times that facts were asked for, as a list."""
    asked: list[str] = []
    get = FactCache.get

    def noted(self: FactCache, blob: str, **depth: bool):
        asked.append(blob)
        return get(self, blob, **depth)

    monkeypatch.setattr(FactCache, "get", noted)
    return asked


def rules(tree: MemoryTree, cache: Path, **more: object) -> list[str]:
    return [finding.rule for finding in check_tree(tree, cache=cache, **more).findings]


def test_an_unchanged_tree_is_not_judged_again(cache: Path, unread: list[str]):
    fresh = check_tree(Tree(SOURCES))
    unread.clear()
    known = check_tree(Tree(SOURCES), cache=cache)
    assert unread == []
    assert known.findings == fresh.findings != ()
    assert {name: n for name, n in known.stats.items() if "seconds" not in name} == {
        name: n for name, n in fresh.stats.items() if "seconds" not in name
    }


def test_content_paths_rules_and_core_all_count(cache: Path, unread: list[str]):
    assert rules(Tree({**SOURCES, "p/run.py": GOOD}), cache) == []
    assert rules(Tree({**SOURCES, "p/other.py": BAD.replace("B=", "C=")}), cache) == ["SIG101"] * 2
    assert rules(Tree({"p/__init__.py": "", "q.py": KERNEL, "p/run.py": BAD}), cache) == []
    moved = {"p/__init__.py": "", "p/k.py": KERNEL, "p/sun.py": BAD}
    (found,) = check_tree(Tree(moved), cache=cache).findings
    assert found.location.path == "p/sun.py"
    core = {path: text for path, text in SOURCES.items() if text}
    assert rules(Tree({"p/__init__.py": ""}), cache, core=Tree(core)) == []
    assert rules(Tree(SOURCES), cache, rules=["SIG102"]) == []
    own = {path: text for path, text in SOURCES.items() if path != "p/k.py"}
    assert rules(Tree(own), cache) == []
    assert rules(Tree(own), cache, core=Tree({"p/k.py": KERNEL})) == ["SIG101"]
    assert len(unread) > 0


def test_the_code_that_judges_counts(cache: Path, unread: list[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(report_cache, "_code", lambda: "a rule has changed")
    assert rules(Tree(SOURCES), cache) == ["SIG101"]
    assert len(unread) > 0


def test_diagnostics_of_the_tree_are_those_of_now(cache: Path):
    seen = Diagnostic("V-SRC-LINK", "a link", "p/link.py")
    assert check_tree(Tree(SOURCES, (seen,)), cache=cache).diagnostics == (seen,)
    assert check_tree(Tree(SOURCES), cache=cache).diagnostics == ()


def test_diagnostics_of_the_files_are_remembered(cache: Path, unread: list[str]):
    broken = Tree({**SOURCES, "p/broken.py": "import triton.jit\ndef (\n"})
    before = check_tree(broken, cache=cache)
    unread.clear()
    after = check_tree(broken, cache=cache)
    assert [d.code for d in after.diagnostics] == [d.code for d in before.diagnostics] == ["V-SRC-UNPARSABLE"]
    assert unread == []


def test_a_file_that_could_not_be_read_is_tried_again(tmp_path: Path):
    locked = True

    class Locked(Tree):
        def files(self):
            for file in super().files():
                yield SourceFile(file.path, file.blob, lambda file=file: opened(file), file.size)

    def opened(file: SourceFile) -> bytes:
        if locked and file.path == "p/run.py":
            raise PermissionError("not yours")
        return file.read()

    tree, path = Locked(SOURCES), tmp_path / "facts"
    assert [d.code for d in check_tree(tree, cache=path).diagnostics] == ["V-SRC-UNREADABLE"]
    locked = False
    assert rules(tree, path) == ["SIG101"]


@pytest.mark.parametrize("content", [b"", b"garbage", pickle.dumps([]), pickle.dumps({"key": 1})])
def test_damage_is_forgotten(cache: Path, content: bytes):
    file = cache.with_name("facts.verdicts")
    assert file.is_file()
    file.write_bytes(content)
    assert rules(Tree(SOURCES), cache) == ["SIG101"]


def test_a_damaged_verdict_is_forgotten(cache: Path):
    file = cache.with_name("facts.verdicts")
    file.write_bytes(pickle.dumps(dict.fromkeys(pickle.loads(file.read_bytes()), b"garbage")))
    assert rules(Tree(SOURCES), cache) == ["SIG101"]


def test_only_the_last_few_are_kept(cache: Path, unread: list[str]):
    for number in range(20):
        check_tree(Tree({**SOURCES, "p/number.py": f"x = {number}\n"}), cache=cache)
    assert len(pickle.loads(cache.with_name("facts.verdicts").read_bytes())) == 8
    unread.clear()
    check_tree(Tree({**SOURCES, "p/number.py": "x = 19\n"}), cache=cache)
    assert unread == []


def test_content_without_a_name_is_judged_every_time(tmp_path: Path, unread: list[str]):
    for _ in range(2):
        assert rules(MemoryTree(SOURCES), tmp_path / "facts") == ["SIG101"]
    assert not (tmp_path / "facts.verdicts").exists()
