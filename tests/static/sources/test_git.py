"""Revisions: read from the object store alone, whatever the repository's configuration would have git do."""

from __future__ import annotations

import subprocess
import zlib
from pathlib import Path

import pytest
from toy_git import ToyRepository

from verispec import exits
from verispec.errors import VerispecError
from verispec.static.sources import open_tree
from verispec.static.sources._files import MAX_FILE, blob_id
from verispec.static.sources._objects import environment
from verispec.static.sources.git import Repository
from verispec.static.tree import Tree


def contents(tree: Tree) -> dict[str, bytes]:
    return {file.path: file.read() for file in tree.files()}


def codes(tree: Tree) -> list[str]:
    return [diagnostic.code for diagnostic in tree.diagnostics]


@pytest.fixture
def toy(tmp_path: Path) -> ToyRepository:
    repository = ToyRepository(tmp_path / "repo")
    repository.commit({"pkg/a.py": "a = 1\n", "README.md": "words"}, "first")
    repository.commit({"pkg/a.py": "a = 2\n", "pkg/b.cpp": "int b;\n"}, "second\n\nlonger words")
    return repository


def test_any_revision_is_read_without_a_checkout(toy: ToyRepository) -> None:
    toy.git("tag", "-a", "v1", "-m", "tag", "HEAD~1")
    (toy.folder / "pkg" / "a.py").write_text("not committed")
    before = (toy.folder / "pkg" / "a.py").stat()
    for revision in ("HEAD~1", "v1", "main^", toy.git("rev-parse", "HEAD~1")[:9]):
        assert contents(open_tree(f"{toy.folder}#{revision}")) == {"pkg/a.py": b"a = 1\n"}
    assert contents(open_tree(f"{toy.folder}#HEAD")) == {"pkg/a.py": b"a = 2\n", "pkg/b.cpp": b"int b;\n"}
    assert (toy.folder / "pkg" / "a.py").stat() == before


def test_blobs_are_named_as_in_a_folder(toy: ToyRepository) -> None:
    revision = {file.path: file.blob for file in open_tree(f"{toy.folder}#HEAD").files()}
    folder = {file.path: file.blob for file in open_tree(str(toy.folder)).files()}
    assert revision == folder


def test_a_folder_below_the_root_is_that_part_of_the_revision(toy: ToyRepository) -> None:
    assert sorted(contents(open_tree(f"{toy.folder}/pkg#HEAD"))) == ["a.py", "b.cpp"]


def test_a_bare_repository_is_read_and_a_work_tree_of_it_asked_for(toy: ToyRepository, tmp_path: Path) -> None:
    toy.git("clone", "-q", "--bare", ".", str(tmp_path / "bare.git"))
    assert sorted(contents(open_tree(f"{tmp_path}/bare.git#main"))) == ["pkg/a.py", "pkg/b.cpp"]
    without = open_tree(str(tmp_path / "bare.git"))
    assert codes(without) == ["V-SRC-BARE"]


@pytest.mark.parametrize(
    "revision", ["nope", "", "--help", "-x", "HEAD:README.md", "HEAD..HEAD~1", "a\nb", "HEAD^{blob}"]
)
def test_an_unknown_revision_is_said(toy: ToyRepository, revision: str) -> None:
    with pytest.raises(VerispecError, match="V-GIT-REVISION") as caught:
        open_tree(f"{toy.folder}#{revision}")
    assert caught.value.exit_code == exits.USAGE
    assert "git log" in caught.value.diagnostic.hint


def test_a_shallow_clone_says_how_to_get_the_rest(toy: ToyRepository, tmp_path: Path) -> None:
    first = toy.git("rev-parse", "HEAD~1")
    toy.git("clone", "-q", "--depth", "1", f"file://{toy.folder}", str(tmp_path / "shallow"))
    assert sorted(contents(open_tree(f"{tmp_path}/shallow#HEAD"))) == ["pkg/a.py", "pkg/b.cpp"]
    with pytest.raises(VerispecError, match="unshallow"):
        open_tree(f"{tmp_path}/shallow#{first}")


