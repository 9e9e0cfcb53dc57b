"""examples/new_rule: a rule of another package, found through a real entry point."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/new_rule"
KERNEL = "import triton\n\n\n@triton.jit\ndef k(a, b, c, d, e, f, g, h, i):\n    pass\n\n\n"
MANY = "def run(grid):\n    k[grid](1, 2, 3, 4, 5, 6, 7, 8, 9)\n"
FEW = "def run(grid):\n    k[grid](1, 2, 3, 4, 5, 6, 7, 8, i=9)\n"
STARRED = "def run(grid, rest):\n    k[grid](1, 2, 3, 4, 5, 6, 7, 8, *rest)\n"


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The folder of a package that registers the example; its metadata is what pip would write."""
    info = tmp_path / "site" / "mine-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[verispec.rules]\nmine = positional_launches\n")
    (tmp_path / "site/positional_launches.py").write_text((EXAMPLE / "positional_launches.py").read_text())
    return tmp_path / "site"


def verispec(site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(site), "VERISPEC_CACHE_DIR": str(site.parent / "cache")}
    command = [sys.executable, "-m", "verispec", *words]
    return subprocess.run(command, check=False, capture_output=True, text=True, env=environment, cwd=site.parent)


@pytest.mark.parametrize(("caller", "found"), [(MANY, ["SIG901"]), (FEW, []), (STARRED, [])])
def test_the_rule_takes_part(installed: Path, caller: str, found: list[str]) -> None:
    tree = installed.parent / "tree"
    tree.mkdir()
    (tree / "kernels.py").write_text(KERNEL + caller)
    done = verispec(installed, "signatures", str(tree), "--json")
    assert [finding["rule"] for finding in json.loads(done.stdout)["findings"]] == found


def test_the_rule_is_explained(installed: Path) -> None:
    done = verispec(installed, "explain", "SIG901")
    assert "many positional arguments" in done.stdout
    assert "Pass the arguments by keyword." in done.stdout


def test_a_taken_id_is_refused(installed: Path) -> None:
    rule = installed / "positional_launches.py"
    rule.write_text(rule.read_text().replace("SIG901", "SIG101"))
    (installed.parent / "tree").mkdir()
    done = verispec(installed, "signatures", str(installed.parent / "tree"))
    assert done.returncode == 2
    assert "V-RULE-ID" in done.stderr
