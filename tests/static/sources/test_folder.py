"""Folders: what is taken, what is left out and said so, and what is remembered of them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from verispec.errors import VerispecError
from verispec.static.sources import open_tree
from verispec.static.sources._files import MAX_FILE, blob_id, may_hold_source
from verispec.static.sources.folder import RACY, ReadFile
from verispec.static.tree import Tree


def contents(tree: Tree) -> dict[str, bytes]:
    return {file.path: file.read() for file in tree.files()}


def codes(tree: Tree) -> list[str]:
    return [diagnostic.code for diagnostic in tree.diagnostics]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    (folder / "pkg").mkdir(parents=True)
    (folder / "pkg" / "a.py").write_text("a = 1\n")
    (folder / "pkg" / "b.cu").write_text("int b;\n")
    return folder


def test_source_files_are_taken_and_others_are_not(root: Path) -> None:
    (root / "README.md").write_text("words")
    for elsewhere in (".git", ".venv", "node_modules", "__pycache__", "build/lib.linux"):
        (root / elsewhere).mkdir(parents=True)
        (root / elsewhere / "x.py").write_text("x = 1\n")
    (root / "env").mkdir()
    (root / "env" / "pyvenv.cfg").write_text("")
    (root / "env" / "x.py").write_text("x = 1\n")
    tree = open_tree(str(root))
    assert contents(tree) == {"pkg/a.py": b"a = 1\n", "pkg/b.cu": b"int b;\n"}
    assert codes(tree) == []


def test_content_is_named_as_git_names_it(root: Path) -> None:
    (root / "pkg" / "a.py").write_bytes(b"what is up, doc?")
    blobs = {file.path: file.blob for file in open_tree(str(root)).files()}
    assert blobs["pkg/a.py"] == "bd9dbf5aae1a3862dd1526723246b20206e5fc37"  # the example of git's own manual


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """All files were changed long ago."""
    moment = time.time_ns() + 10 * RACY
    monkeypatch.setattr("verispec.static.sources.folder.time.time_ns", lambda: moment)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were opened, in order."""
    names: list[str] = []
    read = ReadFile.__call__

    def reading(self: ReadFile) -> bytes:
        names.append(Path(self.path).name)
        return read(self)

    monkeypatch.setattr(ReadFile, "__call__", reading)
    return names


@pytest.mark.usefixtures("later")
def test_an_unchanged_file_is_not_opened_again(root: Path, opened: list[str]) -> None:
    first = {file.path: file.blob for file in open_tree(str(root)).files()}
    assert sorted(opened) == ["a.py", "b.cu"]
    assert {file.path: file.blob for file in open_tree(str(root)).files()} == first
    assert sorted(opened) == ["a.py", "b.cu"]


