"""Exit code 125: a tree is good only if every file that takes part was checked."""

from __future__ import annotations

import json
import os
import tarfile
from io import BytesIO
from pathlib import Path

import pytest
from toy_git import ToyRepository
from toy_kernels import BAD_CALL, GOOD_TREE, KERNEL

from verispec import exits
from verispec.cli import main
from verispec.static.facts import LARGEST


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERISPEC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.chdir(tmp_path)


def code(*words: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(["signatures", *words])
    return int(stopped.value.code or 0)


def write(root: Path, name: str, data: str | bytes) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_bytes(data.encode() if isinstance(data, str) else data)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in GOOD_TREE.items():
        write(tmp_path / "tree", name, text)
    return tmp_path / "tree"


HUGE = KERNEL + "X = 1\n" * (LARGEST // 6 + 1)


@pytest.mark.parametrize(
    ("path", "data", "expected"),
    [
        ("pkg/more.py", KERNEL + "\n(", exits.CANNOT_TELL),
        ("pkg/more.py", b"\xff\x00import triton; @triton.jit", exits.CANNOT_TELL),
        ("pkg/more.py", KERNEL + "x = " + "-" * 100_000 + "1\n", exits.CANNOT_TELL),
        ("pkg/more.py", HUGE, exits.CANNOT_TELL),
        ("pkg/more.py", b"#" * (17 << 20), exits.CANNOT_TELL),
        ("tests/test_more.py", KERNEL + "\n(", exits.GOOD),
        ("pkg/words.py", "this file takes no part (", exits.GOOD),
        ("pkg/words.py", "X = 1\n" * (LARGEST // 6 + 1), exits.GOOD),
    ],
    ids=["syntax error", "bytes", "deep", "long", "not read", "test", "no part", "long, no part"],
)
def test_a_file_that_takes_part_and_was_not_checked(tree: Path, path: str, data: str | bytes, expected: int) -> None:
    write(tree, path, data)
    assert code(str(tree), "--sarif", "out.sarif") == expected
    (run,) = json.loads(Path("out.sarif").read_text())["runs"]
    assert run["invocations"][0]["executionSuccessful"] == (expected == exits.GOOD)


def test_a_caller_that_cannot_be_parsed_hides_its_faults(tree: Path) -> None:
    write(tree, "pkg/caller.py", BAD_CALL + "\n(")
    assert code(str(tree)) == exits.CANNOT_TELL


def test_an_archive_member_that_leads_outside(tmp_path: Path) -> None:
    with tarfile.open("toy-1.0.tar.gz", "w:gz") as archive:
        for name, text in {"toy-1.0/a.py": "x = 1\n", "toy-1.0/../../kernels.py": KERNEL}.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, BytesIO(text.encode()))
    assert code("toy-1.0.tar.gz") == exits.CANNOT_TELL


def test_a_file_that_took_part_before(tmp_path: Path) -> None:
    toy = ToyRepository(tmp_path / "repo")
    toy.commit(GOOD_TREE)
    toy.commit({"pkg/kernels.py": "this is no Python any more ("}, "break the kernels")
    assert code("repo", "--since", "HEAD~1") == exits.CANNOT_TELL


def test_a_cache_that_cannot_be_written_costs_time_only(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VERISPEC_CACHE_DIR", str(tree / "pkg" / "caller.py" / "cache"))
    assert code(str(tree)) == exits.GOOD
    assert "V-CACHE-WRITE" in capsys.readouterr().err
    assert os.environ["VERISPEC_CACHE_DIR"] == str(tree / "pkg" / "caller.py" / "cache")