def test_no_repository_and_no_git_are_said(tmp_path: Path, toy: ToyRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plain").mkdir()
    with pytest.raises(VerispecError, match="V-GIT-NO-REPOSITORY"):
        open_tree(f"{tmp_path}/plain#HEAD")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(VerispecError, match="V-GIT-MISSING"):
        open_tree(f"{toy.folder}#HEAD")


def test_another_owner_is_said(toy: ToyRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verispec.static.sources.git.COMMAND", ("env", "GIT_TEST_ASSUME_DIFFERENT_OWNER=1", "git"))
    with pytest.raises(VerispecError, match="V-GIT-OWNER") as caught:
        open_tree(f"{toy.folder}#HEAD")
    assert f"safe.directory {toy.folder}" in caught.value.diagnostic.hint


def test_links_and_submodules_are_left_out_and_said_so(toy: ToyRepository) -> None:
    (toy.folder / "link.py").symlink_to("/etc/passwd")
    toy.git("update-index", "--add", "--cacheinfo", f"160000,{toy.git('rev-parse', 'HEAD')},third_party/lib")
    toy.git("add", "link.py")
    toy.git("commit", "-q", "-m", "odd")
    tree = open_tree(f"{toy.folder}#HEAD")
    assert sorted(contents(tree)) == ["pkg/a.py", "pkg/b.cpp"]
    assert codes(tree) == ["V-SRC-LINK", "V-SRC-SUBMODULE"]


def test_names_that_are_not_utf8_are_shown_with_escapes(toy: ToyRepository) -> None:
    blob = toy.git("hash-object", "-w", "--stdin", data=b"odd = 1\n")
    tree = toy.git("mktree", "-z", data=b"100644 blob " + blob.encode() + b"\t\xff.py\0")
    odd = open_tree(f"{toy.folder}#{tree}")
    assert contents(odd) == {"\\xff.py": b"odd = 1\n"}
    assert codes(odd) == ["V-SRC-NAME"]


def test_a_tree_of_trees_that_stands_for_endless_files_is_cut_off(
    toy: ToyRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("verispec.static.sources.git.MAX_ENTRIES", 1000)
    blob = toy.git("hash-object", "-w", "--stdin", data=b"x = 1\n")
    tree = toy.git("mktree", data="".join(f"100644 blob {blob}\t{name}.py\n" for name in range(10)).encode())
    for _ in range(12):  # 10 ** 13 files in thirteen small objects
        tree = toy.git("mktree", data="".join(f"040000 tree {tree}\t{name}\n" for name in range(10)).encode())
    bomb = open_tree(f"{toy.folder}#{tree}")
    assert codes(bomb) == ["V-SRC-TOO-MANY"]
    assert len(list(bomb.files())) <= 1001


def test_an_empty_revision_is_an_empty_tree(toy: ToyRepository) -> None:
    tree = toy.git("mktree", data=b"")
    assert list(open_tree(f"{toy.folder}#{tree}").files()) == []


def test_damaged_missing_and_forged_objects_are_not_believed(toy: ToyRepository) -> None:
    good = blob_id(b"a = 2\n")
    other = toy.git("hash-object", "-w", "--stdin", data=b"evil = 1\n")
    objects = toy.folder / ".git" / "objects"
    path = objects / good[:2] / good[2:]
    path.chmod(0o644)
    path.write_bytes((objects / other[:2] / other[2:]).read_bytes())
    toy.git("replace", "-f", blob_id(b"int b;\n"), other)
    files = {file.path: file for file in open_tree(f"{toy.folder}#HEAD").files()}
    with pytest.raises(OSError, match="does not match its name"):
        files["pkg/a.py"].read()
    assert files["pkg/b.cpp"].read() == b"int b;\n"  # replaced objects are not honoured
    path.unlink()
    with pytest.raises(OSError, match="lacks the object"):
        files["pkg/a.py"].read()
    assert files["pkg/b.cpp"].read() == b"int b;\n"  # and the reader goes on after a failure


@pytest.mark.timeout(60)  # a reader that trusts the header waits for ever
@pytest.mark.parametrize("content", [b"blob 3\0a", b"blob 99999\0a", b"blob 3\0a = 2\n", b"blob 3\0"])
def test_an_object_of_another_size_than_it_says_is_damaged(toy: ToyRepository, content: bytes) -> None:
    name = blob_id(b"a = 2\n")
    path = toy.folder / ".git" / "objects" / name[:2] / name[2:]
    path.chmod(0o644)
    path.write_bytes(zlib.compress(content))
    files = {file.path: file for file in open_tree(f"{toy.folder}#HEAD").files()}
    with pytest.raises(OSError, match=f"{name} is damaged|lacks the object {name}"):
        files["pkg/a.py"].read()
    assert files["pkg/b.cpp"].read() == b"int b;\n"  # and the reader goes on


def test_an_object_that_is_too_large_is_not_read(toy: ToyRepository) -> None:
    toy.commit({"large.py": b"#" * (MAX_FILE + 1)})
    files = {file.path: file for file in open_tree(f"{toy.folder}#HEAD").files()}
    with pytest.raises(OSError, match="bytes"):
        files["large.py"].read()
    assert files["pkg/a.py"].read() == b"a = 2\n"


def test_a_commit_is_told_with_author_and_subject(toy: ToyRepository) -> None:
    commit = Repository(toy.folder).commit(toy.git("rev-parse", "HEAD"))
    assert commit.author == "Ada <ada@example.org> 1700000120 +0000"
    assert commit.subject == "second"
    assert commit.parents == (toy.git("rev-parse", "HEAD~1"),)


def test_redirecting_variables_are_not_obeyed(
    toy: ToyRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = ToyRepository(tmp_path / "other")
    other.commit({"other.py": ""})
    monkeypatch.setenv("GIT_DIR", str(other.folder / ".git"))
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(other.folder / ".git" / "objects"))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.fsmonitor")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "false")
    assert sorted(contents(open_tree(f"{toy.folder}#HEAD"))) == ["pkg/a.py", "pkg/b.cpp"]
    assert not {name for name in environment() if name.startswith("GIT_CONFIG_KEY")}


def test_a_hostile_repository_executes_nothing(toy: ToyRepository, tmp_path: Path) -> None:
    marker = tmp_path / "executed"
    script = tmp_path / "script"
    script.write_text(f"#!/bin/sh\necho $0 $@ >> {marker}\nexit 1\n")
    script.chmod(0o755)
    touch = str(script)
    toy.commit({"gone.py": "only on the remote\n"})
    missing = blob_id(b"only on the remote\n")
    (toy.folder / ".git" / "objects" / missing[:2] / missing[2:]).unlink()
    for key, value in {
        "core.fsmonitor": touch,
        "core.hooksPath": str(tmp_path / "hooks"),
        "core.pager": touch,
        "core.editor": touch,
        "core.sshCommand": touch,
        "core.alternateRefsCommand": touch,
        "core.gitProxy": touch,
        "credential.helper": f"!{touch}",
        "diff.external": touch,
        "diff.x.textconv": touch,
        "diff.x.command": touch,
        "filter.x.smudge": touch,
        "filter.x.clean": touch,
        "filter.x.process": touch,
        "gpg.program": touch,
        "log.showSignature": "true",
        "uploadpack.packObjectsHook": touch,
        "protocol.allow": "always",
        "protocol.ext.allow": "always",
        "extensions.partialClone": "origin",
        "remote.origin.promisor": "true",
        "remote.origin.url": f"ext::{touch}",
        "remote.origin.uploadpack": touch,
        "alias.rev-parse": f"!{touch}",
        "alias.ls-tree": f"!{touch}",
    }.items():
        toy.git("config", key, value)
    (toy.folder / ".git" / "info" / "attributes").write_text("* filter=x diff=x\n")
    (tmp_path / "hooks").mkdir()
    for hook in ("post-checkout", "post-index-change", "reference-transaction", "fsmonitor-watchman"):
        (tmp_path / "hooks" / hook).symlink_to(script)

    files = {file.path: file for file in open_tree(f"{toy.folder}#HEAD").files()}
    assert files["pkg/a.py"].read() == b"a = 2\n"
    with pytest.raises(OSError):
        files["gone.py"].read()
    repository = Repository(toy.folder)
    repository.commit(repository.resolve("HEAD"))
    repository.run("rev-list", "--bisect-all", "HEAD")
    assert not marker.exists()

    # The control: git as people call it executes something here.
    for command in (["cat-file", "-p", missing], ["status"]):
        marker.unlink(missing_ok=True)
        subprocess.run(["git", *command], cwd=toy.folder, capture_output=True, check=False)
        assert marker.exists(), command