@pytest.mark.usefixtures("later")
def test_a_change_under_an_old_time_stamp_is_seen(root: Path) -> None:
    open_tree(str(root))
    path = root / "pkg" / "a.py"
    before = path.stat()
    time.sleep(0.05)  # the clock of a file system ticks every few milliseconds
    path.write_text("a = 2\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    blobs = {file.path: file.blob for file in open_tree(str(root)).files()}
    assert blobs["pkg/a.py"] == blob_id(b"a = 2\n")


def test_a_file_that_changed_just_now_is_not_taken_for_known(
    root: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = max((root / "pkg" / name).stat().st_ctime_ns for name in ("a.py", "b.cu"))
    monkeypatch.setattr("verispec.static.sources.folder.time.time_ns", lambda: changed)
    open_tree(str(root))
    open_tree(str(root))
    assert sorted(opened) == ["a.py", "a.py", "b.cu", "b.cu"]


def test_links_are_neither_followed_nor_forgotten(root: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.py"
    secret.write_text("key = 1\n")
    (root / "pkg" / "link.py").symlink_to(secret)
    (root / "pkg" / "loop").symlink_to(root)
    (root / "self.py").symlink_to("self.py")
    (root / "notes.md").symlink_to("nowhere.md")
    tree = open_tree(str(root))
    assert sorted(contents(tree)) == ["pkg/a.py", "pkg/b.cu"]
    (link,) = tree.diagnostics
    assert link.code == "V-SRC-LINK"
    assert "4 files" in link.message
    assert "pkg/link.py" in link.where


def test_a_nested_repository_is_left_out_and_said_so(root: Path) -> None:
    (root / "third_party" / "lib").mkdir(parents=True)
    (root / "third_party" / "lib" / ".git").write_text("gitdir: elsewhere")
    (root / "third_party" / "lib" / "x.py").write_text("x = 1\n")
    tree = open_tree(str(root))
    assert sorted(contents(tree)) == ["pkg/a.py", "pkg/b.cu"]
    assert codes(tree) == ["V-SRC-SUBMODULE"]


def test_pipes_are_not_waited_for(root: Path) -> None:
    os.mkfifo(root / "pkg" / "pipe.py")
    assert sorted(contents(open_tree(str(root)))) == ["pkg/a.py", "pkg/b.cu"]


def test_a_file_that_becomes_a_link_or_a_pipe_is_not_read(root: Path, tmp_path: Path) -> None:
    files = {file.path: file for file in open_tree(str(root)).files()}
    secret = tmp_path / "secret.py"
    secret.write_text("key = 1\n")
    (root / "pkg" / "a.py").unlink()
    (root / "pkg" / "a.py").symlink_to(secret)
    (root / "pkg" / "b.cu").unlink()
    os.mkfifo(root / "pkg" / "b.cu")
    for file in files.values():
        with pytest.raises(OSError):
            file.read()


def test_names_that_are_not_utf8_are_shown_with_escapes(root: Path) -> None:
    odd = os.fsencode(root) + b"/pkg/\xff.py"
    with open(odd, "wb") as file:  # noqa: PTH123 - a path of bytes
        file.write(b"odd = 1\n")
    tree = open_tree(str(root))
    assert contents(tree)["pkg/\\xff.py"] == b"odd = 1\n"
    assert codes(tree) == ["V-SRC-NAME"]


def test_large_files_are_left_out_and_said_so(root: Path) -> None:
    with (root / "large.py").open("wb") as file:
        file.truncate(MAX_FILE + 1)
    with (root / "just.py").open("wb") as file:
        file.truncate(MAX_FILE)
    tree = open_tree(str(root))
    assert sorted(file.path for file in tree.files()) == ["just.py", "pkg/a.py", "pkg/b.cu"]
    assert codes(tree) == ["V-SRC-TOO-LARGE"]


def test_too_many_files_stop_the_listing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verispec.static.sources.folder.MAX_FILES", 1)
    tree = open_tree(str(root))
    assert codes(tree) == ["V-SRC-TOO-MANY"]
    assert len(contents(tree)) < 3


def test_a_folder_that_cannot_be_listed_is_said(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "closed").mkdir()
    listed = os.scandir

    def scandir(path: str) -> object:
        if str(path).endswith("closed"):
            raise PermissionError("closed")
        return listed(path)

    monkeypatch.setattr("verispec.static.sources.folder.os.scandir", scandir)
    tree = open_tree(str(root))
    assert sorted(contents(tree)) == ["pkg/a.py", "pkg/b.cu"]
    assert [(diagnostic.code, diagnostic.where) for diagnostic in tree.diagnostics] == [("V-SRC-UNREADABLE", "closed/")]


def test_a_file_that_vanishes_is_said(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(self: object) -> bytes:
        raise FileNotFoundError("gone")

    monkeypatch.setattr("verispec.static.sources.folder.ReadFile.__call__", gone)
    tree = open_tree(str(root))
    assert list(tree.files()) == []
    assert codes(tree) == ["V-SRC-UNREADABLE"]


def test_nothing_is_written_into_the_tree(root: Path, cache: Path) -> None:
    before = sorted(root.rglob("*"))
    open_tree(str(root))
    assert sorted(root.rglob("*")) == before
    assert any(cache.rglob("*.json"))


def test_a_cache_that_cannot_be_written_is_said(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("VERISPEC_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(VerispecError, match="V-CACHE-WRITE"):
        open_tree(str(root))


@pytest.mark.parametrize("junk", [b"", b"{", b"[]", b'{"pkg/a.py": 3}', b"[" * 100_000, b'{"pkg/a.py": [1]}'])
def test_a_broken_cache_is_only_slower(root: Path, cache: Path, junk: bytes) -> None:
    expected = {file.path: file.blob for file in open_tree(str(root)).files()}
    for path in cache.rglob("*.json"):
        path.write_bytes(junk)
    assert {file.path: file.blob for file in open_tree(str(root)).files()} == expected


@pytest.mark.parametrize(
    "path", ["a.py", "./a.py", "../a.py", "a/b.CU", "my__pycache__/a.py", "a/..b.py", "node_modules2/a.cpp"]
)
def test_paths_that_may_hold_source(path: str) -> None:
    assert may_hold_source(path)


@pytest.mark.parametrize(
    "path", [".git/a.py", "x/.venv/a.py", "x/__pycache__/a.py", "site-packages/a.h", "a.txt", "py", "a.py/b"]
)
def test_paths_that_are_left_out_of_every_kind_of_tree(path: str) -> None:
    assert not may_hold_source(path)
