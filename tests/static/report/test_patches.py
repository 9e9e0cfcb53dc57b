"""--patches: what a plugin replaces in its host, and whether the host still has it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from verispec import exits
from verispec.cli import main

HOST = """
import triton
@triton.jit
def kernel(a, n): ...
def run(a, grid):
    kernel[grid](a, 1)
def topk(x, n, state=None):
    return x
def call(x):
    return topk(x, 1, state=2)
def same(x):
    return x
class Sampler:
    def __init__(self, size): ...
"""
PLUGIN = """
import triton
import host.ops
@triton.jit
def npu_kernel(a, n): ...
def npu_topk(x, n): ...
def npu_same(x): ...
class NPUSampler:
    def __init__(self, size, fast=False): ...
host.ops.kernel = npu_kernel
host.ops.topk = npu_topk
host.ops.same = npu_same
host.ops.vanished = npu_same
host.ops.Sampler = NPUSampler
"""


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as stopped:
        main(["signatures", *words])
    captured = capsys.readouterr()
    return int(stopped.value.code or 0), captured.out + captured.err


def test_patch_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("VERISPEC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    for name, text in {"host/host/ops.py": HOST, "plugin/plug/patch.py": PLUGIN}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
        (path.parent / "__init__.py").write_text("")
    _, output = run(capsys, "plugin", "--core", "host", "--json")
    patches = {patch["target"]: (patch["kind"], patch["state"]) for patch in json.loads(output)["patches"]}
    assert patches == {
        "host.ops.kernel": ("kernel", "ok"),
        "host.ops.topk": ("function", "broken"),
        "host.ops.same": ("function", "ok"),
        "host.ops.vanished": ("attribute", "gone"),
        "host.ops.Sampler": ("class", "differs"),
    }
    code, output = run(capsys, "plugin", "--core", "host", "--patches")
    assert code == exits.BAD
    first, place, second = output.splitlines()[1:4]
    assert first.split() == ["gone", "attribute", "host.ops.vanished"]
    assert place.strip().startswith("plugin/plug/patch.py:"), (
        "a name and a place are each on a line of their own, never broken"
    )
    assert second.split() == ["broken", "function", "host.ops.topk"]
    code, output = run(capsys, "plugin", "--patches")
    assert code == exits.USAGE
    assert "V-PATCHES" in output
