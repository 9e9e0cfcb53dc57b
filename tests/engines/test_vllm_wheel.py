"""The wheel behind the tested package, as its metadata names it."""

from __future__ import annotations

import base64
import hashlib
import json
import sys
from pathlib import Path

import pytest

from verispec.engines.adapters.vllm.installed.wheel import installed_wheel, packager

DIGEST = hashlib.sha256(b"ops").digest()
RECORDED = base64.urlsafe_b64encode(DIGEST).decode().rstrip("=")
TAG = f"cp{sys.version_info.major}{sys.version_info.minor}-abi-linux_x86_64"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    info = tmp_path / "tried_cpu-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tried-cpu\nVersion: 1.0\n")
    (info / "WHEEL").write_text(f"Wheel-Version: 1.0\nTag: {TAG}\nTag: cp313-cp313-linux_x86_64\n")
    (info / "RECORD").write_text(f"tried/a.py,sha256=AAAA,3\ntried/_C.abi3.so,sha256={RECORDED},3\n")
    monkeypatch.syspath_prepend(tmp_path)
    return info


def test_without_a_hash_of_the_file_it_is_that_of_the_compiled_ops(installed: Path) -> None:
    assert installed_wheel("tried", "tried-cpu") == f"{TAG}, SHA-256 of tried/_C.abi3.so {DIGEST.hex()}"


@pytest.mark.parametrize(
    ("origin", "said"),
    [
        ({"url": "u", "archive_info": {"hashes": {"sha256": "ab12"}}}, "SHA-256 of the file ab12"),
        ({"url": "u", "archive_info": {"hash": "sha256=cd34"}}, "SHA-256 of the file cd34"),
        ({"url": "u", "vcs_info": {"vcs": "git", "commit_id": "beef"}}, "built from commit beef"),
        ({"url": "u", "dir_info": {"editable": True}}, "built from a folder"),
    ],
)
def test_what_the_installer_kept_comes_first(installed: Path, origin: dict[str, object], said: str) -> None:
    (installed / "direct_url.json").write_text(json.dumps({**origin, "url": "https://host.example/tried.whl"}))
    found = installed_wheel("tried-cpu")
    assert found == f"{TAG}, {said}"
    assert "host.example" not in found


def test_a_package_that_says_nothing_or_is_missing_has_no_wheel(installed: Path) -> None:
    for name in ("WHEEL", "RECORD"):
        (installed / name).unlink()
    assert installed_wheel("tried-cpu") == ""
    assert installed_wheel("tried") == ""


def test_a_tag_of_another_python_is_said(installed: Path) -> None:
    here = TAG.partition("-")[0]
    for tag, other in (("cp2-cp2-linux_x86_64", True), ("py3-none-any", False), ("cp2-abi3-linux_x86_64", False)):
        (installed / "WHEEL").write_text(f"Tag: {tag}\n")
        assert (f"(a tag of another Python than {here})" in installed_wheel("tried-cpu")) == other


def test_the_packager_is_named_without_an_address(installed: Path) -> None:
    assert packager("tried", "tried-cpu") == ""
    head = "Metadata-Version: 2.1\nName: tried-cpu\nVersion: 1.0\n"
    (installed / "METADATA").write_text(f"{head}Author: A Team\n")
    assert packager("tried-cpu") == "A Team"
    (installed / "METADATA").write_text(f"{head}Author: A Team\nMaintainer-email: Ann Other <ann@host.example>\n")
    assert packager("tried-cpu") == "Ann Other"
